"""Stage `draw`: pictures of a page, for people: as it was read, and with its lines outlined."""

from collections.abc import Sequence
from typing import Any, Final

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from pagemill.engine.stage import Input, Output, Stage
from pagemill.errors import AppError, Defect
from pagemill.stages.wire import Draw, Drawn

JPEG_QUALITY: Final = 85
_GREEN: Final = (0, 160, 0)  # BGR

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Draw).decode


def load(config: dict[str, Any]) -> Stage:
    """Return the stage; it has no configuration."""
    del config
    cv2.setNumThreads(1)
    return _DrawStage()


class _DrawStage:
    def run(self, items: Sequence[Input]) -> Sequence[Output | AppError]:
        return [_answer(item) for item in items]

    def check(self) -> None:
        """Outline a white page; the outline is green, the middle stays white."""
        drawn = outlined(
            np.full((40, 40, 3), 255, np.uint8), [((8, 8), (32, 8), (32, 32), (8, 32))]
        )
        if tuple(drawn[8, 20]) != _GREEN or tuple(drawn[20, 20]) != (255, 255, 255):
            message = "stage draw does not outline the known region"
            raise Defect(message)


def _answer(item: Input) -> Output:
    asked = _decode(item.payload)
    page = np.frombuffer(item.buffers[0], np.uint8).reshape(asked.height, asked.width, 3)
    scale = min(1.0, asked.side_px / max(asked.width, asked.height))
    bgr = cv2.cvtColor(page, cv2.COLOR_RGB2BGR)
    if scale < 1:
        size = max(1, round(asked.width * scale)), max(1, round(asked.height * scale))
        bgr = cv2.resize(bgr, size, interpolation=cv2.INTER_AREA)
    polygons = [[(x * scale, y * scale) for x, y in polygon] for polygon in asked.polygons]
    plain = np.asarray(bgr, np.uint8)
    return Output(payload=_encode(Drawn()), buffers=(jpeg(outlined(plain, polygons)), jpeg(plain)))


def outlined(
    picture: NDArray[np.uint8], polygons: Sequence[Sequence[tuple[float, float]]]
) -> NDArray[np.uint8]:
    """Return a copy of a BGR picture with each polygon outlined."""
    drawn = picture.copy()
    width = max(2, round(max(picture.shape[:2]) / 800))
    for polygon in polygons:
        corners = np.round(np.array(polygon)).astype(np.int32)
        cv2.polylines(drawn, [corners], isClosed=True, color=_GREEN, thickness=width)
    return drawn


def jpeg(picture: NDArray[np.uint8]) -> bytes:
    """Return a BGR picture as JPEG."""
    _, encoded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    return encoded.tobytes()
