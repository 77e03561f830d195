"""A document's type comes from its bytes."""

import pytest

from pagemill.errors import EmptyBody, UnsupportedType
from pagemill.stages.sniff import Type, sniff
from tests.stages import documents

EXPECTED = {
    "jpeg": Type.JPEG,
    "png": Type.PNG,
    "webp": Type.WEBP,
    "bmp": Type.BMP,
    "gif": Type.GIF,
    "tiff": Type.TIFF,
    "heic": Type.HEIC,
    "avif": Type.AVIF,
    "pdf": Type.PDF,
}


def test_every_type_is_known_by_its_bytes() -> None:
    for name, content in documents.one_of_each().items():
        assert sniff(memoryview(content)) is EXPECTED[name.partition("_")[0]], name


def test_a_pdf_may_begin_with_rubbish() -> None:
    assert sniff(memoryview(b"\0" * 1000 + b"%PDF-1.4")) is Type.PDF


@pytest.mark.parametrize("brands", [b"mif1\0\0\0\0mif1heic", b"heic\0\0\0\0"])
def test_a_heic_is_known_by_any_of_its_brands(brands: bytes) -> None:
    head = (8 + len(brands)).to_bytes(4, "big") + b"ftyp" + brands
    assert sniff(memoryview(head)) is Type.HEIC


def test_no_bytes_are_an_empty_body() -> None:
    with pytest.raises(EmptyBody):
        sniff(memoryview(b""))


@pytest.mark.parametrize(
    "content",
    [
        b"BMW is a make of cars",
        b"\0\0\1\0ico",
        b"GIF",
        b"{}",
        b"\0\0\0\x18ftypisom\0\0\0\0",
        b"\xff",
    ],
)
def test_anything_else_is_refused_and_told_what_is_read(content: bytes) -> None:
    with pytest.raises(UnsupportedType, match="JPEG, PNG, GIF, WebP, BMP, TIFF, HEIC, AVIF, PDF"):
        sniff(memoryview(content))
