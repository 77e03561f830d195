"""PDF pages as pixels, through PDFium; the only file that knows pypdfium2.

PDFium is not thread-safe: one worker, one thread. JavaScript never runs: forms are
initialised (so that they are drawn) only in a PDFium built without an engine for it.
"""

import ctypes
import math
from typing import Any, Final

import numpy as np
import pypdfium2  # type: ignore[import-untyped]  # it has no types
import pypdfium2.raw as pdfium  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray
from pypdfium2.version import PDFIUM_INFO  # type: ignore[import-untyped]  # it has no types

from pagemill.errors import BadInput, DamagedInput, Defect, EncryptedDocument
from pagemill.stages.frames import check_pages
from pagemill.stages.pdf_fonts import StandInFonts

SCALE: Final = 2.0  # 144 dots an inch; a PDF's unit is 1/72 inch
# A0 at 144 dpi has 32 million. A PDF names any page size in a few bytes, and drawing
# an enormous one takes seconds and a third of a worker's memory for nothing.
MOST_PIXELS: Final = 36_000_000

_ERRORS: Final = (pypdfium2.PdfiumError, ValueError, OverflowError, ctypes.ArgumentError)


class PdfDocument:
    """An open PDF."""

    def __init__(self, content: bytes, password: str | None) -> None:
        """Open `content`, which is kept as long as the document is.

        Raises:
            EncryptedDocument: no password, or not the right one.
            DamagedInput: it is no PDF that PDFium can read.

        """
        self._pdf = _open(content, password)
        self._fonts = StandInFonts()

    def count(self, *, max_pages: int, max_pixels: int) -> int:
        """Return the number of pages; their size never refuses them, see `read`.

        Raises:
            TooManyPages: more than `max_pages`.

        """
        del max_pixels
        pages = len(self._pdf)
        check_pages(pages, max_pages)
        return pages

    def read(self, index: int, *, max_pixels: int) -> NDArray[np.uint8]:
        """Return a page, (height, width, 3) RGB on white, turned as its /Rotate says.

        Annotations and filled-in forms are drawn. A page too large for `max_pixels`
        or `MOST_PIXELS` at 144 dpi is drawn at less.

        Raises:
            DamagedInput: the page cannot be loaded or drawn.

        """
        self._fonts.settle()
        try:
            page = self._pdf[index]
        except _ERRORS as error:
            message = f"Page {index + 1} of the PDF is damaged: {error}"
            raise DamagedInput(message) from error
        try:
            return _render(page, min(max_pixels, MOST_PIXELS))
        except _ERRORS as error:
            message = f"Page {index + 1} of the PDF cannot be drawn: {error}"
            raise DamagedInput(message) from error
        finally:
            page.close()

    def close(self) -> None:
        """Free what PDFium holds."""
        self._pdf.close()


def check() -> None:
    """Draw a known page: a red square in the lower left quarter of a white one.

    Raises:
        Defect: the pixels are not those.

    """
    document = PdfDocument(_known_page(), None)
    page = document.read(0, max_pixels=10_000)
    document.close()
    expected = np.full((40, 40, 3), 255, np.uint8)
    expected[20:, :20] = (255, 0, 0)
    if not np.array_equal(page, expected):
        message = "PDFium draws a known page wrong"
        raise Defect(message)


def _known_page() -> bytes:
    draw = b"1 0 0 rg 0 0 10 10 re f"
    return (
        b"%%PDF-1.4\n"
        b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        b"2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
        b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 20 20]/Contents 4 0 R>>endobj\n"
        b"4 0 obj<</Length %d>>stream\n%b\nendstream endobj\n"
        b"trailer<</Root 1 0 R>>\n%%%%EOF" % (len(draw), draw)
    )


# Any: pypdfium2 has no types.
def _open(content: bytes, password: str | None) -> Any:
    try:
        document = pypdfium2.PdfDocument(content, password=password)
        if "V8" not in PDFIUM_INFO.flags:
            document.init_forms()
    except pypdfium2.PdfiumError as error:
        raise _refusal(error, password) from error
    except ValueError as error:  # a password that is no text
        raise _refusal(error, password, code=pdfium.FPDF_ERR_PASSWORD) from error
    return document


def _refusal(error: Exception, password: str | None, *, code: int | None = None) -> BadInput:
    code = getattr(error, "err_code", None) if code is None else code
    if code == pdfium.FPDF_ERR_PASSWORD and not password:
        return EncryptedDocument("The PDF is encrypted; give its password in the field `password`.")
    if code == pdfium.FPDF_ERR_PASSWORD:
        return EncryptedDocument("The password in the field `password` does not open this PDF.")
    if code == pdfium.FPDF_ERR_SECURITY:
        return EncryptedDocument(
            "The PDF is encrypted in a way that cannot be read, password or not."
        )
    return DamagedInput(f"The PDF is damaged: {error}")


# Any: pypdfium2 has no types.
def _render(page: Any, max_pixels: int) -> NDArray[np.uint8]:
    scale = fitting_scale(*page.get_size(), max_pixels=max_pixels)
    bitmap = page.render(scale=scale, rev_byteorder=True, draw_annots=True, may_draw_forms=True)
    try:
        if not bitmap.raw:  # pypdfium2 does not look; its buffer would be a black page
            message = "no memory for its pixels"
            raise ValueError(message)
        pixels = np.frombuffer(bitmap.buffer, np.uint8)  # a view; it keeps the buffer alive
    finally:
        bitmap.close()
    return pixels.reshape(bitmap.height, bitmap.width, 3)


def fitting_scale(width: float, height: float, *, max_pixels: int) -> float:
    """Return `SCALE`, or less where a page of these points would exceed `max_pixels`.

    Sides are rounded up to whole pixels, as pypdfium2 does.

    Raises:
        ValueError: the page has no area.

    """
    if not (0 < width < math.inf and 0 < height < math.inf):
        message = f"its size is {width} x {height}"
        raise ValueError(message)
    scale = min(SCALE, math.sqrt(max_pixels / (width * height)))
    while scale > 0 and math.ceil(width * scale) * math.ceil(height * scale) > max_pixels:
        scale *= 0.99
    return scale
