"""Stage `cut`: the lines of a page, in reading order, cut out of its full resolution."""

from collections.abc import Sequence
from typing import Any, Final

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from pagemill.engine.stage import Input, Output, Stage
from pagemill.errors import AppError, Defect
from pagemill.stages import crops, dbpost
from pagemill.stages.dbpost import Box, Thresholds
from pagemill.stages.reading_order import is_tall, reading_order
from pagemill.stages.wire import Cut, Lines, PageRead, Strip, Tile

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Cut).decode


def load(config: dict[str, Any]) -> Stage:
    """Return the stage; it has no configuration."""
    del config
    cv2.setNumThreads(1)
    return _CutStage()


class _CutStage:
    def run(self, items: Sequence[Input]) -> Sequence[Output | AppError]:
        return [_answer(item) for item in items]

    def check(self) -> None:
        _check_known()


def _answer(item: Input) -> Output:
    asked = _decode(item.payload)
    page = asked.page
    pixels = np.frombuffer(item.buffers[0], np.uint8).reshape(page.height, page.width, 3)
    maps = [
        np.frombuffer(buffer, np.uint8).reshape(tile.height, tile.width)
        for buffer, tile in zip(item.buffers[1:], page.tiles, strict=True)
    ]
    thresholds = Thresholds(
        pixel=asked.threshold, box=asked.box_threshold, unclip_ratio=asked.unclip_ratio
    )
    found = dbpost.merge(maps, page.tiles)[: page.scaled_height, : page.scaled_width]
    boxes = [_on_page(box, page) for box in dbpost.find_boxes(found, thresholds)]
    return _output(pixels, [box for box in boxes if _has_area(box)])


def _on_page(box: Box, page: PageRead) -> Box:
    scale = np.array((page.width / page.scaled_width, page.height / page.scaled_height))
    corners = np.clip(box.corners * scale, 0, (page.width, page.height))
    return Box(corners=np.round(corners, 2).astype(np.float32), score=box.score)


def _has_area(box: Box) -> bool:
    """Whether anything of a box is left on the page; a text as thin as this is none."""
    sides = np.linalg.norm(box.corners[[1, 3]] - box.corners[0], axis=1)
    return bool(sides.min() > crops.LEAST_SIDE_PX)


def _output(pixels: NDArray[np.uint8], boxes: list[Box]) -> Output:
    order = reading_order([box.corners for box in boxes])
    cuttings = [crops.plan(boxes[i].corners, tall=is_tall(boxes[i].corners)) for i in order]
    strips: list[Strip] = []
    offset = 0
    for index, cutting in zip(order, cuttings, strict=True):
        strip = Strip(
            polygon=tuple((x, y) for x, y in cutting.quad.tolist()),
            score=round(boxes[index].score, 4),
            offset=offset,
            width=cutting.width,
            text_width=cutting.text_width,
            tall=cutting.tall,
        )
        strips.append(strip)
        offset += cutting.size
    buffers = (crops.cut(pixels, cuttings),) if cuttings else ()
    return Output(payload=_encode(Lines(strips=tuple(strips))), buffers=buffers)


def _check_known() -> None:
    """Two lines drawn as bars must be found, cut and read from the top."""
    page = np.full((96, 160, 3), 255, np.uint8)
    probability = np.zeros((96, 160), np.uint8)
    for top in (16, 64):
        page[top : top + 16, 24:136] = top
        probability[top : top + 16, 24:136] = 255
    asked = Cut(
        page=PageRead(
            width=160,
            height=96,
            det_width=160,
            det_height=96,
            scaled_width=160,
            scaled_height=96,
            tiles=(Tile(x=0, y=0, width=160, height=96),),
        )
    )
    given = Input(
        payload=_encode(asked),
        buffers=(memoryview(page.tobytes()), memoryview(probability.tobytes())),
    )
    answer = _answer(given)
    strips = msgspec.msgpack.decode(answer.payload, type=Lines).strips
    middles = [_middle(answer.buffers[0], strip) for strip in strips]
    if middles != [16, 64]:
        message = f"stage cut found lines of shade {middles} on the known page, not [16, 64]"
        raise Defect(message)


def _middle(strips: object, strip: Strip) -> int:
    assert isinstance(strips, np.ndarray)  # ours
    row = strip.offset + (crops.HEIGHT_PX // 2 * strip.width + strip.text_width // 2) * 3
    return int(strips[row])
