"""Pictures whose answers are known: what a worker must read before it joins."""

from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

TEXT: Final = "2026"
LEAST_COVER: Final = 0.5  # of a word's middle: the detector shrinks words
WORDS: Final = (np.s_[44:52, 50:120], np.s_[108:116, 50:120])
GAP: Final = np.s_[68:92, :]


def page() -> NDArray[np.uint8]:
    """Return a page of two words, (160, 192, 3)."""
    picture = np.full((160, 192, 3), 255, np.uint8)
    for baseline in (60, 124):
        cv2.putText(picture, "WORD", (40, baseline), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (0, 0, 0), 2)
    return picture


def line() -> NDArray[np.uint8]:
    """Return a strip that reads `TEXT`, (48, 128, 3)."""
    strip = np.full((48, 128, 3), 255, np.uint8)
    cv2.putText(strip, TEXT, (12, 38), cv2.FONT_HERSHEY_SIMPLEX, 1.3, (0, 0, 0), 2)
    return strip
