"""Stage `recognize`: the text of a line."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from pagemill.engine.stage import Input, Output, Stage
from pagemill.errors import AppError, Defect
from pagemill.models import recipes
from pagemill.runtimes.base import Model, open_cache, open_runtime
from pagemill.stages import ctc, known
from pagemill.stages.crops import CHANNELS, HEIGHT_PX
from pagemill.stages.wire import Recognize, Recognized

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Recognize).decode


def load(config: dict[str, Any]) -> Stage:
    """Return the stage; `config` says how models run, see `open_runtime`.

    Raises:
        NotInstalled: the model or the runtime is missing.

    """
    runtime, cache = open_runtime(config), open_cache(config)
    recipe = recipes.recognizer("best" if runtime.reduces else "logits")
    return _RecognizeStage(runtime.load(recipe, cache), recipes.characters(cache))


class _RecognizeStage:
    def __init__(self, model: Model, characters: Sequence[str]) -> None:
        self._model = model
        self._characters = characters
        self.facts = model.facts

    def run(self, items: Sequence[Input]) -> Sequence[Output | AppError]:
        """Read the lines; several come only when their padded widths are equal."""
        asked = [_decode(item.payload) for item in items]
        strips = np.stack([strip_of(item, each) for item, each in zip(items, asked, strict=True)])
        outputs = self._model.run(strips)
        return [
            Output(payload=_encode(self._recognized(each, [part[i] for part in outputs])))
            for i, each in enumerate(asked)
        ]

    def check(self) -> None:
        """Read the known line."""
        strip = known.line()
        asked = Recognize(offset=0, width=strip.shape[1], text_width=strip.shape[1])
        item = Input(payload=_encode(asked), buffers=(memoryview(strip.tobytes()),))
        (answer,) = self.run([item])
        assert isinstance(answer, Output)
        text = msgspec.msgpack.decode(answer.payload, type=Recognized).text
        if text != known.TEXT:
            message = f"stage recognize reads the known line as {text!r}, not {known.TEXT!r}"
            raise Defect(message)

    def _recognized(self, asked: Recognize, outputs: Sequence[NDArray[Any]]) -> Recognized:
        path = ctc.from_logits(*outputs) if len(outputs) == 1 else ctc.from_best(*outputs)
        text, confidence = ctc.text_of(path, self._characters)
        if not asked.columns:
            return Recognized(text=text, confidence=confidence)
        columns = ctc.columns_of(
            path, steps=len(outputs[0]), width=asked.width, text_width=asked.text_width
        )
        return Recognized(text=text, confidence=confidence, columns=tuple(columns))


def strip_of(item: Input, asked: Recognize) -> NDArray[np.uint8]:
    """Return a line's strip, (48, width, 3); `flip` turns its text half round, not its padding."""
    size = HEIGHT_PX * asked.width * CHANNELS
    flat = np.frombuffer(item.buffers[0], np.uint8, count=size, offset=asked.offset)
    strip = flat.reshape(HEIGHT_PX, asked.width, CHANNELS)
    if not asked.flip:
        return strip
    turned = strip.copy()
    turned[:, : asked.text_width] = strip[::-1, asked.text_width - 1 :: -1][:, : asked.text_width]
    return turned
