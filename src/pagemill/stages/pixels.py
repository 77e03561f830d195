"""From what Pillow decoded to RGB on white, 8 bits a channel.

- 16 bits a channel: the high byte is taken (a division by 256, at most one level
  from the exact division by 257); Pillow does the same for colour.
- 32-bit integers and floats have no fixed white: the range that occurs is stretched.
- Embedded ICC profiles are left unapplied: text does not need them.
"""

from collections.abc import Callable
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

# By EXIF's orientation; each leaves a C-contiguous array.
_TURNS: Final[dict[int, Callable[[NDArray[np.uint8]], cv2.typing.MatLike]]] = {
    2: lambda page: cv2.flip(page, 1),
    3: lambda page: cv2.rotate(page, cv2.ROTATE_180),
    4: lambda page: cv2.flip(page, 0),
    5: cv2.transpose,
    6: lambda page: cv2.rotate(page, cv2.ROTATE_90_CLOCKWISE),
    7: lambda page: cv2.transpose(cv2.rotate(page, cv2.ROTATE_180)),
    8: lambda page: cv2.rotate(page, cv2.ROTATE_90_COUNTERCLOCKWISE),
}

_VISIBLE: Final = 224  # a page with nothing darker than this on white shows nothing


def to_rgb(image: Image.Image) -> NDArray[np.uint8]:
    """Return a decoded image as (height, width, 3), C-contiguous; do not write to it.

    Raises:
        ValueError: a palette image has no palette; and what Pillow raises.

    """
    if image.mode == "P" and image.palette is None:
        message = "no palette"
        raise ValueError(message)
    if image.mode.startswith("I;16"):
        return _grey_to_rgb((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        return _grey_to_rgb(_stretched(np.asarray(image)))
    if image.has_transparency_data:
        return np.asarray(_flattened(image.convert("RGBA")))
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def turned(page: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Return a page as EXIF's `orientation` (1 to 8) wants it shown; others leave it."""
    turn = _TURNS.get(orientation)
    return page if turn is None else _u8(turn(page))


def _flattened(image: Image.Image) -> Image.Image:
    """Put an image on white; on black if on white nothing of it would be seen."""
    alpha = image.getchannel("A")
    page = _on(image, alpha, "white")
    darkest = page.convert("L").getextrema()[0]
    assert not isinstance(darkest, tuple)  # one band
    return page if darkest < _VISIBLE else _on(image, alpha, "black")


def _on(image: Image.Image, alpha: Image.Image, ground: str) -> Image.Image:
    page = Image.new("RGB", image.size, ground)
    page.paste(image, mask=alpha)
    return page


def _stretched(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    wide = np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = wide.min(), wide.max()
    span = high - low
    if not 0 < span < np.inf:
        return np.full(wide.shape, 255, np.uint8)  # one value all over: a blank page
    scaled: NDArray[np.float64] = (wide - low) * (255.0 / span)
    return scaled.round().astype(np.uint8)


def _grey_to_rgb(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return _u8(cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB))


def _u8(image: cv2.typing.MatLike) -> NDArray[np.uint8]:
    return image.astype(np.uint8, copy=False)
