"""What pipelines hand to the engine and get back."""

import enum
from dataclasses import dataclass

from pagemill.engine.buffers import Buffer


class Priority(enum.IntEnum):
    """A class of requests; a lower one is served first."""

    INTERACTIVE = 0
    BATCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Native work on one item.

    The caller keeps its buffers, and keeps them open until `Engine.run` returns.
    `cost` is in the stage's own unit (pixels, padded columns). Only tasks of equal
    `bucket` may share a batch on a device.
    """

    stage: str
    payload: bytes
    buffers: tuple[Buffer, ...] = ()
    cost: float = 1.0
    bucket: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """On whose behalf: one request. `deadline_s` is absolute, of `anyio.current_time`.

    `flow` names the request inside the engine, which sets it at admission: ids that
    clients choose may collide.
    """

    request_id: str
    deadline_s: float
    priority: Priority = Priority.INTERACTIVE
    flow: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A stage's reply. Its buffers belong to the caller, who closes them."""

    payload: bytes
    buffers: tuple[Buffer, ...]
    generation: int
