"""Stage `detect`: where a tile of the page holds text."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from pagemill.engine.stage import Input, Output, Stage
from pagemill.errors import AppError, Defect
from pagemill.models import recipes
from pagemill.runtimes.base import Model, open_cache, open_runtime
from pagemill.stages import known
from pagemill.stages.subpixels import unshuffle
from pagemill.stages.wire import Detect, Detected

_TEXT: Final = 128  # of 255: more is text

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Detect).decode


def load(config: dict[str, Any]) -> Stage:
    """Return the stage; `config` says how models run, see `open_runtime`.

    Raises:
        NotInstalled: the model or the runtime is missing.

    """
    model = open_runtime(config).load(recipes.detector(), open_cache(config))
    return _DetectStage(model)


class _DetectStage:
    def __init__(self, model: Model) -> None:
        self._model = model
        self.facts = model.facts

    def run(self, items: Sequence[Input]) -> Sequence[Output | AppError]:
        tiles = np.stack([_tile(item) for item in items])
        payload = _encode(Detected())
        return [
            Output(payload=payload, buffers=(np.ascontiguousarray(unshuffle(part)),))
            for part in self._model.run(tiles)[0]
        ]

    def check(self) -> None:
        """Find the two words of the known page, and nothing between them."""
        found = unshuffle(self._model.run(known.page()[None])[0][0]) > _TEXT
        inside = [bool(found[at].mean() > known.LEAST_COVER) for at in known.WORDS]
        if not all(inside) or found[known.GAP].any():
            message = "stage detect does not find the text of the known page"
            raise Defect(message)


def _tile(item: Input) -> NDArray[np.uint8]:
    asked = _decode(item.payload)
    tile = asked.tile
    image = np.frombuffer(item.buffers[0], np.uint8).reshape(asked.det_height, asked.det_width, 3)
    return image[tile.y : tile.y + tile.height, tile.x : tile.x + tile.width]
