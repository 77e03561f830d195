"""What becomes of requests and items: every decision of the engine. Pure.

`Policy` holds the queue, the ledger and what was learned, and keeps them in step; the
shell (scheduler.py) tells it what happened and when, and does what it returns.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from pagemill.engine import admission
from pagemill.engine.batching import BATCH_S, Draw, Hands, next_batch
from pagemill.engine.cost import RequestCosts, StageCosts
from pagemill.engine.fairness import SHORT_S, FairQueue, Flow, Item
from pagemill.engine.ledger import Ledger, Outcome, State
from pagemill.engine.port import DeathCause
from pagemill.engine.quarantine import POISON_BLAMES, QUARANTINE_S, Quarantine
from pagemill.engine.task import Context

MAX_LOSSES: Final = 8  # so many workers killed from outside under one item


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the policy; times in seconds."""

    max_requests: int = 256
    max_losses: int = MAX_LOSSES
    batch_s: float = BATCH_S
    short_s: float = SHORT_S
    quarantine_s: float = QUARANTINE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is asked for: a task without its bytes. `digest` names all of its input."""

    stage: str
    digest: bytes
    cost: float = 1.0
    bucket: int = 0
    fds: int = 0
    payload_bytes: int = 0


class Fate(enum.Enum):
    """What becomes of an item whose worker died."""

    RETRIED = "retried"
    POISONED = "poisoned"
    LOST = "lost"
    FORGOTTEN = "forgotten"  # nobody waits for it


@dataclass(slots=True, eq=False)
class _Request:
    """An admitted request. `flow` is shared by all its items."""

    context: Context
    pipeline: str
    expected_s: float
    flow: Flow

    def standing(self) -> admission.Request:
        remaining_s = max(self.expected_s - self.flow.attained_s, self.flow.outstanding_s, 0.0)
        return admission.Request(
            priority=self.context.priority,
            remaining_s=remaining_s,
            attained_s=self.flow.attained_s,
        )


@dataclass(slots=True, eq=False)
class Policy:
    """The engine's state, with one owner."""

    limits: Limits = field(default_factory=Limits)
    ledger: Ledger = field(default_factory=Ledger)
    queue: FairQueue = field(init=False)
    quarantine: Quarantine = field(init=False)
    _stage_costs: StageCosts = field(default_factory=StageCosts)
    _request_costs: RequestCosts = field(default_factory=RequestCosts)
    _requests: dict[int, _Request] = field(default_factory=dict)
    _items: dict[int, Item] = field(default_factory=dict)
    _flows: int = 0

    def __post_init__(self) -> None:
        """Start empty."""
        self.queue = FairQueue(short_s=self.limits.short_s)
        self.quarantine = Quarantine(keep_s=self.limits.quarantine_s)

    @property
    def requests(self) -> int:
        """Return how many requests are admitted."""
        return len(self._requests)

    def refusal_s(
        self, context: Context, *, pipeline: str, workers: int, now_s: float
    ) -> float | None:
        """Return None when a request may be admitted, else when it should come back."""
        new = admission.Request(
            priority=context.priority,
            remaining_s=self._request_costs.estimate_s(pipeline),
        )
        capacity = admission.Capacity(workers=workers, max_requests=self.limits.max_requests)
        others = (request.standing() for request in self._requests.values())
        return admission.refusal_s(new, others, capacity, left_s=context.deadline_s - now_s)

    def wait_s(self, context: Context, *, workers: int) -> float:
        """Return how much later than alone a typical request would end."""
        typical_s = self._request_costs.typical_s()
        new = admission.Request(priority=context.priority, remaining_s=typical_s)
        others = (request.standing() for request in self._requests.values())
        return admission.predicted_s(new, others, workers=workers) - typical_s / max(1, workers)

    def admit(self, context: Context, *, pipeline: str) -> Context:
        """Register a request; return its context, which names its flow."""
        self._flows += 1
        admitted = replace(context, flow=self._flows)
        self._requests[admitted.flow] = _Request(
            context=admitted,
            pipeline=pipeline,
            expected_s=self._request_costs.estimate_s(pipeline),
            flow=Flow(priority=context.priority, number=admitted.flow),
        )
        return admitted

    def dismiss(self, context: Context) -> None:
        """Forget a request that has ended; its items end by themselves."""
        request = self._requests.pop(context.flow)
        self._request_costs.observe(request.pipeline, request.flow.attained_s)

    def is_admitted(self, context: Context) -> bool:
        """Return whether a context belongs to a request that has not ended."""
        return context.flow in self._requests

    def is_poison(self, digest: bytes, *, now_s: float) -> bool:
        """Return whether items of this digest are refused."""
        return self.quarantine.is_poison(digest, now_s=now_s)

    def accept(self, work: Work, context: Context, *, now_s: float) -> Item:
        """Queue an item of an admitted request; it is no poison."""
        flow = self._requests[context.flow].flow
        blames = self.quarantine.blames(work.digest, now_s=now_s)
        assert blames < POISON_BLAMES
        item = Item(
            number=self.ledger.accept(blames=blames),
            flow=flow,
            stage=work.stage,
            cost=work.cost,
            estimate_s=self._stage_costs.estimate_s(work.stage, work.cost),
            deadline_s=context.deadline_s,
            digest=work.digest,
            bucket=work.bucket,
            fds=work.fds,
            payload_bytes=work.payload_bytes,
            suspect=blames > 0,
            queued_s=now_s,
        )
        self._items[item.number] = item
        flow.outstanding_s += item.estimate_s
        self.queue.add(item)
        return item

    def draw(self, hands: Hands, worker: str, *, now_s: float) -> Draw:
        """Start the items that `worker` should run now; end those that are too late."""
        draw = next_batch(self.queue, hands, now_s=now_s, batch_s=self.limits.batch_s)
        for item in draw.expired:
            self.ledger.settle(item.number, Outcome.EXPIRED)
            self._forget(item)
        for item in draw.batch:
            item.nonce = self.ledger.start(item.number, worker)
        return draw

    def finish(self, item: Item, outcome: Outcome, *, seconds: float, now_s: float) -> bool:
        """End a running item with its worker's reply; False when nobody waits for it."""
        self.queue.correct(item, seconds)
        self.quarantine.clear(item.digest, now_s=now_s)
        if outcome is Outcome.ANSWERED:
            self._stage_costs.observe(item.stage, item.cost, seconds)
        self._forget(item)
        if self.ledger.state(item.number) is State.ABANDONED:
            self.ledger.release(item.number)
            return False
        self.ledger.settle(item.number, outcome)
        return True

    def lose(self, item: Item, cause: DeathCause, *, now_s: float) -> Fate:
        """Decide on a running item whose worker died: again, alone if suspect, or never."""
        self.queue.refund(item)
        if self.ledger.state(item.number) is State.ABANDONED:
            entry = self.ledger.release(item.number)
            self._forget(item)
            if cause.blames:  # its caller may ask for it again
                self.quarantine.remember(item.digest, entry.blames + 1, now_s=now_s)
            return Fate.FORGOTTEN
        entry = self.ledger.lose(item.number, blamed=cause.blames)
        if entry.blames >= POISON_BLAMES:
            self.quarantine.remember(item.digest, entry.blames, now_s=now_s)
            return self._end(item, Outcome.POISONED, Fate.POISONED)
        if entry.losses >= self.limits.max_losses:
            return self._end(item, Outcome.LOST, Fate.LOST)
        item.suspect = entry.blames > 0
        item.queued_s = now_s
        self.queue.add(item)
        return Fate.RETRIED

    def poisoned_copies(self, digest: bytes) -> list[Item]:
        """End the queued items of a digest that has turned out to be poison."""
        copies = [item for item in self.queued() if item.digest == digest]
        for item in copies:
            self.abandon(item, Outcome.POISONED)
        return copies

    def abandon(self, item: Item, outcome: Outcome) -> None:
        """End an item for its caller, wherever it is; a running one's reply is dropped."""
        self.ledger.abandon(item.number, outcome)
        if item.queued:
            self.queue.remove(item)
            self._forget(item)

    def queued(self) -> Iterator[Item]:
        """Iterate over all queued items, oldest first; O(n)."""
        return iter([item for item in self._items.values() if item.queued])

    def _end(self, item: Item, outcome: Outcome, fate: Fate) -> Fate:
        self.ledger.settle(item.number, outcome)
        self._forget(item)
        return fate

    def _forget(self, item: Item) -> None:
        item.flow.outstanding_s -= item.estimate_s
        del self._items[item.number]
