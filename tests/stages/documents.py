"""Small documents of every type, made in memory."""

import hashlib
import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pillow_heif
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Page = NDArray[np.uint8]


def text_page(text: str, size: tuple[int, int] = (320, 120), *, font_px: int = 32) -> Page:
    """Return (height, width, 3): black `text` on white, from the top left."""
    image = Image.new("RGB", size, "white")
    font = ImageFont.load_default(font_px)
    ImageDraw.Draw(image).multiline_text((12, 12), text, fill="black", font=font)
    return np.asarray(image)


def corners(width: int = 48, height: int = 32) -> Page:
    """Return white with a red, green, blue and black quarter-size corner, clockwise from top left."""
    page = np.full((height, width, 3), 255, np.uint8)
    down, right = height // 4, width // 4
    page[:down, :right] = (255, 0, 0)
    page[:down, -right:] = (0, 255, 0)
    page[-down:, -right:] = (0, 0, 255)
    page[-down:, :right] = (0, 0, 0)
    return page


def encoded(page: Page | Image.Image, kind: str, **options: Any) -> bytes:
    """Return an image file of Pillow's format `kind`."""
    image = page if isinstance(page, Image.Image) else Image.fromarray(page)
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def jpeg(page: Page, *, orientation: int | None = None, mode: str = "RGB") -> bytes:
    """Return a JPEG without chroma subsampling."""
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    image = Image.fromarray(page).convert(mode)
    return encoded(image, "JPEG", quality=95, subsampling=0, exif=exif)


def png(page: Page) -> bytes:
    """Return a PNG of 8 bits a channel."""
    return encoded(page, "PNG")


def heic(page: Page) -> bytes:
    """Return a HEIC of the best quality."""
    out = io.BytesIO()
    pillow_heif.from_pillow(Image.fromarray(page)).save(out, quality=100, chroma=444)
    return out.getvalue()


def frames(pages: Sequence[Page], kind: str, **options: Any) -> bytes:
    """Return a GIF or TIFF of one frame a page."""
    first, *rest = [Image.fromarray(page) for page in pages]
    return encoded(first, kind, save_all=True, append_images=rest, **options)


def raw_png(rows: Sequence[bytes], width: int, *, depth: int, colour: int) -> bytes:
    """Return a PNG of these bytes a row; `colour` is PNG's own number of a colour type."""
    header = struct.pack(">IIBBBBB", width, len(rows), depth, colour, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    chunks = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def pdf(
    pages: Sequence[str] = ("1 0 0 rg 0 0 10 10 re f",),
    *,
    size: tuple[float, float] = (20, 20),
    extra: str = "",
    catalog: str = "",
    objects: Sequence[str] = (),
) -> bytes:
    """Return a PDF of one page a content stream, bare of any cross-reference table.

    `extra` goes into each page's dictionary, `catalog` into the catalogue; `objects`
    are numbered from 100. "Helvetica" is there as /F1.
    """
    kids = " ".join(f"{10 + 2 * index} 0 R" for index in range(len(pages)))
    parts = [
        "%PDF-1.7",
        f"1 0 obj<</Type/Catalog/Pages 2 0 R{catalog}>>endobj",
        f"2 0 obj<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>endobj",
        "3 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj",
    ]
    for index, content in enumerate(pages):
        number = 10 + 2 * index
        parts += [
            f"{number} 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 {size[0]} {size[1]}]",
            f"/Resources<</Font<</F1 3 0 R>>>>/Contents {number + 1} 0 R{extra}>>endobj",
            f"{number + 1} 0 obj<</Length {len(content)}>>stream\n{content}\nendstream endobj",
        ]
    parts += [f"{100 + index} 0 obj{body}endobj" for index, body in enumerate(objects)]
    return "\n".join([*parts, "trailer<</Root 1 0 R>>", "%%EOF"]).encode("latin-1")


# Pads passwords. Source: PDF 1.7, 7.6.3.3.
_PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")


def locked_pdf(password: str) -> bytes:
    """Return a PDF of one 20 x 20 page that opens with `password` alone (RC4, 40 bits)."""
    padded = (password.encode() + _PADDING)[:32]
    owner = _rc4(_md5(padded)[:5], padded)
    permissions = struct.pack("<i", -4)
    key = _md5(padded + owner + permissions + b"\0")[:5]
    user = _rc4(key, _PADDING)
    content = _rc4(_md5(key + b"\5\0\0\0\0")[:10], b"0 0 1 rg 0 0 10 10 re f")
    return b"\n".join(
        [
            b"%PDF-1.4",
            b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj",
            b"2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj",
            b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 20 20]/Contents 5 0 R>>endobj",
            b"5 0 obj<</Length %d>>stream\n%b\nendstream endobj" % (len(content), content),
            b"6 0 obj<</Filter/Standard/V 1/R 2/P -4/O<%b>/U<%b>>>endobj"
            % (owner.hex().encode(), user.hex().encode()),
            b"trailer<</Root 1 0 R/Encrypt 6 0 R/ID[<00><00>]>>",
            b"%%EOF",
        ]
    )


def _md5(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()


def _rc4(key: bytes, content: bytes) -> bytes:
    box = list(range(256))
    j = 0
    for i in range(256):
        j = (j + box[i] + key[i % len(key)]) % 256
        box[i], box[j] = box[j], box[i]
    out = bytearray()
    i = j = 0
    for byte in content:
        i = (i + 1) % 256
        j = (j + box[i]) % 256
        box[i], box[j] = box[j], box[i]
        out.append(byte ^ box[(box[i] + box[j]) % 256])
    return bytes(out)


def one_of_each() -> dict[str, bytes]:
    """Return a small valid document of every type, by its name."""
    page = text_page("Total 42.00", (160, 48), font_px=20)
    return {
        "jpeg": jpeg(page, orientation=6),
        "jpeg_cmyk": jpeg(page, mode="CMYK"),
        "png": png(page),
        "png_palette": encoded(Image.fromarray(page).quantize(16), "PNG", transparency=0),
        "png_16": raw_png([bytes(range(0, 96, 1))] * 8, 48, depth=16, colour=0),
        "png_grey_alpha": encoded(Image.fromarray(page).convert("LA"), "PNG"),
        "webp": encoded(page, "WEBP"),
        "bmp": encoded(page, "BMP"),
        "gif": frames([page, 255 - page], "GIF"),
        "tiff": frames([page, page], "TIFF", compression="tiff_lzw"),
        "tiff_g4": encoded(Image.fromarray(page).convert("1"), "TIFF", compression="group4"),
        "tiff_jpeg": encoded(page, "TIFF", compression="jpeg"),
        "heic": heic(page),
        "avif": encoded(page, "AVIF"),
        "pdf": pdf(["BT /F1 12 Tf 2 2 Td (Total) Tj ET"], size=(60, 20)),
        "pdf_locked": locked_pdf("secret"),
    }
