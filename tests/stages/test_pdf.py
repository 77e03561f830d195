"""PDF pages are drawn at 144 dpi, on white, the same each time."""

import numpy as np
import pytest
from numpy.typing import NDArray

from pagemill.errors import DamagedInput, EncryptedDocument, TooManyPages
from pagemill.stages import pdf
from pagemill.stages.pdf import PdfDocument, fitting_scale
from tests.stages import documents

LIMIT = 1_000_000
RED, WHITE = [255, 0, 0], [255, 255, 255]


def read(content: bytes, index: int = 0, *, max_pixels: int = LIMIT) -> NDArray[np.uint8]:
    document = PdfDocument(content, None)
    page = document.read(index, max_pixels=max_pixels)
    document.close()
    return page


def test_a_page_is_rgb_on_white_at_two_pixels_a_point() -> None:
    page = read(documents.pdf())
    assert page.shape == (40, 40, 3)
    assert page.flags.c_contiguous
    assert page[30, 10].tolist() == RED
    assert page[10, 10].tolist() == WHITE


def test_rotate_is_applied() -> None:
    page = read(documents.pdf(size=(20, 30), extra="/Rotate 90"))
    assert page.shape == (40, 60, 3)
    assert page[10, 10].tolist() == RED


def test_annotations_and_forms_are_drawn() -> None:
    look = "<</Type/XObject/Subtype/Form/BBox[0 0 5 5]/Length 22>>stream\n1 0 0 rg 0 0 5 5 re f \nendstream "
    note = "<</Type/Annot/Subtype/Stamp/Rect[0 0 10 10]/F 4/AP<</N 101 0 R>>>>"
    field = (
        "<</Type/Annot/Subtype/Widget/FT/Tx/T(name)/V(x)/Rect[10 10 20 20]/F 4/AP<</N 101 0 R>>>>"
    )
    page = read(
        documents.pdf(
            [""],
            extra="/Annots[100 0 R 102 0 R]",
            catalog="/AcroForm<</Fields[102 0 R]>>",
            objects=[note, look, field],
        )
    )
    assert page[30, 10].tolist() == RED
    assert page[10, 30, 0] > page[10, 30, 1]  # the field, under PDFium's highlight if any


def test_a_page_too_large_is_drawn_smaller() -> None:
    page = read(documents.pdf(size=(200, 100)), max_pixels=5000)
    height, width, _ = page.shape
    assert 4500 <= height * width <= 5000
    assert width / height == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize(
    ("size", "max_pixels"), [((1e6, 1.0), 100), ((14_400, 14_400), 10**8), ((0.1, 0.1), 1)]
)
def test_no_page_exceeds_the_limit(size: tuple[float, float], max_pixels: int) -> None:
    scale = fitting_scale(*size, max_pixels=max_pixels)
    assert 0 < scale <= pdf.SCALE
    assert np.ceil(size[0] * scale) * np.ceil(size[1] * scale) <= max_pixels


@pytest.mark.parametrize("size", [(0, 10), (float("nan"), 10), (float("inf"), 10)])
def test_a_page_without_area_has_no_scale(size: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="size"):
        fitting_scale(*size, max_pixels=100)


def test_a_locked_pdf_names_the_field_and_opens_with_its_password() -> None:
    content = documents.locked_pdf("secret")
    for password in (None, ""):
        with pytest.raises(EncryptedDocument, match="give its password in the field `password`"):
            PdfDocument(content, password)
    for wrong in ("wrong", "\udcff"):
        with pytest.raises(EncryptedDocument, match="does not open"):
            PdfDocument(content, wrong)
    page = PdfDocument(content, "secret").read(0, max_pixels=LIMIT)
    assert page[30, 10].tolist() == [0, 0, 255]


def test_too_many_pages_are_refused() -> None:
    document = PdfDocument(documents.pdf(["", "", ""]), None)
    assert document.count(max_pages=3, max_pixels=1) == 3
    with pytest.raises(TooManyPages, match=r"3 pages; .* allows 2"):
        document.count(max_pages=2, max_pixels=1)


@pytest.mark.parametrize("content", [b"%PDF-1.4", b"%PDF-1.4\ntrailer<<>>", documents.pdf()[:60]])
def test_a_broken_pdf_is_damaged(content: bytes) -> None:
    with pytest.raises(DamagedInput, match="damaged"):
        PdfDocument(content, None)


def test_a_page_that_is_not_there_is_damaged() -> None:
    with pytest.raises(DamagedInput, match="Page 2"):
        PdfDocument(documents.pdf(), None).read(1, max_pixels=LIMIT)


def test_an_unknown_font_without_widths_looks_the_same_whatever_was_drawn_before() -> None:
    plain = documents.pdf(
        ["BT /F1 12 Tf 2 2 Td (Total 42) Tj ET", "BT /F1 12 Tf 2 2 Td (Amount) Tj ET"],
        size=(80, 20),
    )
    unknown = plain.replace(b"/Helvetica", b"/Foobartin")
    bold = plain.replace(b"/Helvetica", b"/Foo,Bold")
    first, second = read(unknown), read(unknown, 1)
    for other in (bold, plain, unknown):
        read(other)
        assert np.array_equal(read(unknown), first)
    document = PdfDocument(unknown, None)
    assert np.array_equal(document.read(1, max_pixels=LIMIT), second)
    assert np.array_equal(document.read(0, max_pixels=LIMIT), first)


def test_the_known_page_is_known() -> None:
    pdf.check()
