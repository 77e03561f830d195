"""Stage `read_page`: one page's pixels, and the detector's view of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from pagemill.engine.stage import Input, Output, Stage
from pagemill.errors import AppError, Defect
from pagemill.stages import images, pdf
from pagemill.stages.open import Document, open_document
from pagemill.stages.scaling import Plan, plan
from pagemill.stages.sniff import Type, sniff
from pagemill.stages.wire import PageRead, ReadPage

PADDING: Final = 255  # white, right and below
INTERPOLATION: Final = cv2.INTER_LINEAR

_OF_MANY_PAGES: Final = frozenset({Type.PDF, Type.TIFF, Type.GIF})
_SAME_AT_A_TIME: Final = 1 << 20  # bytes compared at a time; the comparison fits in cache

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(ReadPage).decode


def load(config: dict[str, Any]) -> Stage:
    """Return the stage; it has no configuration."""
    del config
    images.prepare()
    return _ReadPageStage()


def detector_image(page: NDArray[np.uint8], planned: Plan) -> NDArray[np.uint8]:
    """Return (det_height, det_width, 3): the page scaled, at the top left of white."""
    width, height = planned.scaled_width, planned.scaled_height
    canvas = np.full((planned.det_height, planned.det_width, 3), PADDING, np.uint8)
    if page.shape[:2] == (height, width):
        canvas[:height, :width] = page
    else:
        canvas[:height, :width] = cv2.resize(page, (width, height), interpolation=INTERPOLATION)
    return canvas


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A document left open for its next page; the password is part of what it is."""

    content: bytes
    password: str | None
    document: Document

    def is_of(self, content: memoryview, password: str | None) -> bool:
        return self.password == password and _same(self.content, content)


class _ReadPageStage:
    """Keeps the last document of many pages open, as each page comes by itself."""

    def __init__(self) -> None:
        self._kept: _Kept | None = None

    def run(self, items: Sequence[Input]) -> Sequence[Output | AppError]:
        return [self._answer(item) for item in items]

    def check(self) -> None:
        images.check()
        pdf.check()

    def _answer(self, item: Input) -> Output | AppError:
        try:
            asked = _decode(item.payload)
            page = self._read(item.buffers[0], asked)
        except msgspec.DecodeError as error:
            return Defect(f"stage read_page was asked out of its contract: {error}")
        except AppError as error:
            self._forget()  # a decoder that failed midway is not asked again
            return error
        return _output(page, asked)

    def _read(self, content: memoryview, asked: ReadPage) -> NDArray[np.uint8]:
        if self._kept is None or not self._kept.is_of(content, asked.password):
            self._forget()
            self._kept = _open(content, asked)
        page = self._kept.document.read(asked.page, max_pixels=asked.max_pixels)
        if not self._kept.content:
            self._forget()
        return page

    def _forget(self) -> None:
        if self._kept is not None:
            self._kept.document.close()
            self._kept = None


def _open(content: memoryview, asked: ReadPage) -> _Kept:
    kind = sniff(content)
    own = bytes(content)
    document = open_document(own, kind, password=asked.password, max_pixels=asked.max_pixels)
    kept = own if kind in _OF_MANY_PAGES else b""
    return _Kept(content=kept, password=asked.password, document=document)


def _same(one: bytes, other: memoryview) -> bool:
    """Return whether two buffers hold the same bytes.

    Compared rather than hashed: exact, and several times faster than a digest that
    nobody can forge.
    """
    if len(one) != len(other):
        return False
    left, right = np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8)
    return all(
        np.array_equal(left[at : at + _SAME_AT_A_TIME], right[at : at + _SAME_AT_A_TIME])
        for at in range(0, len(one), _SAME_AT_A_TIME)
    )


def _output(page: NDArray[np.uint8], asked: ReadPage) -> Output:
    height, width, _ = page.shape
    planned = plan(width, height, side_px=asked.side_px, side_type=asked.side_type)
    read = PageRead(
        width=width,
        height=height,
        det_width=planned.det_width,
        det_height=planned.det_height,
        scaled_width=planned.scaled_width,
        scaled_height=planned.scaled_height,
        tiles=planned.tiles,
    )
    buffers = (np.ascontiguousarray(page), detector_image(page, planned))
    return Output(payload=_encode(read), buffers=buffers)
