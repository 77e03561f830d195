"""Keeps worker processes running: starts, restarts, replaces and ends them."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import anyio
import structlog

from pagemill.engine import restarts
from pagemill.engine.buffers import raise_descriptor_limit
from pagemill.engine.group import GroupSpec
from pagemill.engine.messages import StageSetup
from pagemill.engine.observer import Observer
from pagemill.engine.port import Crew, DeathCause, WorkerDied
from pagemill.engine.process import WorkerProcess
from pagemill.errors import AppError, BadOption, NotReady, ShuttingDown

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

LEAVE_GRACE_S: Final = 10.0
WorkerStatus = Literal["starting", "idle", "busy", "leaving", "waiting", "broken"]
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """One worker's place, for /health and /metrics. `why` says what is wrong."""

    name: str
    group: str
    stages: frozenset[str]
    status: WorkerStatus
    generation: int
    pid: int | None
    rss_bytes: int
    load_s: float | None
    facts: dict[str, str]
    why: str


class Supervisor:
    """Owns every worker process."""

    def __init__(self, crew: Crew, specs: Sequence[GroupSpec], observer: Observer) -> None:
        """Describe the workers; `run` starts them. `crew` gets each one that joins."""
        self._crew = crew
        self._observer = observer
        self._specs = {spec.name: spec for spec in specs}
        self._places: list[_Place] = []
        self._group: TaskGroup | None = None
        self._generation = 1  # the last one tried
        self._served = dict.fromkeys(self._specs, 1)  # each group's
        self._leaving = False
        self._swapping = anyio.Lock()
        self.deaths: Counter[DeathCause] = Counter()

    async def run(self) -> None:
        """Keep all workers running until cancelled; then end them."""
        raise_descriptor_limit()
        async with anyio.create_task_group() as group:
            self._group = group
            for spec in self._specs.values():
                for number in range(spec.count):
                    self._open_place(spec, number, self._generation)
            await anyio.sleep_forever()  # each place ends its own worker

    def states(self) -> list[WorkerState]:
        """Return every place's state."""
        return [place.state() for place in self._places]

    def stages(self) -> frozenset[str]:
        """Return every stage that some group can do once it runs."""
        return frozenset().union(*(spec.stage_names for spec in self._specs.values()))

    def note_death(self, cause: DeathCause) -> None:
        """Count a death."""
        self.deaths[cause] += 1
        self._observer.worker_died(cause)

    async def leave(self, grace_s: float = LEAVE_GRACE_S) -> None:
        """Let every worker finish its batch and go; no other starts."""
        self._leaving = True
        async with anyio.create_task_group() as group:
            for place in self._places:
                group.start_soon(place.stop, grace_s)
        self._places.clear()

    async def swap(self, group_name: str, stages: tuple[StageSetup, ...]) -> int:
        """Replace a group's workers by ones with other stages; return their generation.

        Worker by worker: a new one loads and joins, then an old one leaves. So there
        is memory for one more, not for as many again. Swaps run one after the other.

        Raises:
            AppError: a new worker did not join, and as many old ones run as before;
                or there is no such group.

        """
        async with self._swapping:
            self._refuse_when_leaving()
            if group_name not in self._specs:
                message = f"There is no worker group {group_name}."
                raise BadOption(message)
            spec = replace(self._specs[group_name], stages=stages)
            self._generation += 1
            generation = self._generation
            try:
                await self._replace_all(spec, generation)
            except BaseException:  # cancelled, too
                with anyio.CancelScope(shield=True):
                    await self._restore(group_name)
                raise
            self._specs[group_name] = spec
            self._served[group_name] = generation
            return generation

    async def _replace_all(self, spec: GroupSpec, generation: int) -> None:
        old = [place for place in self._places if place.spec.name == spec.name]
        for number, leaver in enumerate(old):
            await self._open_place(spec, number, generation).wait_joined()
            await self._close_place(leaver)

    async def _restore(self, group_name: str) -> None:
        """Start what was replaced anew, and end what replaced it."""
        spec, generation = self._specs[group_name], self._served[group_name]
        ours = [place for place in self._places if place.spec.name == group_name]
        kept = {place.number for place in ours if place.generation == generation}
        for number in sorted(set(range(spec.count)) - kept):
            with contextlib.suppress(AppError):  # it goes on trying
                await self._open_place(spec, number, generation).wait_joined()
        for place in ours:
            if place.generation != generation:
                await self._close_place(place)

    def _open_place(self, spec: GroupSpec, number: int, generation: int) -> "_Place":
        self._refuse_when_leaving()
        assert self._group is not None, "not running"
        place = _Place(self, self._crew, spec, number=number, generation=generation)
        self._places.append(place)
        self._group.start_soon(place.keep)
        return place

    def _refuse_when_leaving(self) -> None:
        if self._leaving:
            message = "The workers are leaving; none is started."
            raise ShuttingDown(message, retry_after_s=1)

    async def _close_place(self, place: "_Place") -> None:
        await place.stop(LEAVE_GRACE_S)
        if place in self._places:  # else all were told to leave
            self._places.remove(place)


