"""One contract for every runtime, and what each refuses."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagemill.errors import AppError, BadOption, NotInstalled
from pagemill.models import recipes
from pagemill.models.cache import Cache
from pagemill.runtimes.base import Model, open_runtime

NAMES = ("openvino", "onnxruntime")
STRIP = np.random.default_rng(5).integers(0, 256, (1, 48, 64, 3), np.uint8)


def load(cache: Cache, **config: Any) -> Model:
    return open_runtime(config).load(recipes.line_angle(), cache)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_from_the_cache_answers_as_one_just_made(name: str, tmp_path: Path) -> None:
    view = np.zeros((1, 48, 192, 3), np.uint8)
    view[:, :, :64] = STRIP
    first = load(Cache(tmp_path), runtime=name).run(view)[0].copy()
    second = load(Cache(tmp_path), runtime=name).run(view)[0].copy()
    without = load(Cache(None), runtime=name).run(view)[0].copy()
    assert list(tmp_path.iterdir())
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, without)
    assert first.sum() == pytest.approx(1, abs=1e-5)


def test_both_runtimes_give_the_same_probabilities() -> None:
    view = np.zeros((1, 48, 192, 3), np.uint8)
    view[:, :, :64] = STRIP
    answers = [load(Cache(None), runtime=name).run(view)[0].copy() for name in NAMES]
    np.testing.assert_allclose(answers[0], answers[1], atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_says_how_it_runs(name: str) -> None:
    facts = load(Cache(None), runtime=name, precision="f32").facts
    assert facts["runtime"].startswith(name)
    assert (facts["device"], facts["precision"]) == ("cpu", "f32")


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        ({"runtime": "torch"}, BadOption, "no runtime 'torch'"),
        ({"runtime": "openvino", "device": "cuda"}, BadOption, "runtime.runtime to onnxruntime"),
        ({"runtime": "onnxruntime", "device": "npu"}, BadOption, "no device 'npu'"),
        ({"runtime": "onnxruntime", "device": "cuda:x"}, BadOption, "no device"),
        ({"runtime": "onnxruntime", "precision": "bf16"}, BadOption, "not bf16"),
        ({"runtime": "onnxruntime", "device": "cuda"}, NotInstalled, "onnxruntime-gpu"),
        ({"runtime": "onnxruntime", "device": "tensorrt:1"}, NotInstalled, "onnxruntime-gpu"),
    ],
)
def test_what_a_runtime_cannot_do_is_refused_with_the_way_out(
    config: dict[str, str], error: type[AppError], says: str
) -> None:
    with pytest.raises(error, match=says):
        open_runtime(config)


def test_a_runtime_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, f"pagemill.runtimes.{name}", raising=False)
        with pytest.raises(NotInstalled, match=f"runtime {name} is not installed"):
            open_runtime({"runtime": name})


def test_a_native_library_is_loaded_by_its_own_runtime_alone() -> None:
    code = (
        "import sys, pagemill.stages.detect, pagemill.stages.recognize\n"
        "print({'openvino', 'onnxruntime', 'onnx', 'rapidocr'} & set(sys.modules))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
