"""The rewritten graphs compute what the original ones do."""

from functools import cache
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from pagemill.models import graphs, weights
from pagemill.stages import known
from pagemill.stages.subpixels import unshuffle


@cache
def content(of: weights.Weights) -> bytes:
    return weights.read(of)


def run(model: bytes, inputs: NDArray[Any]) -> list[NDArray[Any]]:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    outputs: list[NDArray[Any]] = session.run(None, {session.get_inputs()[0].name: inputs})
    return outputs


def as_trained(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return RGB bytes as the original models want them: BGR planes in [-1, 1]."""
    normal = (pixels.astype(np.float32) / 255 - 0.5) / 0.5
    return np.ascontiguousarray(normal[..., ::-1].transpose(0, 3, 1, 2))


@pytest.mark.parametrize("shape", [(160, 192), (96, 160)])
def test_the_detector_finds_the_same(shape: tuple[int, int]) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (1, *shape, 3), np.uint8)
    page = known.page()[: shape[0], : shape[1]]
    pixels[0] = np.where(page < 128, pixels[0] // 2, page)  # coloured letters
    (expected,) = run(content(weights.DETECTOR), as_trained(pixels))
    (found,) = run(graphs.detector(content(weights.DETECTOR)), pixels)
    difference = unshuffle(found[0]).astype(int) - np.floor(expected[0, 0] * 255 + 0.5)
    assert np.abs(difference).max() <= 1  # a rounding that fell the other way
    assert np.mean(difference != 0) < 0.01
    assert expected.max() > 0.5


def test_the_recogniser_reads_the_same_with_either_head() -> None:
    pixels = np.stack([known.line(), known.line()[:, ::-1]])
    (expected,) = run(content(weights.RECOGNIZER), as_trained(pixels))
    (logits,) = run(graphs.recognizer(content(weights.RECOGNIZER), "logits"), pixels)
    classes, certainty = run(graphs.recognizer(content(weights.RECOGNIZER), "best"), pixels)
    np.testing.assert_array_equal(logits.argmax(axis=2), expected.argmax(axis=2))
    np.testing.assert_array_equal(classes, expected.argmax(axis=2))
    np.testing.assert_allclose(certainty, expected.max(axis=2), atol=1e-4)


def test_the_line_angle_is_told_the_same() -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (2, 48, 192, 3), np.uint8)
    (expected,) = run(content(weights.LINE_ANGLE), as_trained(pixels))
    (found,) = run(graphs.line_angle(content(weights.LINE_ANGLE)), pixels)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_characters_are_one_a_class() -> None:
    characters = graphs.characters(content(weights.RECOGNIZER))
    assert len(characters) == 18_710
    assert (characters[0], characters[-1]) == ("", " ")
    assert all(len(character) == 1 for character in characters[1:])
