"""From steps to text."""

import numpy as np
import pytest

from pagemill.stages import ctc

CHARACTERS = ["", "a", "b", " "]


def path_of(*classes: int) -> ctc.Path:
    probabilities = np.linspace(0.5, 1.0, len(classes), dtype=np.float32)
    return ctc.from_best(np.array(classes), probabilities)


@pytest.mark.parametrize(
    ("classes", "text"),
    [
        ((0, 1, 1, 0, 2, 2, 2), "ab"),
        ((1, 0, 1), "aa"),  # a blank between tells two of a letter apart
        ((1, 1, 1), "a"),
        ((1, 3, 2), "a b"),
        ((1, 2, 1), "aba"),
        ((0, 0), ""),
        ((2,), "b"),
    ],
)
def test_runs_are_joined_and_blanks_dropped(classes: tuple[int, ...], text: str) -> None:
    assert ctc.text_of(path_of(*classes), CHARACTERS)[0] == text


def test_the_confidence_is_the_mean_over_the_first_step_of_each_run() -> None:
    path = ctc.from_best(np.array([0, 1, 1, 2]), np.array([0.9, 0.8, 0.1, 0.6], np.float32))
    assert ctc.text_of(path, CHARACTERS) == ("ab", 0.7)


def test_nothing_read_has_no_confidence() -> None:
    assert ctc.text_of(path_of(0, 0, 0), CHARACTERS) == ("", 0.0)


def test_logits_and_the_best_of_their_softmax_give_the_same_path() -> None:
    random = np.random.default_rng(7)
    logits = random.normal(0, 4, (60, 50)).astype(np.float32)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    one = ctc.from_logits(logits)
    other = ctc.from_best(softmax.argmax(axis=1), softmax.max(axis=1))
    assert one.steps.tolist() == other.steps.tolist()
    assert one.classes.tolist() == other.classes.tolist()
    np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=1e-5)


def test_logits_are_left_as_they_were() -> None:
    logits = np.ones((3, 4), np.float32)
    ctc.from_logits(logits)
    assert (logits == 1).all()


def test_a_column_is_the_middle_of_its_step_as_a_fraction_of_the_text() -> None:
    path = ctc.from_best(np.array([1, 0, 2, 0]), np.full(4, 0.5, np.float32))
    columns = ctc.columns_of(path, steps=4, width=32, text_width=32)
    assert columns == [(0.125, 0.5), (0.625, 0.5)]
    padded = ctc.columns_of(path, steps=4, width=32, text_width=16)
    assert padded == [(0.25, 0.5), (1.0, 0.5)]  # none stands in the padding
