"""The engine: takes items, gives them to workers, and ends every one exactly once.

A thin shell around `fairness`, `ledger`, `admission` and `cost`, which decide; it
runs on the event loop's thread alone, and nobody else touches its state.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

import anyio
import structlog

from pagemill.engine.admission import Load, predicted_s, refusal_s
from pagemill.engine.buffers import Buffer, item_digest
from pagemill.engine.cost import CostModel
from pagemill.engine.fairness import Asker, FairQueue
from pagemill.engine.group import GroupSpec
from pagemill.engine.ledger import Ledger, Quarantine, Verdict
from pagemill.engine.observer import NullObserver, Observer
from pagemill.engine.port import (
    BatchReply,
    DeathCause,
    ItemReply,
    OutgoingBatch,
    OutgoingItem,
    WorkerDied,
    WorkerPort,
)
from pagemill.engine.state import EngineState
from pagemill.engine.supervisor import Supervisor
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

DEFAULT_LIMIT_S: Final = 60.0
UNKNOWN_REQUEST_S: Final = 1.0
RETRY_WHEN_BROKEN_S: Final = 30.0
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """`stage_limit_s`: seconds that one item of a stage may take before its worker counts as hung."""

    max_requests: int = 256
    stage_limit_s: Mapping[str, float] | None = None

    def limit_s(self, stage: str) -> float:
        """Return one item's limit."""
        return (self.stage_limit_s or {}).get(stage, DEFAULT_LIMIT_S)


@dataclass(slots=True, eq=False)
class _Item:
    """One accepted item and whoever waits for it (`fairness.Waiting`)."""

    number: int
    task: Task
    context: Context
    digest: bytes
    cost_s: float
    queued_s: float
    done: anyio.Event
    alone: bool = False
    outcome: Result | AppError | None = None

    @property
    def flow(self) -> int:
        return self.context.flow

    @property
    def priority(self) -> int:
        return self.context.priority

    @property
    def stage(self) -> str:
        return self.task.stage

    @property
    def bucket(self) -> int:
        return self.task.bucket


@dataclass(slots=True)
class _Request:
    """An admitted request: what it should cost, what it has cost."""

    pipeline: str
    expected_s: float


