"""Pictures show the page as it is, and its regions in green."""

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from pagemill.engine.stage import Input, Output
from pagemill.stages import draw
from pagemill.stages.wire import Draw

SQUARE = ((100.0, 100.0), (300.0, 100.0), (300.0, 200.0), (100.0, 200.0))


def drawn(page: NDArray[np.uint8], side_px: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    height, width, _ = page.shape
    asked = Draw(width=width, height=height, polygons=(SQUARE,), side_px=side_px)
    item = Input(payload=msgspec.msgpack.encode(asked), buffers=(memoryview(page.tobytes()),))
    (answer,) = draw.load({}).run([item])
    assert isinstance(answer, Output)
    pictures = [np.frombuffer(bytes(data), np.uint8) for data in answer.buffers]  # type: ignore[call-overload] # JPEG
    outlined, plain = (cv2.imdecode(data, cv2.IMREAD_COLOR_RGB) for data in pictures)
    assert outlined is not None
    assert plain is not None
    return outlined.astype(np.uint8), plain.astype(np.uint8)


def test_the_known_region_is_outlined() -> None:
    draw.load({}).check()


def test_regions_are_green_and_the_rest_stays() -> None:
    page = np.full((300, 400, 3), (250, 200, 40), np.uint8)
    outlined, plain = drawn(page, 2000)
    assert outlined.shape == plain.shape == page.shape
    red, green, blue = outlined[100, 200].astype(int)
    assert green > red
    assert green > blue
    assert red < 150  # of 250
    assert np.abs(plain.astype(int) - page).max() < 12


def test_large_pages_are_shrunk_with_their_regions() -> None:
    page = np.full((300, 400, 3), 255, np.uint8)
    outlined, plain = drawn(page, 200)
    assert outlined.shape == plain.shape == (150, 200, 3)
    assert outlined[50, 100].astype(int).sum() < 600
