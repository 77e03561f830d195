"""Typed calls of stages: structs in, structs out, buffers closed whatever happens."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

import anyio
import msgspec

from pagemill.engine.buffers import Buffer
from pagemill.engine.task import Context, Result, Task
from pagemill.errors import AppError, Defect, first_of

T = TypeVar("T")
_encode: Final = msgspec.msgpack.Encoder().encode


class Runs(Protocol):
    """What a pipeline needs of the engine."""

    async def run(self, task: Task, context: Context) -> Result:
        """Return the stage's reply; raises `AppError` leaves only."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """A stage to call: its request, the buffers it reads, and its reply's type.

    `outputs` are the numbers of buffers that the reply may bring.
    """

    stage: str
    request: msgspec.Struct
    reply: type[T]
    buffers: tuple[Buffer, ...] = ()
    outputs: tuple[int, ...] = (0,)
    cost: float = 1.0
    bucket: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Generic[T]):
    """A stage's decoded reply and its buffers."""

    value: T
    buffers: tuple[Buffer, ...]


async def call(engine: Runs, wanted: Call[T], context: Context, held: ExitStack) -> Reply[T]:
    """Run one stage; `held` closes the buffers of its reply."""
    result = await engine.run(_task(wanted), context)
    for buffer in result.buffers:
        held.callback(buffer.close)
    return Reply(value=_decode(wanted, result), buffers=result.buffers)


async def call_all(
    engine: Runs, wanted: Sequence[Call[T]], context: Context, held: ExitStack
) -> list[Reply[T]]:
    """Run stages side by side; replies in the order of `wanted`.

    Raises:
        AppError: the first one that failed; the others are dropped.

    """
    if len(wanted) == 1:
        return [await call(engine, wanted[0], context, held)]
    replies: dict[int, Reply[T]] = {}

    async def one(index: int, each: Call[T]) -> None:
        replies[index] = await call(engine, each, context, held)

    failed: list[AppError] = []
    try:
        async with anyio.create_task_group() as group:
            for index, each in enumerate(wanted):
                group.start_soon(one, index, each)
    except* AppError as errors:
        failed.append(first_of(errors))
    if failed:
        raise failed[0]
    return [replies[index] for index in range(len(wanted))]


def _task(wanted: Call[T]) -> Task:
    return Task(
        stage=wanted.stage,
        payload=_encode(wanted.request),
        buffers=wanted.buffers,
        cost=wanted.cost,
        bucket=wanted.bucket,
    )


def _decode(wanted: Call[T], result: Result) -> T:  # the front trusts no worker
    if len(result.buffers) not in wanted.outputs:
        message = f"stage {wanted.stage} answered with {len(result.buffers)} buffers"
        raise Defect(message)
    try:
        return msgspec.msgpack.decode(result.payload, type=wanted.reply)
    except msgspec.DecodeError as error:
        message = f"stage {wanted.stage} answered out of its contract: {error}"
        raise Defect(message) from error