class Engine:
    """Runs native work safely, on behalf of requests."""

    def __init__(
        self,
        groups: Sequence[GroupSpec],
        limits: EngineLimits | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Describe the engine; `serving` starts it."""
        self._limits = limits or EngineLimits()
        self._observer = observer or NullObserver()
        self._supervisor = Supervisor(self, groups, self._observer)
        self._queue: FairQueue[_Item] = FairQueue()
        self._ledger = Ledger()
        self._quarantine = Quarantine()
        self._costs = CostModel()
        self._items: dict[int, _Item] = {}
        self._requests: dict[int, _Request] = {}
        self._idle: dict[WorkerPort, anyio.Event] = {}
        self._joined: set[WorkerPort] = set()
        self._numbers = count(1)
        self._empty = anyio.Event()
        self.draining = False

    @property
    def supervisor(self) -> Supervisor:
        """Return who owns the workers."""
        return self._supervisor

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Engine"]:
        """Keep the workers running inside the block; end them after it."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._supervisor.run)
            try:
                yield self
            finally:
                self._fail_all(ShuttingDown("The server is stopping.", retry_after_s=1))
                with anyio.CancelScope(shield=True):
                    await self._supervisor.leave()
                group.cancel_scope.cancel()

    @contextmanager
    def admit(self, context: Context, *, pipeline: str) -> Iterator[Context]:
        """Accept a request for the length of the block, or refuse it at the door.

        Yields the context to run its items with.

        Raises:
            ShuttingDown, NotReady: no request is taken now.
            Overloaded: it would miss its deadline, or too many are accepted.

        """
        admitted = self._admit(context, pipeline)
        try:
            yield admitted
        finally:
            self._dismiss(admitted)

    def _admit(self, context: Context, pipeline: str) -> Context:
        expected_s = self._costs.estimate_s(pipeline, 1, unknown_s=UNKNOWN_REQUEST_S)
        refusal = self._refusal(context, expected_s)
        if refusal is not None:
            self._observer.shed(refusal.code)
            raise refusal
        admitted = replace(context, flow=next(self._numbers))
        self._requests[admitted.flow] = _Request(pipeline, expected_s)
        return admitted

    def _refusal(self, context: Context, expected_s: float) -> Overloaded | None:
        if self.draining:
            return ShuttingDown("The server is stopping; ask another one.", retry_after_s=1)
        if self._hopeless(self._supervisor.stages()):
            names = ", ".join(sorted(self._hopeless(self._supervisor.stages())))
            message = f"No worker can do {names}; /health/ready says why."
            return NotReady(message, retry_after_s=RETRY_WHEN_BROKEN_S)
        budget_s = context.deadline_s - anyio.current_time()
        late_s = refusal_s(expected_s, budget_s, self._load())
        if late_s is None:
            return None
        message = f"The server is busy; try again in {late_s:.0f} s."
        return Overloaded(message, retry_after_s=late_s)

    def _load(self) -> Load:
        remaining = tuple(
            max(request.expected_s - self._queue.attained_s(flow), self._queue.waiting_s(flow))
            for flow, request in self._requests.items()
        )
        workers = len(self._joined) or 1
        return Load(
            remaining_s=remaining, workers=workers, max_requests=self._limits.max_requests
        )

    def _dismiss(self, context: Context) -> None:
        request = self._requests.pop(context.flow)
        attained_s = self._queue.attained_s(context.flow)
        if attained_s:
            self._costs.learn(request.pipeline, 1, attained_s)
        self._queue.forget(context.flow)
        if self.draining and not self._requests:
            self._empty.set()

    async def run(self, task: Task, context: Context) -> Result:
        """Return the stage's reply to one item.

        The caller keeps the task's buffers open until this returns. Cancelling it
        drops the item, or its reply when a worker has it already.

        Raises:
            AppError: BadInput of the stage, PoisonInput, DeadlineExceeded, WorkerLost,
                NotReady, ShuttingDown or Defect.

        """
        assert context.flow in self._requests, "run outside of admit"
        item = self._accept(task, context)
        try:
            with anyio.CancelScope(deadline=context.deadline_s):
                await item.done.wait()
            outcome, item.outcome = item.outcome, None
        finally:
            self._take_back(item)
            if isinstance(item.outcome, Result):  # answered, and cancelled just then
                _close(item.outcome.buffers)
        if outcome is None:
            outcome = _deadline_error()
            self._observe(item, outcome, run_s=0.0)
        if isinstance(outcome, AppError):
            raise outcome
        return outcome

    def _accept(self, task: Task, context: Context) -> _Item:
        if self._hopeless(frozenset((task.stage,))):
            message = f"No worker can do {task.stage}; /health/ready says why."
            raise NotReady(message, retry_after_s=RETRY_WHEN_BROKEN_S)
        now_s = anyio.current_time()
        digest = item_digest(task.stage, task.payload, [b.identity for b in task.buffers])
        if self._quarantine.holds(digest, now_s=now_s):
            raise _poison_error()
        item = _Item(
            number=next(self._numbers),
            task=task,
            context=context,
            digest=digest,
            cost_s=self._costs.estimate_s(task.stage, task.cost),
            queued_s=now_s,
            done=anyio.Event(),
        )
        self._ledger.accept(item.number, digest)
        self._items[item.number] = item
        self._queue.push(item)
        self._wake(task.stage)
        return item

    def _take_back(self, item: _Item) -> None:
        """Forget an item whose caller waits no more."""
        if self._items.pop(item.number, None) is None:
            return  # it was settled
        if not self._ledger.is_running(item.number):
            self._queue.remove(item)
        self._ledger.settle(item.number)

    def _settle(self, item: _Item, outcome: Result | AppError) -> bool:
        """Give an item its end; False when nobody waits for it any more."""
        if self._items.pop(item.number, None) is None:
            return False
        self._ledger.settle(item.number)
        item.outcome = outcome
        item.done.set()
        return True

    def _observe(self, item: _Item, outcome: Result | AppError, *, run_s: float) -> None:
        name = outcome.code if isinstance(outcome, AppError) else "ok"
        wait_s = max(0.0, anyio.current_time() - item.queued_s - run_s)
        self._observer.item_finished(item.stage, name, wait_s=wait_s, run_s=run_s)

    def _wake(self, stage: str) -> None:
        for port, event in self._idle.items():
            if stage in port.stages:
                event.set()

    async def serve_worker(self, port: WorkerPort) -> None:
        """Give `port` batches until it dies or leaves (`port.Crew`)."""
        self._joined.add(port)
        try:
            while not port.leaving:
                await self._run_batch(port, await self._next_batch(port))
        except WorkerDied:
            return  # its items were seen to
        finally:
            self._joined.discard(port)
            self._fail_hopeless()

    async def _next_batch(self, port: WorkerPort) -> list[_Item]:
        try:
            while True:
                event = self._idle[port] = anyio.Event()
                able = sum(1 for other in self._idle if other.stages & port.stages)
                asker = Asker(stages=port.stages, batch=port.batch, idle=able)
                batch = self._unexpired(self._queue.next_batch(asker))
                if batch:
                    return batch
                await event.wait()
        finally:
            del self._idle[port]

    def _unexpired(self, batch: list[_Item]) -> list[_Item]:
        now_s = anyio.current_time()
        for item in batch:
            if item.context.deadline_s <= now_s:
                error = _deadline_error()
                if self._settle(item, error):
                    self._observe(item, error, run_s=0.0)
        return [item for item in batch if item.context.deadline_s > now_s]

    async def _run_batch(self, port: WorkerPort, batch: list[_Item]) -> None:
        for item in batch:
            self._ledger.start(item.number)
        stage = batch[0].stage
        outgoing = OutgoingBatch(
            stage=stage,
            items=tuple(
                OutgoingItem(nonce=item.number, payload=item.task.payload, buffers=item.task.buffers)
                for item in batch
            ),
            together=port.batch > 1 and len(batch) > 1,
        )
        self._observer.batch_sent(stage, len(batch))
        limit_s = self._limits.limit_s(stage) * len(batch)
        try:
            reply = await port.run(outgoing, limit_s=limit_s)
        except WorkerDied as death:
            self._lose(batch, death.cause)
            raise
        self._hand_out(batch, reply, port.generation)

    def _hand_out(self, batch: list[_Item], reply: BatchReply, generation: int) -> None:
        for item, each, seconds in zip(batch, reply.replies, reply.seconds, strict=True):
            self._costs.learn(item.stage, item.task.cost, seconds)
            self._queue.correct(item.flow, estimated_s=item.cost_s, actual_s=seconds)
            outcome = _outcome(each, generation)
            if self._settle(item, outcome):
                self._observe(item, outcome, run_s=seconds)
            elif isinstance(each, ItemReply):  # its caller is gone
                _close(each.buffers)

    def _lose(self, batch: list[_Item], cause: DeathCause) -> None:
        for item in reversed(batch):  # each goes to the head, so the first goes last
            if item.number not in self._items:
                continue  # its caller is gone
            verdict = self._ledger.lose(item.number, cause)
            if verdict in (Verdict.RETRY, Verdict.RETRY_ALONE):
                item.alone = item.alone or verdict is Verdict.RETRY_ALONE
                self._observer.retried(item.stage)
                self._queue.push_back(item)
                self._wake(item.stage)
            else:
                self._give_up(item, verdict)

    def _give_up(self, item: _Item, verdict: Verdict) -> None:
        error: AppError
        if verdict is Verdict.POISON:
            self._quarantine.add(item.digest, now_s=anyio.current_time())
            self._observer.quarantined(item.stage)
            _log.warning("poison_input", stage=item.stage, request_id=item.context.request_id)
            error = _poison_error()
        else:
            error = WorkerLost("Worker after worker died of outside causes.", retry_after_s=5)
        self._settle(item, error)
        self._observe(item, error, run_s=0.0)

    def _hopeless(self, stages: frozenset[str]) -> frozenset[str]:
        """Return those stages that no worker can do, now or in a while."""
        hopeful = {
            stage
            for worker in self._supervisor.states()
            if worker.status != "broken"
            for stage in worker.stages
        }
        for port in self._joined:
            hopeful |= port.stages
        return stages - hopeful

    def _fail_hopeless(self) -> None:
        hopeless = self._hopeless(frozenset(self._queue.by_stage))
        for item in [item for item in self._queue if item.stage in hopeless]:
            self._queue.remove(item)
            message = f"No worker can do {item.stage}; /health/ready says why."
            self._settle(item, NotReady(message, retry_after_s=RETRY_WHEN_BROKEN_S))

    def _fail_all(self, error: AppError) -> None:
        for item in list(self._items.values()):
            self._queue.remove(item)
            self._settle(item, error)

    async def drain(self, grace_s: float) -> None:
        """Refuse new requests; return when the accepted ones ended, or after `grace_s`.

        What is left then ends as `ShuttingDown`.
        """
        self.draining = True
        if self._requests:
            with anyio.move_on_after(grace_s):
                await self._empty.wait()
        self._fail_all(ShuttingDown("The server stopped before the answer.", retry_after_s=1))

    def snapshot(self) -> EngineState:
        """Return the engine's state at this moment."""
        states = tuple(self._supervisor.states())
        doing = {stage for port in self._joined for stage in port.stages}
        load = self._load()
        usual_s = self._costs.estimate_s("ocr", 1, unknown_s=UNKNOWN_REQUEST_S)
        wait_s = predicted_s(usual_s, load.remaining_s, load.workers) - usual_s / load.workers
        return EngineState(
            workers=states,
            queued={stage: n for stage, n in self._queue.by_stage.items() if n},
            running=len(self._ledger) - len(self._queue),
            requests=len(self._requests),
            predicted_wait_s=wait_s,
            draining=self.draining,
            missing=tuple(sorted(self._supervisor.stages() - doing)),
            quarantined=len(self._quarantine),
            deaths=dict(self._supervisor.deaths),
        )


def _close(buffers: Sequence[Buffer]) -> None:
    for buffer in buffers:
        buffer.close()


def _outcome(reply: ItemReply | AppError, generation: int) -> Result | AppError:
    if isinstance(reply, AppError):
        return reply
    return Result(payload=reply.payload, buffers=reply.buffers, generation=generation)


def _deadline_error() -> DeadlineExceeded:
    return DeadlineExceeded(
        "The deadline passed before the answer was whole; give it more time with "
        "X-Request-Timeout-Seconds."
    )


def _poison_error() -> PoisonInput:
    return PoisonInput("Reading this document ended two workers; it is refused for a while.")
