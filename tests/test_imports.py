"""Law 2: no native code in the front; and imports point downwards."""

import subprocess
import sys
from pathlib import Path

import pytest

NATIVE = {"cv2", "PIL", "numpy", "pypdfium2", "openvino", "onnxruntime", "onnx", "torch", "paddle"}


@pytest.mark.parametrize("module", ["server.app", "assembly", "serving", "batch", "cli"])
def test_the_front_loads_no_native_library(module: str) -> None:
    program = f"import pagemill.{module}, sys; print(*({NATIVE!r} & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert found.stdout.split() == []


def test_import_contracts_hold() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    if not tool.exists():
        pytest.skip("import-linter is not installed")
    root = Path(__file__).resolve().parents[1]
    checked = subprocess.run([tool], check=False, capture_output=True, text=True, cwd=root)
    assert checked.returncode == 0, checked.stdout
