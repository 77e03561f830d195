"""From the detector's probability map to boxes around lines of text.

Source: Liao et al., "Real-time Scene Text Detection with Differentiable
Binarization" (2020), with PaddleOCR's thresholds. A box there is the smallest
rectangle around an offset polygon; the offset of a rectangle is that rectangle
grown on each side, so no polygon clipping is needed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from pagemill.stages.wire import Tile

MOST_BOXES: Final = 3000  # of one page; a page of noise has no more lines than that
LEAST_SIDE_PX: Final = 3.0  # of the core of a line, as the detector sees it
LEAST_GROWN_PX: Final = 5.0  # of the line around it
_DILATION: Final = np.ones((2, 2), np.uint8)  # joins what a line's gaps tear apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Of a pixel's probability, of a box's mean, and how far a box is grown."""

    pixel: float
    box: float
    unclip_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle around a line: its corners clockwise from the top left, (4, 2), and its score."""

    corners: NDArray[np.float32]
    score: float


def merge(maps: Sequence[NDArray[np.uint8]], tiles: Sequence[Tile]) -> NDArray[np.uint8]:
    """Return one map from those of a grid of tiles; a seam is at the middle of an overlap."""
    if len(maps) == 1:
        return maps[0]
    columns = _kept({(tile.x, tile.width) for tile in tiles})
    rows = _kept({(tile.y, tile.height) for tile in tiles})
    width = max(end for _, end in columns.values())
    height = max(end for _, end in rows.values())
    whole = np.zeros((height, width), np.uint8)
    for part, tile in zip(maps, tiles, strict=True):
        left, right = columns[tile.x]
        top, bottom = rows[tile.y]
        whole[top:bottom, left:right] = part[
            top - tile.y : bottom - tile.y, left - tile.x : right - tile.x
        ]
    return whole


def _kept(spans: set[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Return, by where a tile starts, what of it is kept along one axis."""
    ordered = sorted(spans)
    seams = [(start + length + after) // 2 for (start, length), (after, _) in pairwise(ordered)]
    starts = [ordered[0][0], *seams]
    ends = [*seams, sum(ordered[-1])]
    return {
        span[0]: kept for span, kept in zip(ordered, zip(starts, ends, strict=True), strict=True)
    }


def find_boxes(probability: NDArray[np.uint8], thresholds: Thresholds) -> list[Box]:
    """Return the boxes of a map, 255 for certainty, in the map's pixels and no special order."""
    level = math.floor(255 * thresholds.pixel)
    _, bitmap = cv2.threshold(probability, level, 255, cv2.THRESH_BINARY)
    contours, _ = cv2.findContours(
        cv2.dilate(bitmap, _DILATION), cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE
    )
    boxes = (_box(contour, probability, thresholds) for contour in contours[:MOST_BOXES])
    return [box for box in boxes if box is not None]


def _box(
    contour: cv2.typing.MatLike, probability: NDArray[np.uint8], thresholds: Thresholds
) -> Box | None:
    centre, (width, height), angle = cv2.minAreaRect(contour)
    if min(width, height) < LEAST_SIDE_PX:
        return None
    score = _mean_inside(probability, cv2.boxPoints((centre, (width, height), angle)))
    if score < thresholds.box:
        return None
    grow = width * height * thresholds.unclip_ratio / (width + height)  # both sides together
    grown = (width + grow, height + grow)
    if min(grown) < LEAST_GROWN_PX:
        return None
    corners = cv2.boxPoints((centre, grown, angle))
    return Box(corners=clockwise(corners.astype(np.float32)), score=score)


def _mean_inside(probability: NDArray[np.uint8], corners: cv2.typing.MatLike) -> float:
    height, width = probability.shape
    low, high = np.floor(corners.min(axis=0)), np.ceil(corners.max(axis=0))
    left, top = (max(0, int(value)) for value in low)
    right, bottom = min(width - 1, int(high[0])), min(height - 1, int(high[1]))
    mask = np.zeros((bottom - top + 1, right - left + 1), np.uint8)
    cv2.fillPoly(mask, [(corners - (left, top)).astype(np.int32)], 1)
    return cv2.mean(probability[top : bottom + 1, left : right + 1], mask)[0] / 255


def clockwise(corners: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a rectangle's corners clockwise on the screen, from the top left one.

    That is the upper of the two leftmost, so a line that leans by up to 45 degrees
    starts where its reading does.
    """
    by_x = corners[np.argsort(corners[:, 0], kind="stable")]
    left = by_x[:2][np.argsort(by_x[:2, 1], kind="stable")]
    right = by_x[2:][np.argsort(by_x[2:, 1], kind="stable")]
    return np.stack([left[0], right[0], right[1], left[1]])
