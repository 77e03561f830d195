"""What a document is, by its first bytes; names and media types are not asked."""

import enum
from typing import Final

from pagemill.errors import EmptyBody, UnsupportedType


class Type(enum.StrEnum):
    """A document type that pagemill reads; the value is its name for people."""

    JPEG = "JPEG"
    PNG = "PNG"
    GIF = "GIF"
    WEBP = "WebP"
    BMP = "BMP"
    TIFF = "TIFF"
    HEIC = "HEIC"
    AVIF = "AVIF"
    PDF = "PDF"


_MAGIC: Final = {
    b"\xff\xd8\xff": Type.JPEG,
    b"\x89PNG\r\n\x1a\n": Type.PNG,
    b"GIF87a": Type.GIF,
    b"GIF89a": Type.GIF,
    b"II*\0": Type.TIFF,
    b"MM\0*": Type.TIFF,
    b"II+\0": Type.TIFF,  # BigTIFF
    b"MM\0+": Type.TIFF,
}

_BRANDS: Final = {
    **dict.fromkeys((b"avif", b"avis"), Type.AVIF),
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis"), Type.HEIC),
}

# Sizes of the header that follows "BM" files' own 14 bytes; two letters alone are
# too weak a sign. Source: Microsoft, "Bitmap Header Types", and OS/2 2.x's 16 and 64.
_BMP_HEADERS: Final = frozenset({12, 16, 40, 52, 56, 64, 108, 124})

_PDF_WITHIN = 1024  # bytes of rubbish that PDF readers forgive before "%PDF-"


def sniff(document: memoryview) -> Type:
    """Return the type of a document.

    Raises:
        EmptyBody: there are no bytes.
        UnsupportedType: it is none of the types that are read.

    """
    head = bytes(document[:_PDF_WITHIN])
    if not head:
        message = "The document is empty: it has no bytes."
        raise EmptyBody(message)
    found = _by_magic(head) or _by_container(head)
    if found is None:
        message = f"The document is none of the types that are read: {', '.join(Type)}."
        raise UnsupportedType(message)
    return found


def _by_magic(head: bytes) -> Type | None:
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def _by_container(head: bytes) -> Type | None:
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return Type.WEBP
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return Type.BMP
    if head[4:8] == b"ftyp":
        return _by_brand(head)
    return Type.PDF if b"%PDF-" in head else None


def _by_brand(head: bytes) -> Type | None:
    """Return HEIC or AVIF: the major brand, else the first compatible one that says."""
    size = int.from_bytes(head[:4], "big")
    brands = (head[start : start + 4] for start in (8, *range(16, min(size, len(head)), 4)))
    return next((_BRANDS[brand] for brand in brands if brand in _BRANDS), None)
