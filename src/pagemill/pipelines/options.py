"""What a caller may choose when a document is read."""

from dataclasses import dataclass
from typing import Final, Literal

from pagemill.errors import BadOption

_LONGEST_NUMBER: Final = 7  # digits; more is refused before it is parsed
_PAGES_LIMIT: Final = 100_000  # no document has more; bounds what "1-9999999999" allocates


@dataclass(frozen=True, slots=True, kw_only=True)
class OcrOptions:
    """Options of pipeline `ocr`; the defaults are the server's.

    `pages` are zero-based, ascending and without repeats; None means all. `page_limit`
    drops what is past it silently (PaddleX's contract).
    `orientation` "auto" turns pages that read badly, "off" reads them as they are,
    "model" asks the orientation model. `min_confidence` drops lines below it.
    """

    pages: tuple[int, ...] | None = None
    page_limit: int | None = None
    password: str | None = None
    orientation: Literal["auto", "off", "model"] = "auto"
    line_angle: bool = False
    words: bool = False
    pictures: bool = False
    min_confidence: float = 0.5
    det_side_px: int | None = None
    det_side_type: Literal["min", "max"] | None = None
    det_threshold: float = 0.3
    det_box_threshold: float = 0.5
    det_unclip_ratio: float = 1.6


def parse_pages(text: str) -> tuple[int, ...]:
    """Return the zero-based pages that `text` names, e.g. "1-3,7" (one-based).

    Raises:
        BadOption: not of that form, a page below 1, or absurdly many.

    """
    pages: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = (first, last) if dash else (first, first)
        if not all(_is_number(number) for number in numbers):
            message = f"`pages` is {text[:40]!r}; write it as 1-3,7."
            raise BadOption(message)
        start, end = map(int, numbers)
        if not 1 <= start <= end <= _PAGES_LIMIT:
            message = f"`pages` has the range {part.strip()}; pages count from 1, upwards."
            raise BadOption(message)
        pages.update(range(start - 1, end))
    return tuple(sorted(pages))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < _LONGEST_NUMBER
