"""From the recogniser's steps to text: CTC's greedy path."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

BLANK: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The steps of a line that hold a character: which step, class and probability."""

    steps: NDArray[np.intp]
    classes: NDArray[np.intp]
    probabilities: NDArray[np.float32]


def from_best(classes: NDArray[np.integer], probabilities: NDArray[np.float32]) -> Path:
    """Return the path, from each step's best class and its probability, (steps,)."""
    steps = _kept(classes)
    return Path(
        steps=steps,
        classes=classes[steps].astype(np.intp),
        probabilities=probabilities[steps],
    )


def from_logits(logits: NDArray[np.float32]) -> Path:
    """Return the path, from (steps, classes) before softmax.

    Softmax keeps the order, so it is computed for the kept steps alone: the largest
    one's probability is 1 / sum(exp(x - max)).
    """
    classes = logits.argmax(axis=1)
    steps = _kept(classes)
    rows = logits[steps]
    rows -= rows.max(axis=1, keepdims=True)
    probabilities = 1 / np.exp(rows, out=rows).sum(axis=1)
    return Path(steps=steps, classes=classes[steps], probabilities=probabilities)


def _kept(classes: NDArray[np.integer]) -> NDArray[np.intp]:
    """Return the steps that begin a run of one class other than blank."""
    starts = np.ones(len(classes), np.bool_)
    np.not_equal(classes[1:], classes[:-1], out=starts[1:])
    return np.flatnonzero(starts & (classes != BLANK))


def text_of(path: Path, characters: Sequence[str]) -> tuple[str, float]:
    """Return the text and its mean probability; "" and 0 when there is none."""
    if not len(path.steps):
        return "", 0.0
    text = "".join([characters[index] for index in path.classes.tolist()])
    return text, round(float(path.probabilities.mean(dtype=np.float64)), 5)


def columns_of(path: Path, *, steps: int, width: int, text_width: int) -> list[tuple[float, float]]:
    """Return each character's centre, as a fraction of the text's width, and probability.

    Args:
        path: what was read.
        steps: of the whole strip.
        width: the strip's, in pixels.
        text_width: of it that is text.

    """
    centres = (path.steps + 0.5) * (width / steps / text_width)
    pairs = zip(np.minimum(centres, 1.0).tolist(), path.probabilities.tolist(), strict=True)
    return [(centre, round(probability, 5)) for centre, probability in pairs]
