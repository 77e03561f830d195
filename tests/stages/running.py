"""Calls stages as a worker would: messages in, messages out."""

from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from pagemill.engine.stage import Input, Output, Stage

T = TypeVar("T", bound=msgspec.Struct)


def item(request: msgspec.Struct, *buffers: NDArray[np.uint8]) -> Input:
    views = tuple(memoryview(buffer.tobytes()) for buffer in buffers)
    return Input(payload=msgspec.msgpack.encode(request), buffers=views)


def answers(stage: Stage, kind: type[T], *items: Input) -> list[tuple[T, list[NDArray[Any]]]]:
    found = []
    for output in stage.run(items):
        assert isinstance(output, Output), output
        buffers = [np.frombuffer(buffer, np.uint8) for buffer in output.buffers]  # type: ignore[call-overload] # any buffer
        found.append((msgspec.msgpack.decode(output.payload, type=kind), buffers))
    return found
