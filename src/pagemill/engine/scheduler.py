"""The engine: takes items, gives them to workers, and ends every one exactly once.

A thin shell: `policy` decides, this waits and sends. It runs on the event loop's
thread alone, and nobody else touches its state.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio
from anyio.abc import TaskStatus

from pagemill.engine import callers
from pagemill.engine.batching import PAYLOAD_LIMIT_BYTES, Hands
from pagemill.engine.buffers import item_digest
from pagemill.engine.callers import Callers, Slot
from pagemill.engine.group import GroupSpec
from pagemill.engine.ledger import State
from pagemill.engine.messages import FDS_LIMIT
from pagemill.engine.observer import NullObserver, Observer
from pagemill.engine.policy import Limits, Policy
from pagemill.engine.port import (
    DeathCause,
    OutgoingBatch,
    OutgoingItem,
    WorkerDied,
    WorkerPort,
)
from pagemill.engine.state import EngineState
from pagemill.engine.supervisor import Supervisor, WorkerState
from pagemill.engine.task import Context, Result, Task
from pagemill.errors import AppError, Defect, Overloaded

DEFAULT_LIMIT_S: Final = 60.0


class Staff(Protocol):
    """Who keeps the workers running: the supervisor."""

    deaths: Counter[DeathCause]

    async def run(self) -> None:
        """Keep all workers running until cancelled."""
        ...

    async def leave(self) -> None:
        """Let every worker finish its batch and go."""
        ...

    def states(self) -> Sequence[WorkerState]:
        """Return every worker's state."""
        ...

    def stages(self) -> frozenset[str]:
        """Return every stage that some worker can do once it runs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """`stage_limit_s`: seconds an item of a stage may take before its worker counts as hung."""

    max_requests: int = 256
    stage_limit_s: Mapping[str, float] = field(default_factory=dict)

    def limit_s(self, stage: str) -> float:
        """Return one item's limit."""
        return self.stage_limit_s.get(stage, DEFAULT_LIMIT_S)


@dataclass(slots=True, eq=False)
class _Seat:
    """A worker that has joined, and what wakes it up."""

    port: WorkerPort
    wake: anyio.Event = field(default_factory=anyio.Event)


