"""How many frames an image has and how large they get, found without decoding.

Checked here, before a decoder allocates anything.
"""

from dataclasses import dataclass
from typing import Final

from PIL import Image

from pagemill.errors import TooManyPages, TooManyPixels

# What a block of a GIF begins with.
_IMAGE: Final = 0x2C
_EXTENSION: Final = 0x21
_TRAILER: Final = 0x3B


def check_pixels(width: int, height: int, max_pixels: int) -> None:
    """Refuse an image whose header claims more than `max_pixels`.

    Raises:
        TooManyPixels: names both.

    """
    if width * height > max_pixels:
        message = (
            f"The page has {width} x {height} pixels, more than the {max_pixels} "
            "that `limits.max_pixels` allows."
        )
        raise TooManyPixels(message)


def check_pages(pages: int, max_pages: int, *, more: str = "") -> None:
    """Refuse a document of more than `max_pages`; `more` says that `pages` is a lower bound.

    Raises:
        TooManyPages: names both.

    """
    if pages > max_pages:
        message = f"The document has {more}{pages} pages; `limits.max_pages` allows {max_pages}."
        raise TooManyPages(message)


def count_tiff(image: Image.Image, *, max_pages: int, max_pixels: int) -> int:
    """Return a TIFF's frames, each of which was measured; stops where a limit is passed.

    Raises:
        TooManyPages, TooManyPixels: as they say.

    """
    frames = 0
    while _has_frame(image, frames):
        frames += 1
        check_pages(frames, max_pages, more="at least ")
        check_pixels(*image.size, max_pixels)
    return frames


def _has_frame(image: Image.Image, index: int) -> bool:
    try:
        image.seek(index)
    except EOFError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class GifExtent:
    """A GIF's frames and the canvas that they need: a frame may stand out of the screen."""

    frames: int
    width: int
    height: int


def measure_gif(content: bytes) -> GifExtent:
    """Walk over a GIF's blocks; a truncated one is measured as far as it goes.

    Pillow's own count copies every frame's position by seeking, and grows its canvas
    with the frames before it can be asked how large it became.
    Source: the GIF89a specification; bytes between blocks are skipped, as Pillow does.
    """
    width, height = _u16(content, 6), _u16(content, 8)
    frames = 0
    at = 13 + _palette_bytes(content, 10)
    while at < len(content) and content[at] != _TRAILER:
        if content[at] == _IMAGE:
            frames += 1
            width = max(width, _u16(content, at + 1) + _u16(content, at + 5))
            height = max(height, _u16(content, at + 3) + _u16(content, at + 7))
            at = _after_blocks(content, at + 11 + _palette_bytes(content, at + 9))
        elif content[at] == _EXTENSION:  # then its label
            at = _after_blocks(content, at + 2)
        else:
            at += 1
    return GifExtent(frames=frames, width=width, height=height)


def _u16(content: bytes, at: int) -> int:
    return int.from_bytes(content[at : at + 2], "little")


def _palette_bytes(content: bytes, at: int) -> int:
    flags = content[at] if at < len(content) else 0
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _after_blocks(content: bytes, at: int) -> int:
    while at < len(content) and content[at]:
        at += content[at] + 1
    return at + 1
