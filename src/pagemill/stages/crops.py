"""Lines cut out of a page: upright strips, 48 pixels high, side by side in one buffer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

HEIGHT_PX: Final = 48  # what the recogniser was trained on
CHANNELS: Final = 3
WIDTH_UNIT_PX: Final = 16  # see benchmarks/LOG.md: fewer shapes against less padding
MAX_WIDTH_PX: Final = 3200  # a longer line is squeezed into it; about 300 characters
LEAST_WIDTH_PX: Final = 16
LEAST_SIDE_PX: Final = 3.0  # of a box on the page; less holds no character
PADDING: Final = 127  # the middle of the recogniser's range, as in its training

_MARGIN_PX: Final = 4  # what cubic interpolation reads around a quad, and a little more
_STRAIGHT_PX: Final = 0.75  # a box that leans less than this is cut without turning


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """How a line will be cut: its quad, clockwise from where reading starts."""

    quad: NDArray[np.float32]
    tall: bool
    text_width: int
    width: int

    @property
    def size(self) -> int:
        """Return the strip's bytes."""
        return HEIGHT_PX * self.width * CHANNELS


def plan(corners: NDArray[np.float32], *, tall: bool) -> Cutting:
    """Return how to cut a box (clockwise from the top left, page pixels).

    A tall one is turned a quarter counter-clockwise: its right side becomes the top.
    Widths are a function of the box alone.
    """
    quad = np.roll(corners, -1, axis=0) if tall else corners
    along, down = _size(quad)
    text_width = min(MAX_WIDTH_PX, max(1, math.ceil(HEIGHT_PX * along / down)))
    units = -(-max(text_width, LEAST_WIDTH_PX) // WIDTH_UNIT_PX)
    return Cutting(quad=quad, tall=tall, text_width=text_width, width=units * WIDTH_UNIT_PX)


def cut(page: NDArray[np.uint8], cuttings: Sequence[Cutting]) -> NDArray[np.uint8]:
    """Return the strips, one after the other, as bytes."""
    strips = np.full(sum(cutting.size for cutting in cuttings), PADDING, np.uint8)
    offset = 0
    for cutting in cuttings:
        strip = strips[offset : offset + cutting.size].reshape(HEIGHT_PX, cutting.width, CHANNELS)
        strip[:, : cutting.text_width] = _cut_one(page, cutting)
        offset += cutting.size
    return strips


def _cut_one(page: NDArray[np.uint8], cutting: Cutting) -> NDArray[np.uint8]:
    upright = _slice(page, cutting) if _is_straight(cutting.quad) else _warp(page, cutting.quad)
    return _resized(upright, cutting.text_width)


def _slice(page: NDArray[np.uint8], cutting: Cutting) -> NDArray[np.uint8]:
    height, width, _ = page.shape
    low, high = np.rint(cutting.quad.min(axis=0)), np.rint(cutting.quad.max(axis=0))
    left, top = min(int(low[0]), width - 1), min(int(low[1]), height - 1)
    part = page[top : max(top + 1, int(high[1])), left : max(left + 1, int(high[0]))]
    if not cutting.tall:
        return part
    return _u8(cv2.rotate(np.ascontiguousarray(part), cv2.ROTATE_90_COUNTERCLOCKWISE))


def _warp(page: NDArray[np.uint8], quad: NDArray[np.float32]) -> NDArray[np.uint8]:
    part, origin = _around(page, quad)
    along, down = _size(quad)
    target = np.array([(0, 0), (along, 0), (along, down), (0, down)], np.float32)
    matrix = cv2.getPerspectiveTransform(quad - origin, target)
    warped = cv2.warpPerspective(
        part, matrix, (along, down), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return _u8(warped)


def _around(
    page: NDArray[np.uint8], quad: NDArray[np.float32]
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return the part of the page that a quad needs, and where it begins.

    OpenCV's warps take no picture with a side above 32,767 pixels; a long strip has one.
    """
    height, width, _ = page.shape
    low = np.maximum(np.floor(quad.min(axis=0)).astype(int) - _MARGIN_PX, 0)
    high = np.minimum(np.ceil(quad.max(axis=0)).astype(int) + _MARGIN_PX, (width, height))
    part = page[low[1] : max(low[1] + 1, high[1]), low[0] : max(low[0] + 1, high[0])]
    return part, low.astype(np.float32)


def _resized(upright: NDArray[np.uint8], text_width: int) -> NDArray[np.uint8]:
    return _u8(cv2.resize(upright, (text_width, HEIGHT_PX), interpolation=cv2.INTER_LINEAR))


def _size(quad: NDArray[np.float32]) -> tuple[int, int]:
    """Return a quad's length along the reading direction and its height, whole pixels."""
    top, right, bottom, left = np.linalg.norm(np.roll(quad, -1, axis=0) - quad, axis=1)
    return max(1, int(max(top, bottom))), max(1, int(max(left, right)))


def _is_straight(quad: NDArray[np.float32]) -> bool:
    lean = np.abs(np.roll(quad, -1, axis=0) - quad).min(axis=1)
    return bool(lean.max() < _STRAIGHT_PX)


def _u8(image: cv2.typing.MatLike) -> NDArray[np.uint8]:
    return image.astype(np.uint8, copy=False)
