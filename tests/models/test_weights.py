"""The bundled weights: found, checked, or told how to get."""

import sys
from dataclasses import replace

import pytest

from pagemill.errors import NotInstalled
from pagemill.models import weights


def test_all_weights_are_there_and_their_package_stays_unimported() -> None:
    for each in (weights.DETECTOR, weights.RECOGNIZER, weights.LINE_ANGLE):
        assert len(weights.read(each)) > 500_000
    assert "rapidocr" not in sys.modules


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"package": "no_such_package"}, "which is not installed. Install it"),
        ({"path": "models/other.onnx"}, "cannot be read from package rapidocr.* Reinstall it"),
        ({"sha256": "0" * 64}, "sha256 differs.* Reinstall it"),
    ],
)
def test_what_is_missing_or_wrong_is_named_with_its_fix(changed: dict[str, str], says: str) -> None:
    with pytest.raises(NotInstalled, match=says):
        weights.read(replace(weights.LINE_ANGLE, **changed))
