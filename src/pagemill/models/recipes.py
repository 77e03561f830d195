"""The models that the stages run: which weights, rewritten how.

Rewriting needs the package `onnx`, which is loaded only when something is made.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from pagemill.models.cache import Cache
from pagemill.models.weights import DETECTOR, LINE_ANGLE, RECOGNIZER, Weights, read

_MAKERS: Final = ("graphs.py", "detector_tail.py", "surgery.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A model: its weights and what is done to their graph.

    `shapes` is how many input shapes it meets again and again.
    """

    name: str
    weights: Weights
    rewrite: Callable[[bytes], bytes]
    shapes: int

    def make(self) -> bytes:
        """Return the ONNX file.

        Raises:
            NotInstalled: the weights are missing or wrong.

        """
        return self.rewrite(read(self.weights))

    @property
    def key(self) -> str:
        """Return what names the file that `make` returns, without making it."""
        return _key(self.name, self.weights)


def detector() -> Recipe:
    """Return the text detector; pages differ, so few shapes come again soon."""
    return Recipe(name="detector", weights=DETECTOR, rewrite=_rewrite_detector, shapes=6)


def recognizer(head: Literal["logits", "best"]) -> Recipe:
    """Return the text recogniser; most lines are of some forty padded widths."""
    return Recipe(
        name=f"recognizer-{head}",
        weights=RECOGNIZER,
        rewrite=partial(_rewrite_recognizer, head=head),
        shapes=40,
    )


def line_angle() -> Recipe:
    """Return the line-angle classifier."""
    return Recipe(name="line_angle", weights=LINE_ANGLE, rewrite=_rewrite_line_angle, shapes=1)


def characters(cache: Cache) -> list[str]:
    """Return the recogniser's classes.

    Raises:
        NotInstalled: the weights are missing or wrong.

    """
    listed = cache.get(_key("characters", RECOGNIZER), _make_characters)
    return listed.decode().split("\n")


def _key(name: str, weights: Weights) -> str:
    folder = Path(__file__).parent
    makers = b"".join(folder.joinpath(maker).read_bytes() for maker in _MAKERS)
    return f"{name} {weights.sha256} {hashlib.sha256(makers).hexdigest()}"


def _rewrite_detector(content: bytes) -> bytes:
    from pagemill.models import graphs  # noqa: PLC0415 - see above

    return graphs.detector(content)


def _rewrite_recognizer(content: bytes, head: Literal["logits", "best"]) -> bytes:
    from pagemill.models import graphs  # noqa: PLC0415 - see above

    return graphs.recognizer(content, head)


def _rewrite_line_angle(content: bytes) -> bytes:
    from pagemill.models import graphs  # noqa: PLC0415 - see above

    return graphs.line_angle(content)


def _make_characters() -> bytes:
    from pagemill.models import graphs  # noqa: PLC0415 - see above

    return "\n".join(graphs.characters(read(RECOGNIZER))).encode()
