"""One state of PDFium's stand-in fonts, whatever was drawn before.

A font that is neither embedded nor installed is drawn with one of two built-in
multiple-master faces, which PDFium bends to each glyph's width and weight and never
bends back. A font without /Widths is then measured as the last page of any document
left the face: the same page came out in seven ways in one process. Drawing a known
glyph in both faces before each page leaves one; it takes half a millisecond.
"""

from typing import Final

import pypdfium2  # type: ignore[import-untyped]  # it has no types

_SIZES: Final = 4000  # PDFium caches a glyph of a size while a document is open


class StandInFonts:
    """Puts PDFium's stand-in fonts into one state, again and again."""

    def __init__(self) -> None:
        """Begin at the first size."""
        self._turn = 0

    def settle(self) -> None:
        """Draw a known glyph with each, in a size that is in no cache."""
        self._turn = (self._turn + 1) % _SIZES
        document = pypdfium2.PdfDocument(_page(size=8 + self._turn / 100))
        page = document[0]
        page.render(scale=1).close()
        page.close()
        document.close()


def _page(*, size: float) -> bytes:
    draw = f"BT /F1 {size:.2f} Tf 1 1 Td (A) Tj /F2 {size:.2f} Tf (A) Tj ET"
    fonts = f"/F1 {_font('Sans', flags=32)}/F2 {_font('Serif', flags=34)}"
    return (
        "%PDF-1.4\n"
        "1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        "2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
        "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 20 12]"
        f"/Resources<</Font<<{fonts}>>>>/Contents 4 0 R>>endobj\n"
        f"4 0 obj<</Length {len(draw)}>>stream\n{draw}\nendstream endobj\n"
        "trailer<</Root 1 0 R>>\n%%EOF"
    ).encode()


def _font(style: str, *, flags: int) -> str:
    name = f"PagemillStandIn{style}"
    return (
        f"<</Type/Font/Subtype/TrueType/BaseFont/{name}/FirstChar 65/LastChar 65/Widths[500]"
        f"/FontDescriptor<</Type/FontDescriptor/FontName/{name}/Flags {flags}>>>>"
    )
