"""A page whose text is known: what a worker must read before it may join.

`line.png` is drawn by tests/stages/draw_known.py.
"""

from pathlib import Path
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

TEXT: Final = "PageMill reads 48 lines"

_TOP_PX: Final = 24  # of the line on the page, and its distance from the left side
_PAGE: Final = (96, 448)
_LINE: Final = Path(__file__).with_name("line.png")


def line() -> NDArray[np.uint8]:
    """Return a strip of text, (48, width, 3)."""
    encoded = np.frombuffer(_LINE.read_bytes(), np.uint8)
    strip = cv2.imdecode(encoded, cv2.IMREAD_COLOR_RGB)
    assert strip is not None  # it is part of this package
    return strip.astype(np.uint8, copy=False)


def page() -> NDArray[np.uint8]:
    """Return a white page, (96, 448, 3), with that line on it."""
    strip = line()
    drawn = np.full((*_PAGE, 3), 255, np.uint8)
    drawn[inside()] = strip
    return drawn


def inside() -> tuple[slice, slice]:
    """Return where on the page the line stands."""
    height, width, _ = line().shape
    return slice(_TOP_PX, _TOP_PX + height), slice(_TOP_PX, _TOP_PX + width)
