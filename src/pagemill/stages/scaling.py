"""Pure: how large the detector sees a page, and in which tiles."""

import math
from dataclasses import dataclass
from typing import Final, Literal

from pagemill.stages.wire import Tile

UNIT_PX: Final = 32  # the detector halves its input five times
LONG_SIDE_PX: Final = 1280
SHORT_SIDE_PX: Final = 480  # a long strip's width is not shrunk below it
LEAST_SCALE: Final = 0.30  # of a huge page: smaller, 300-dpi body text is lost
MAX_PIXELS: Final = 12_000_000  # bounds the time and memory of one page's detection
MAX_LONG_SIDE_PX: Final = 4000  # of a page that "min" enlarges; PaddleX's max_side_limit

WHOLE_PIXELS: Final = 300_000  # up to here a page is not worth sharing between cores
TILE_PIXELS: Final = 1_000_000
TILE_SIDE_PX: Final = 2000  # of a tile's side across the page's long axis
OVERLAP_PX: Final = 96  # at least, at each seam: two lines of text as the detector sees it


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A page's size for the detector, without and with padding, and its tiles.

    The image stands at the top left of the padded area; tiles cover that area, row
    by row, each overlapping its neighbours by at least `OVERLAP_PX`.
    """

    scaled_width: int
    scaled_height: int
    det_width: int
    det_height: int
    tiles: tuple[Tile, ...]


def plan(
    width: int,
    height: int,
    *,
    side_px: int | None = None,
    side_type: Literal["min", "max"] | None = None,
) -> Plan:
    """Return how a page of `width` x `height` is scaled and tiled; a function of these alone.

    Without `side_type`, the long side becomes at most `side_px` (or `LONG_SIDE_PX`),
    but a page is neither enlarged nor shrunk past legibility. With it, the rule is
    PaddleX's textDetLimitType. `MAX_PIXELS` bounds all of them.
    """
    wanted = _wanted_scale(width, height, side_px or LONG_SIDE_PX, side_type)
    scale = min(wanted, _most_scale(width, height))
    scaled_width, scaled_height = (max(1, round(side * scale)) for side in (width, height))
    det_width, det_height = _padded(scaled_width), _padded(scaled_height)
    return Plan(
        scaled_width=scaled_width,
        scaled_height=scaled_height,
        det_width=det_width,
        det_height=det_height,
        tiles=_tiles(det_width, det_height),
    )


def _wanted_scale(
    width: int, height: int, side_px: int, side_type: Literal["min", "max"] | None
) -> float:
    short, long = sorted((width, height))
    if side_type == "max":
        return min(1.0, side_px / long)
    if side_type == "min":
        return min(max(1.0, side_px / short), MAX_LONG_SIDE_PX / long)
    return max(min(1.0, side_px / long), min(1.0, SHORT_SIDE_PX / short), LEAST_SCALE)


def _most_scale(width: int, height: int) -> float:
    """Return the largest scale within `MAX_PIXELS`; a thin page is padded to a unit."""
    by_area = math.sqrt(MAX_PIXELS / (width * height))
    return min(by_area, MAX_PIXELS / (UNIT_PX * max(width, height)))


def _padded(side_px: int) -> int:
    return -(-side_px // UNIT_PX) * UNIT_PX


def _tiles(width: int, height: int) -> tuple[Tile, ...]:
    """Split along the long axis so that cores can share the page; wide ones across too."""
    count = 1 if width * height <= WHOLE_PIXELS else max(2, -(-width * height // TILE_PIXELS))
    across = -(-min(width, height) // TILE_SIDE_PX)
    along = -(-count // across)
    columns, rows = (along, across) if width >= height else (across, along)
    return tuple(
        Tile(x=x, y=y, width=tile_width, height=tile_height)
        for y, tile_height in _spans(height, rows)
        for x, tile_width in _spans(width, columns)
    )


def _spans(side_px: int, count: int) -> list[tuple[int, int]]:
    """Return `count` equal (start, length) that cover a side, all multiples of a unit.

    In whole units t >= (side + (count-1) overlap) / count, so the mean step is at most
    t - overlap, and a whole-unit step is never more than that either.
    """
    if count == 1:
        return [(0, side_px)]
    side, overlap = side_px // UNIT_PX, OVERLAP_PX // UNIT_PX
    length = min(side, -(-(side + (count - 1) * overlap) // count))
    starts = (index * (side - length) // (count - 1) for index in range(count))
    return [(start * UNIT_PX, length * UNIT_PX) for start in starts]
