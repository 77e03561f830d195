"""Puts the detector's sub-pixels back in their places; see `models.graphs`."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_UPSCALE: Final = 2  # of each of the detector's two doublings
SUBPIXELS: Final = _UPSCALE**2


def unshuffle(subpixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the map, (h, w), of channels (16, h/4, w/4).

    Channels are (row, column) of the first doubling, then of the second.
    """
    _, height, width = subpixels.shape
    split = subpixels.reshape(_UPSCALE, _UPSCALE, _UPSCALE, _UPSCALE, height, width)
    rows_first = split.transpose(4, 0, 2, 5, 1, 3)
    return rows_first.reshape(height * SUBPIXELS, width * SUBPIXELS)
