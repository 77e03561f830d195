"""What the scheduler knows of a worker: values and a Protocol, no process."""

import enum
from dataclasses import dataclass
from typing import Protocol

from pagemill.engine.buffers import Buffer
from pagemill.errors import AppError


class DeathCause(enum.Enum):
    """Why a worker is gone."""

    CRASH = "crash"  # a fatal signal
    EXIT = "exit"  # it left by itself
    HANG = "hang"  # we killed it: its batch took longer than its limit
    MEMORY = "memory"  # we killed it, or the kernel did: over its memory cap
    PROTOCOL = "protocol"  # we killed it: a frame, nonce or digest was wrong
    KILLED = "killed"  # SIGKILL that we did not send
    LEFT = "left"  # we asked it to go: recycled, replaced, drained

    @property
    def blames(self) -> bool:
        """Whether what the worker held may be the cause (docs/adr/0004)."""
        return self not in (DeathCause.KILLED, DeathCause.LEFT)


class WorkerDied(Exception):
    """The worker is gone, and with it the answers of its batch."""

    def __init__(self, cause: DeathCause) -> None:
        """Keep why."""
        super().__init__(cause.value)
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingItem:
    """One item for a worker; the sender keeps the buffers."""

    nonce: int
    payload: bytes
    buffers: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingBatch:
    """Items of one stage; `together` when they may run as one batch."""

    stage: str
    items: tuple[OutgoingItem, ...]
    together: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReply:
    """What an item came to; its buffers are the receiver's."""

    payload: bytes
    buffers: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReply:
    """Replies and seconds, in the order of the items."""

    replies: tuple[ItemReply | AppError, ...]
    seconds: tuple[float, ...]


class WorkerPort(Protocol):
    """A worker that has joined: it takes one batch at a time."""

    @property
    def name(self) -> str:
        """Return what logs and metrics call it."""
        ...

    @property
    def generation(self) -> int:
        """Return the generation of models that it loaded."""
        ...

    @property
    def stages(self) -> frozenset[str]:
        """Return what it can do."""
        ...

    @property
    def batch(self) -> int:
        """Return how many items of equal shape it may run as one; 1 on CPU."""
        ...

    @property
    def leaving(self) -> bool:
        """Return whether it must get no further batch."""
        ...

    async def run(self, batch: OutgoingBatch, *, limit_s: float) -> BatchReply:
        """Run a batch.

        Raises:
            WorkerDied: no answer will come; `limit_s` passed, or worse.

        """
        ...


class Crew(Protocol):
    """Who is told of workers: the scheduler."""

    async def serve_worker(self, port: WorkerPort) -> None:
        """Give `port` batches until it dies or is `leaving`; then return.

        Cancelled when the worker dies or must leave while it has no batch.
        """
        ...
