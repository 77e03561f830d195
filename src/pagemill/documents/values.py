"""What a document is once it has been read: plain values, no behaviour.

Coordinates are pixels of the page as it was decoded (EXIF turn applied) or
rendered (PDF: 144 dpi), x to the right, y down, (0, 0) the top left corner.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["image", "pdf", "tiff"]
Turn = Literal[0, 90, 180, 270]
Point = tuple[float, float]
Polygon = tuple[Point, ...]
Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A run of characters without a space; CJK characters stand alone."""

    text: str
    confidence: float
    polygon: Polygon


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of text.

    `polygon` has four points, clockwise from the corner where reading starts;
    `confidence` is the mean probability of its characters, in [0, 1].
    """

    text: str
    confidence: float
    polygon: Polygon
    words: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """A page as people look at it, JPEG: with its regions outlined, and as it was read."""

    outlined: bytes
    plain: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page, its lines in reading order.

    `index` counts from 0 in the document. `turn` is the clockwise angle by which
    the page must be turned to stand upright; coordinates are of the page as given.
    `regions` are all detected polygons, `lines` those whose text was kept.
    """

    index: int
    width: int
    height: int
    turn: Turn
    lines: tuple[Line, ...]
    regions: tuple[Polygon, ...]
    pictures: Pictures | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document that was read: `pages` are those asked for, of `total_pages`."""

    kind: Kind
    total_pages: int
    pages: tuple[Page, ...]


def bounding_box(polygon: Polygon) -> Box:
    """Return (left, top, right, bottom) of `polygon`."""
    xs, ys = zip(*polygon, strict=True)
    return min(xs), min(ys), max(xs), max(ys)