class Engine:
    """Runs native work safely, on behalf of requests. It is the workers' `Crew`."""

    def __init__(
        self,
        groups: Sequence[GroupSpec] = (),
        limits: EngineLimits | None = None,
        observer: Observer | None = None,
        *,
        staff: Staff | None = None,
    ) -> None:
        """Describe the engine; `serving` starts it. `staff` replaces the supervisor."""
        self._limits = limits or EngineLimits()
        self._observer = observer or NullObserver()
        self._supervisor = Supervisor(self, groups, _DeathWatch(self, self._observer))
        self._staff: Staff = staff or self._supervisor
        self._policy = Policy(Limits(max_requests=self._limits.max_requests))
        self._callers = Callers(self._policy, self._observer)
        self._asleep: dict[_Seat, None] = {}  # in the order in which they fell asleep
        self._able: Counter[str] = Counter()  # workers that can do a stage
        self._idle: Counter[str] = Counter()  # those of them that have no batch
        self._workers = 0
        self._emptied = anyio.Event()
        self.draining = False

    @property
    def supervisor(self) -> Supervisor:
        """Return who owns the worker processes."""
        return self._supervisor

    # --- life ---

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Engine"]:
        """Keep the workers running inside the block; end them after it.

        Whoever still waits for an item then gets `ShuttingDown`.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._staff.run)
            try:
                yield self
            finally:
                self._stop()
                with anyio.CancelScope(shield=True):
                    await self._staff.leave()
                group.cancel_scope.cancel()

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep the workers running until cancelled."""
        async with self.serving():
            task_status.started()
            await anyio.sleep_forever()

    async def drain(self, grace_s: float) -> None:
        """Refuse new requests; return when the accepted ones ended, or after `grace_s`.

        What is left then ends as `ShuttingDown`.
        """
        self.draining = True
        if self._policy.requests:
            with anyio.move_on_after(grace_s):
                await self._emptied.wait()
        self._stop()

    def _stop(self) -> None:
        self.draining = True
        self._callers.close()

    # --- requests ---

    @contextmanager
    def admit(
        self, context: Context, *, pipeline: str, stages: frozenset[str] = frozenset()
    ) -> Iterator[Context]:
        """Accept a request for the length of the block, or refuse it at the door.

        Yields the context to run its items with. `stages` are those it cannot do
        without.

        Raises:
            ShuttingDown, NotReady: no request is taken now.
            Overloaded: it would miss its deadline, or too many are accepted.

        """
        refusal = self._refusal(context, pipeline, stages)
        if refusal is not None:
            self._observer.shed(refusal.code)
            raise refusal
        admitted = self._policy.admit(context, pipeline=pipeline)
        try:
            yield admitted
        finally:
            self._policy.dismiss(admitted)
            if self.draining and not self._policy.requests:
                self._emptied.set()

    def _refusal(
        self, context: Context, pipeline: str, stages: frozenset[str]
    ) -> Overloaded | None:
        if self.draining:
            return callers.stopping()
        hopeless = sorted(stage for stage in stages if self._is_hopeless(stage))
        known = self._staff.stages()
        if not hopeless and known and all(map(self._is_hopeless, known)):
            hopeless = sorted(known)
        if hopeless:
            return callers.not_ready(", ".join(hopeless))
        late_s = self._policy.refusal_s(
            context,
            pipeline=pipeline,
            workers=self._hands(),
            now_s=anyio.current_time(),
        )
        if late_s is None:
            return None
        message = f"The server is busy; try again in {late_s:.0f} s."
        return Overloaded(message, retry_after_s=late_s)

    # --- items ---

    async def run(self, task: Task, context: Context) -> Result:
        """Return the stage's reply to one item of an admitted request.

        The caller keeps the task's buffers open until this returns. Cancelling it
        drops the item, or its reply when a worker has it already.

        Raises:
            AppError: BadInput of the stage, PoisonInput, DeadlineExceeded, WorkerLost,
                NotReady, ShuttingDown or Defect.

        """
        slot = self._accept(task, context)
        try:
            with anyio.CancelScope(deadline=context.deadline_s):
                await slot.done.wait()
        except BaseException:  # cancelled
            self._callers.withdraw(slot)
            raise
        if slot.outcome is None:
            self._callers.expire(slot)
        assert slot.outcome is not None
        if isinstance(slot.outcome, AppError):
            raise slot.outcome
        return slot.outcome

    def _accept(self, task: Task, context: Context) -> Slot:
        now_s = anyio.current_time()
        digest = item_digest(task.stage, task.payload, [b.identity for b in task.buffers])
        refusal = self._item_refusal(task, context, digest, now_s)
        if refusal is not None:
            raise refusal
        slot = self._callers.accept(task, context, digest, now_s=now_s)
        self._wake(task.stage)
        return slot

    def _item_refusal(
        self, task: Task, context: Context, digest: bytes, now_s: float
    ) -> AppError | None:
        if self._callers.closed:
            return callers.stopping()
        if context.deadline_s <= now_s:
            return callers.late()
        if self._policy.is_poison(digest, now_s=now_s):
            return callers.poisonous()
        if self._is_hopeless(task.stage):
            return callers.not_ready(task.stage)
        return self._defect(task, context)

    def _defect(self, task: Task, context: Context) -> Defect | None:
        """Return what is wrong with the pipeline that asks for this, if anything."""
        if not self._policy.is_admitted(context):
            return Defect(f"an item of {task.stage} outside of any admitted request")
        if len(task.buffers) > FDS_LIMIT or len(task.payload) > PAYLOAD_LIMIT_BYTES:
            return Defect(f"an item of {task.stage} is too large for a frame")
        return None

    # --- workers ---

    async def serve_worker(self, port: WorkerPort) -> None:
        """Give `port` batches until it dies or leaves (`port.Crew`)."""
        seat = _Seat(port)
        self._workers += 1
        self._able.update(port.stages)
        self._idle.update(port.stages)
        try:
            while not port.leaving:
                await self._run_batch(seat, await self._next_batch(seat))
        except WorkerDied:
            return  # its items were seen to
        finally:
            self._workers -= 1
            self._able.subtract(port.stages)
            self._idle.subtract(port.stages)
            self._wake_more()  # it may have been woken up for nothing

    async def _next_batch(self, seat: _Seat) -> list[Slot]:
        port = seat.port
        hands = Hands(stages=port.stages, able=self._able, idle=self._idle, batch=port.batch)
        while True:
            draw = self._policy.draw(hands, port.name, now_s=anyio.current_time())
            self._callers.expired(draw.expired)
            if draw.batch:
                self._wake_more()
                return self._callers.slots(draw.batch)
            seat.wake = anyio.Event()
            self._asleep[seat] = None
            try:
                await seat.wake.wait()
            finally:
                self._asleep.pop(seat, None)

    async def _run_batch(self, seat: _Seat, batch: list[Slot]) -> None:
        """Have a batch run. Nothing may wait between its draw and `port.run`."""
        port, stage, start_s = seat.port, batch[0].task.stage, anyio.current_time()
        self._observer.batch_sent(stage, len(batch))
        self._idle.subtract(port.stages)
        try:
            reply = await port.run(
                _outgoing(batch, together=port.batch > 1),
                limit_s=self._limits.limit_s(stage) * len(batch),
            )
        except WorkerDied as death:
            self._callers.lose(batch, death.cause)
            raise
        except BaseException:  # cancelled, by whoever owns the worker
            self._callers.lose(batch, DeathCause.LEFT)
            raise
        finally:
            self._idle.update(port.stages)
        self._callers.hand_out(batch, reply, generation=port.generation, start_s=start_s)

    def _wake(self, stage: str) -> None:
        """Wake one worker that can do `stage`; it takes what is there by then."""
        for seat in self._asleep:
            if stage in seat.port.stages:
                del self._asleep[seat]
                seat.wake.set()
                return

    def _wake_more(self) -> None:
        """Wake workers for what is left: no item waits while one sleeps that can do it."""
        if self._asleep:
            for stage, count in self._policy.queue.depths().items():
                if count:
                    self._wake(stage)

    # --- hope ---

    def _hands(self) -> int:
        """Return how many workers there are, counting those that are being restarted."""
        hopeful = sum(place.status != "broken" for place in self._staff.states())
        return max(self._workers, hopeful)

    def _is_hopeless(self, stage: str) -> bool:
        """Return whether no worker can do `stage` now, nor after an ordinary restart."""
        if self._able[stage]:
            return False
        places = [place for place in self._staff.states() if stage in place.stages]
        return stage not in self._staff.stages() or (
            bool(places) and all(place.status == "broken" for place in places)
        )

    def refuse_hopeless(self) -> None:
        """End the queued items that no worker can do any more."""
        depths = self._policy.queue.depths()
        hopeless = {stage for stage, count in depths.items() if count and self._is_hopeless(stage)}
        if hopeless:
            items = [item for item in self._policy.queued() if item.stage in hopeless]
            for slot in self._callers.slots(items):
                self._callers.refuse(slot, callers.not_ready(slot.task.stage))

    def snapshot(self) -> EngineState:
        """Return the engine's state at this moment."""
        doable = {stage for stage, count in self._able.items() if count}
        ledger = self._policy.ledger
        now_s = anyio.current_time()
        typical = Context(request_id="", deadline_s=now_s)
        return EngineState(
            workers=tuple(self._staff.states()),
            queued={stage: n for stage, n in self._policy.queue.depths().items() if n},
            running=ledger.count(State.RUNNING) + ledger.count(State.ABANDONED),
            requests=self._policy.requests,
            predicted_wait_s=self._policy.wait_s(typical, workers=self._hands()),
            draining=self.draining,
            missing=tuple(sorted(self._staff.stages() - doable)),
            quarantined=self._policy.quarantine.count(now_s=now_s),
            deaths=dict(self._staff.deaths),
        )


class _DeathWatch(NullObserver):
    """Hears of deaths from the supervisor: the last one may leave a stage hopeless."""

    def __init__(self, engine: Engine, observer: Observer) -> None:
        self._engine = engine
        self._observer = observer

    def worker_died(self, cause: DeathCause) -> None:
        self._observer.worker_died(cause)
        self._engine.refuse_hopeless()


def _outgoing(batch: Sequence[Slot], *, together: bool) -> OutgoingBatch:
    items = tuple(
        OutgoingItem(nonce=slot.item.nonce, payload=slot.task.payload, buffers=slot.task.buffers)
        for slot in batch
    )
    return OutgoingBatch(stage=batch[0].task.stage, items=items, together=together)
