"""What pipelines ask of stages and what stages answer; msgpack on the wire.

Buffers travel beside these structs, in the order that each one names.
"""

from typing import Literal

import msgspec


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """Ask what a document is. Buffers: the document's bytes."""

    password: str | None = None
    max_pixels: int
    max_pages: int


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A document that can be read: what it is, and how many pages it has."""

    kind: Literal["image", "pdf", "tiff"]
    pages: int


class ReadPage(msgspec.Struct, frozen=True, kw_only=True):
    """Decode or render one page. Buffers: the document's bytes.

    The detector's input is the page scaled so that its long side is at most
    `side_px`, never enlarged, never so small that a long strip's or a huge page's
    text is lost; `side_type` "min" and "max" are PaddleX's textDetLimitType.
    """

    page: int
    password: str | None = None
    max_pixels: int
    side_px: int | None = None
    side_type: Literal["min", "max"] | None = None


class Tile(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A part of the detector's image, in its pixels; sides are multiples of 32."""

    x: int
    y: int
    width: int
    height: int


class PageRead(msgspec.Struct, frozen=True, kw_only=True):
    """A page and the plan of its detection.

    Buffers: the page, (height, width, 3) uint8 RGB; the detector's image,
    (det_height, det_width, 3) uint8 RGB, padded to multiples of 32.
    """

    width: int
    height: int
    det_width: int
    det_height: int
    scaled_width: int  # without the padding
    scaled_height: int
    tiles: tuple[Tile, ...]


class Detect(msgspec.Struct, frozen=True, kw_only=True):
    """Find text in one tile. Buffers: the detector's image."""

    det_width: int
    det_height: int
    tile: Tile


class Detected(msgspec.Struct, frozen=True, kw_only=True):
    """A tile was searched. Buffers: its text probability, (height, width) uint8, 255 for certainty."""


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """Find the lines and cut them out. Buffers: the page; then a map for each tile.

    Where tiles overlap, each keeps its half.
    """

    page: PageRead
    threshold: float = 0.3
    box_threshold: float = 0.5
    unclip_ratio: float = 1.6


class Strip(msgspec.Struct, frozen=True, kw_only=True):
    """One line: where it stands on the page and in the strips' buffer.

    `polygon` is 4 points clockwise from the corner where reading starts, in page
    pixels. The strip is (48, width, 3) uint8 RGB at `offset`; `text_width` of its columns are text,
    the rest is padding. `tall` lines were turned a quarter counter-clockwise.
    """

    polygon: tuple[tuple[float, float], ...]
    score: float
    offset: int
    width: int
    text_width: int
    tall: bool


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of a page in reading order. Buffers: the strips (none if no line)."""

    strips: tuple[Strip, ...]


class Recognize(msgspec.Struct, frozen=True, kw_only=True):
    """Read one strip. Buffers: the strips. `flip` reads it upside down."""

    offset: int
    width: int
    text_width: int
    flip: bool = False
    columns: bool = False


class Recognized(msgspec.Struct, frozen=True, kw_only=True):
    """A strip's text and its mean probability; 0 and "" when there is none.

    `columns`, on request: for each character, its centre as a fraction of the
    strip's text width, and its probability.
    """

    text: str
    confidence: float
    columns: tuple[tuple[float, float], ...] | None = None


class LineAngle(msgspec.Struct, frozen=True, kw_only=True):
    """Ask about one strip. Buffers: the strips."""

    offset: int
    width: int
    text_width: int


class LineAngled(msgspec.Struct, frozen=True, kw_only=True):
    """How likely it is that the strip is upside down."""

    flipped: float


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """Picture a page and its regions. Buffers: the page, (height, width, 3) uint8 RGB.

    The pictures' long side is at most `side_px`.
    """

    width: int
    height: int
    polygons: tuple[tuple[tuple[float, float], ...], ...]
    side_px: int


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """Pictures were made. Buffers: the page with its regions outlined; the page. JPEG."""
