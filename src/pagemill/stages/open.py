"""Stage `open`: what a document is and how many pages it has, before work is spent on it."""

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from pagemill.engine.stage import Input, Output, Stage
from pagemill.errors import AppError, Defect
from pagemill.stages import images, pdf
from pagemill.stages.images import ImageDocument
from pagemill.stages.pdf import PdfDocument
from pagemill.stages.sniff import Type, sniff
from pagemill.stages.wire import Open, Opened

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Open).decode


class Document(Protocol):
    """A document that is open; `read` may be called for any page, in any order."""

    def count(self, *, max_pages: int, max_pixels: int) -> int:
        """Return the number of pages; raises TooManyPages, TooManyPixels, DamagedInput."""
        ...

    def read(self, index: int, *, max_pixels: int) -> NDArray[np.uint8]:
        """Return a page, (height, width, 3) RGB; raises TooManyPixels, DamagedInput."""
        ...

    def close(self) -> None:
        """Free it."""
        ...


def open_document(content: bytes, kind: Type, *, password: str | None, max_pixels: int) -> Document:
    """Open a document of a known type, which keeps `content`.

    Raises:
        EncryptedDocument, DamagedInput, TooManyPixels: as they say.

    """
    if kind is Type.PDF:
        return PdfDocument(content, password)
    return ImageDocument(content, kind, max_pixels=max_pixels)


def load(config: dict[str, Any]) -> Stage:
    """Return the stage; it has no configuration."""
    del config
    images.prepare()
    return _OpenStage()


class _OpenStage:
    def run(self, items: Sequence[Input]) -> Sequence[Output | AppError]:
        return [_answer(item) for item in items]

    def check(self) -> None:
        images.check()
        pdf.check()


def _answer(item: Input) -> Output | AppError:
    try:
        asked = _decode(item.payload)
        return Output(payload=_encode(_opened(item.buffers[0], asked)))
    except msgspec.DecodeError as error:
        return Defect(f"stage open was asked out of its contract: {error}")
    except AppError as error:
        return error


def _opened(document: memoryview, asked: Open) -> Opened:
    kind = sniff(document)
    opened = open_document(
        bytes(document), kind, password=asked.password, max_pixels=asked.max_pixels
    )
    try:
        pages = opened.count(max_pages=asked.max_pages, max_pixels=asked.max_pixels)
    finally:
        opened.close()
    return Opened(kind=_kind(kind, pages), pages=pages)


def _kind(kind: Type, pages: int) -> Literal["image", "pdf", "tiff"]:
    if kind is Type.PDF:
        return "pdf"
    return "tiff" if pages > 1 else "image"
