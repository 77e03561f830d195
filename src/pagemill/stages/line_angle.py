"""Stage `line_angle`: whether a line stands on its head.

Off by default: on the development corpus PaddleOCR's classifier turns more upright
lines over than it rights; it costs RapidOCR a point of word F1 (benchmarks/LOG.md).
"""

from collections.abc import Sequence
from typing import Any, Final

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from pagemill.engine.stage import Input, Output, Stage
from pagemill.errors import AppError, Defect
from pagemill.models import recipes
from pagemill.runtimes.base import Model, open_cache, open_runtime
from pagemill.stages import known
from pagemill.stages.crops import CHANNELS, HEIGHT_PX, PADDING
from pagemill.stages.recognize import strip_of
from pagemill.stages.wire import LineAngle, LineAngled, Recognize

WIDTH_PX: Final = 192  # what the model was trained on; longer lines are squeezed into it


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(LineAngle).decode


def load(config: dict[str, Any]) -> Stage:
    """Return the stage; `config` says how models run, see `open_runtime`.

    Raises:
        NotInstalled: the model or the runtime is missing.

    """
    model = open_runtime(config).load(recipes.line_angle(), open_cache(config))
    return _LineAngleStage(model)


class _LineAngleStage:
    def __init__(self, model: Model) -> None:
        self._model = model
        self.facts = model.facts

    def run(self, items: Sequence[Input]) -> Sequence[Output | AppError]:
        views = np.stack([_view(item) for item in items])
        return [
            Output(payload=_encode(LineAngled(flipped=round(float(flipped), 5))))
            for _, flipped in self._model.run(views)[0]
        ]

    def check(self) -> None:
        """Tell the known line from itself turned over."""
        strip = _fitted(known.line())
        upright, turned = (
            float(self._model.run(view[None])[0][0, 1]) for view in (strip, strip[::-1, ::-1])
        )
        if not upright < 0.5 < turned:  # noqa: PLR2004 - even odds
            message = "stage line_angle does not tell which way up the known line is"
            raise Defect(message)


def _view(item: Input) -> NDArray[np.uint8]:
    asked = _decode(item.payload)
    whole = Recognize(offset=asked.offset, width=asked.width, text_width=asked.text_width)
    return _fitted(strip_of(item, whole)[:, : asked.text_width])


def _fitted(text: NDArray[np.uint8]) -> NDArray[np.uint8]:
    view = np.full((HEIGHT_PX, WIDTH_PX, CHANNELS), PADDING, np.uint8)
    if text.shape[1] > WIDTH_PX:
        return cv2.resize(text, (WIDTH_PX, HEIGHT_PX)).astype(np.uint8, copy=False)
    view[:, : text.shape[1]] = text
    return view
