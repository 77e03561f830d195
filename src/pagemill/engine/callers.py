"""Who waits for which item, and how it ends for them: once, whatever happens."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import structlog

from pagemill.engine.buffers import Buffer
from pagemill.engine.fairness import Item
from pagemill.engine.ledger import Outcome
from pagemill.engine.observer import Observer
from pagemill.engine.policy import Fate, Policy, Work
from pagemill.engine.port import BatchReply, DeathCause, ItemReply
from pagemill.engine.restarts import BROKEN_WAIT_S
from pagemill.engine.task import Context, Result, Task
from pagemill.errors import (
    AppError,
    DeadlineExceeded,
    NotReady,
    Overloaded,
    PoisonInput,
    ShuttingDown,
    WorkerLost,
)

_log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class Slot:
    """An item and its caller, who waits for `done`."""

    task: Task
    item: Item
    done: anyio.Event = field(default_factory=anyio.Event)
    outcome: Result | AppError | None = None


@dataclass(slots=True, eq=False)
class Callers:
    """All callers that wait. Synchronous, so no cancellation comes between."""

    policy: Policy
    observer: Observer
    closed: bool = False
    _slots: dict[int, Slot] = field(default_factory=dict)

    def slots(self, items: Sequence[Item]) -> list[Slot]:
        """Return the slots of items that have not ended."""
        return [self._slots[item.number] for item in items]

    def accept(self, task: Task, context: Context, digest: bytes, *, now_s: float) -> Slot:
        """Queue an item; its slot gets the outcome."""
        work = Work(
            stage=task.stage,
            digest=digest,
            cost=task.cost,
            bucket=task.bucket,
            fds=len(task.buffers),
            payload_bytes=len(task.payload),
        )
        item = self.policy.accept(work, context, now_s=now_s)
        slot = self._slots[item.number] = Slot(task, item)
        return slot

    def hand_out(
        self,
        batch: Sequence[Slot],
        reply: BatchReply,
        *,
        generation: int,
        start_s: float,
    ) -> None:
        """End a batch with its worker's replies; close those that nobody waits for."""
        now_s = anyio.current_time()
        for slot, each, seconds in zip(batch, reply.replies, reply.seconds, strict=True):
            run_s = min(max(seconds, 0.0), now_s - start_s)  # as a worker says
            outcome = Outcome.FAILED if isinstance(each, AppError) else Outcome.ANSWERED
            if self.policy.finish(slot.item, outcome, seconds=run_s, now_s=now_s):
                wait_s = start_s - slot.item.queued_s
                self._settle(slot, _outcome(each, generation), wait_s=wait_s, run_s=run_s)
            elif isinstance(each, ItemReply):
                _close(each.buffers)

    def lose(self, batch: Sequence[Slot], cause: DeathCause) -> None:
        """See to the items of a worker that died: queue them again or end them."""
        now_s = anyio.current_time()
        for slot in batch:
            match self.policy.lose(slot.item, cause, now_s=now_s):
                case Fate.RETRIED:
                    self._retry(slot)
                case Fate.POISONED:
                    self._poison(slot)
                case Fate.LOST:
                    message = "Worker after worker died of causes outside the request."
                    self._settle(slot, WorkerLost(message, retry_after_s=1.0))
                case Fate.FORGOTTEN:
                    pass

    def withdraw(self, slot: Slot) -> None:
        """Drop the item of a cancelled caller, or the answer that came just then."""
        if slot.outcome is None:
            self.policy.abandon(slot.item, Outcome.CANCELLED)
            del self._slots[slot.item.number]
            self.observer.item_finished(slot.task.stage, 0.0, 0.0, Outcome.CANCELLED.value)
        elif isinstance(slot.outcome, Result):
            _close(slot.outcome.buffers)

    def expire(self, slot: Slot) -> None:
        """End an item by its deadline; if a worker is at it, the reply is dropped."""
        self.policy.abandon(slot.item, Outcome.EXPIRED)
        self._settle(slot, late())

    def expired(self, items: Sequence[Item]) -> None:
        """Tell the callers of items that the policy has ended by their deadline."""
        for slot in self.slots(items):
            self._settle(slot, late())

    def refuse(self, slot: Slot, error: Overloaded) -> None:
        """End an item that will not be done any more."""
        self.policy.abandon(slot.item, Outcome.REFUSED)
        self._settle(slot, error)

    def close(self) -> None:
        """Refuse every item that has not ended, and those that come back."""
        self.closed = True
        for slot in list(self._slots.values()):
            self.refuse(slot, stopping())

    def _retry(self, slot: Slot) -> None:
        self.observer.retried(slot.task.stage)
        if self.closed:
            self.refuse(slot, stopping())

    def _poison(self, slot: Slot) -> None:
        _log.warning("poison_input", stage=slot.task.stage, digest=slot.item.digest.hex())
        self.observer.quarantined()
        self._settle(slot, poisonous())
        for copy in self.slots(self.policy.poisoned_copies(slot.item.digest)):
            self._settle(copy, poisonous())

    def _settle(
        self,
        slot: Slot,
        outcome: Result | AppError,
        *,
        wait_s: float = 0.0,
        run_s: float = 0.0,
    ) -> None:
        """Wake the caller up; the policy has ended the item already."""
        del self._slots[slot.item.number]
        slot.outcome = outcome
        slot.done.set()
        name = outcome.code if isinstance(outcome, AppError) else "ok"
        self.observer.item_finished(slot.task.stage, wait_s, run_s, name)


def _outcome(reply: ItemReply | AppError, generation: int) -> Result | AppError:
    if isinstance(reply, AppError):
        return reply
    return Result(payload=reply.payload, buffers=reply.buffers, generation=generation)


def _close(buffers: Sequence[Buffer]) -> None:
    for buffer in buffers:
        buffer.close()


def late() -> DeadlineExceeded:
    """Return the end of an item whose deadline passed."""
    return DeadlineExceeded(
        "The deadline passed before the answer was whole; allow more time with "
        "X-Request-Timeout-Seconds."
    )


def poisonous() -> PoisonInput:
    """Return the end of an item that killed, or seems to kill, workers."""
    return PoisonInput("Reading this document ended two workers; it is refused for a while.")


def not_ready(stages: str) -> NotReady:
    """Return the end of an item that no worker can do."""
    message = f"No worker can do {stages}; /health/ready says why."
    return NotReady(message, retry_after_s=BROKEN_WAIT_S)


def stopping() -> ShuttingDown:
    """Return the end of what a drained engine cannot answer any more."""
    return ShuttingDown("The server is stopping; ask another one.", retry_after_s=1.0)