class _Place:
    """Where one worker runs, and after it the next."""

    def __init__(
        self, supervisor: Supervisor, crew: Crew, spec: GroupSpec, *, number: int, generation: int
    ) -> None:
        self.spec = spec
        self.name = f"{spec.name}-{number}"
        self._supervisor = supervisor
        self._crew = crew
        self.number = number
        self.generation = generation
        self._record = restarts.Record()
        self._process: WorkerProcess | None = None
        self._idle_scope: anyio.CancelScope | None = None
        self._stopping = False
        self._stopped = anyio.Event()
        self._first_try = anyio.Event()
        self._joined_once = False
        self._refusal: AppError | None = None
        self._scope = anyio.CancelScope()

    def state(self) -> WorkerState:
        process, joined = self._process, self._process.joined if self._process else None
        return WorkerState(
            name=self.name,
            group=self.spec.name,
            stages=self.spec.stage_names,
            status=self._status(process),
            generation=self.generation,
            pid=process.pid if process else None,
            rss_bytes=process.rss_bytes if process else 0,
            load_s=joined.load_s if joined else None,
            facts=joined.facts if joined else {},
            why="" if joined else self._record.why,
        )

    def _status(self, process: WorkerProcess | None) -> WorkerStatus:
        if (process is None or process.joined is None) and self._record.broken:
            return "broken"  # a new try makes it no better before it joins
        if process is None:
            return "waiting"
        if process.joined is None:
            return "starting"
        if process.leaving:
            return "leaving"
        return "busy" if process.busy else "idle"

    async def keep(self) -> None:
        """Run workers here, one after the other, until stopped."""
        try:
            with self._scope:
                while not self._stopping:
                    await anyio.sleep(restarts.wait_s(self._record))
                    await self._try_one()
        finally:
            self._stopped.set()
            self._first_try.set()

    async def _try_one(self) -> None:
        """Run one worker to its end; a fault of the system's or of ours is one too."""
        process = WorkerProcess(
            self.name,
            self.spec,
            generation=self.generation,
            cores=self.spec.cores[self.number],
            on_end=self._on_end,
        )
        try:
            cause, why = await self._run_one(process)
        except Exception as error:  # noqa: BLE001 - the supervisor: no fault here may end the server
            _log.exception("worker_not_run", worker=self.name)
            cause, why = DeathCause.EXIT, repr(error)
        self._note(process, cause, why)

    async def _run_one(self, process: WorkerProcess) -> tuple[DeathCause, str]:
        try:
            await process.start()
            self._process = process
            async with anyio.create_task_group() as watchers:
                watchers.start_soon(process.kill_when_cancelled)
                watchers.start_soon(process.read_stderr)
                watchers.start_soon(process.watch_memory)
                ended = await self._serve(process)
                await process.last_words()
                watchers.cancel_scope.cancel()
            return ended
        finally:
            with anyio.CancelScope(shield=True):
                await process.close()
            self._process = None

    async def _serve(self, process: WorkerProcess) -> tuple[DeathCause, str]:
        """Join the worker to the crew until it is gone; return why it went."""
        try:
            joined = await process.join()
        except WorkerDied as death:
            return death.cause, ""
        except AppError as refusal:
            self._refusal = refusal
            await process.cause()
            return DeathCause.EXIT, refusal.message
        self._joined_once = True
        self._first_try.set()
        _log.info(
            "worker_joined", worker=self.name, pid=process.pid, load_s=round(joined.load_s, 3)
        )
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch_end, process)
            with anyio.CancelScope() as self._idle_scope:
                await self._crew.serve_worker(process)
            if process.leaving:
                await process.leave(LEAVE_GRACE_S)
            cause = await process.cause()
        return cause, ""

    async def _watch_end(self, process: WorkerProcess) -> None:
        await process.wait_ended()
        if self._idle_scope is not None:
            self._idle_scope.cancel()  # a batch in work ends by itself, as WorkerDied

    def _on_end(self, cause: DeathCause) -> None:
        if self._process is not None and self._process.joined is not None:
            self._supervisor.note_death(cause)

    def _note(self, process: WorkerProcess, cause: DeathCause, why: str) -> None:
        joined = process.joined is not None
        if process.tasks_done:
            self._record = restarts.after_answer(self._record)
        self._record = restarts.after_death(self._record, cause, joined=joined, why=why)
        if not joined:  # counted only now: whoever hears of it finds the place broken
            self._supervisor.note_death(cause)
        level = _log.info if cause is DeathCause.LEFT else _log.error
        stderr = [] if cause is DeathCause.LEFT else list(process.stderr)
        level("worker_ended", worker=self.name, cause=cause.value, why=why, stderr=stderr)
        if not joined:
            self._first_try.set()

    async def wait_joined(self) -> None:
        """Wait until the first worker here has joined.

        Raises:
            AppError: it did not.

        """
        await self._first_try.wait()
        if self._joined_once:
            return
        message = f"The new worker did not join: {self._record.why or 'it died'}."
        raise self._refusal or NotReady(message)

    async def stop(self, grace_s: float) -> None:
        """Let the worker finish its batch and go; no other follows."""
        self._stopping = True
        process = self._process
        if process is None or process.joined is None:
            self._scope.cancel()
        else:
            process.leaving = True
            if self._idle_scope is not None:
                self._idle_scope.cancel()  # after its batch, if it has one
        with anyio.move_on_after(grace_s) as limit:
            await self._stopped.wait()
        if limit.cancelled_caught:
            self._scope.cancel()
            await self._stopped.wait()
