"""Groups of real workers: kept up, replaced, given up for a while, and sent home."""

import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from pagemill.engine.group import GroupSpec
from pagemill.engine.messages import StageSetup
from pagemill.engine.observer import NullObserver
from pagemill.engine.port import (
    DeathCause,
    ItemReply,
    OutgoingBatch,
    OutgoingItem,
    WorkerDied,
    WorkerPort,
)
from pagemill.engine.supervisor import Supervisor, WorkerState
from pagemill.errors import BadOption, Defect, ShuttingDown
from tests.descriptors import open_descriptors

pytestmark = pytest.mark.anyio
FAKES = "tests.engine.fake_stages"


def stage(load: str, **config: Any) -> StageSetup:
    return StageSetup(name="stage", load=f"{FAKES}:{load}", config=config)


def group(*stages: StageSetup, count: int = 2, **options: Any) -> GroupSpec:
    return GroupSpec(name="group", stages=stages, cores=((),) * count, **options)


@dataclass
class Workers:
    """A crew that has no work; it notes who joins and goes, and how many there are."""

    ports: list[WorkerPort] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    faults: int = 0
    busy_with: OutgoingBatch | None = None
    ends: list[DeathCause] = field(default_factory=list)

    async def serve_worker(self, port: WorkerPort) -> None:
        self.ports.append(port)
        self.counts.append(len(self.ports))
        try:
            if self.faults:
                self.faults -= 1
                message = "a fault of the crew"
                raise RuntimeError(message)
            if self.busy_with:
                await port.run(self.busy_with, limit_s=20)
            await anyio.sleep_forever()
        except WorkerDied as death:
            self.ends.append(death.cause)
        finally:
            self.ports.remove(port)
            self.counts.append(len(self.ports))


@dataclass
class Staff:
    """A running supervisor and its crew."""

    crew: Workers
    supervisor: Supervisor

    def states(self) -> Sequence[WorkerState]:
        return self.supervisor.states()

    def statuses(self) -> list[str]:
        return [state.status for state in self.states()]

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await anyio.sleep(0.005)

    async def all_joined(self) -> None:
        await self.until(lambda: len(self.crew.ports) == len(self.states()) > 0)


@asynccontextmanager
async def staffed(spec: GroupSpec, crew: Workers | None = None) -> AsyncIterator[Staff]:
    crew = crew or Workers()
    supervisor = Supervisor(crew, [spec], NullObserver())
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await anyio.wait_all_tasks_blocked()
            yield Staff(crew, supervisor)
            tasks.cancel_scope.cancel()


async def answer(port: WorkerPort, payload: bytes = b"ok") -> bytes:
    item = OutgoingItem(nonce=1, payload=payload, buffers=())
    reply = await port.run(OutgoingBatch(stage="stage", items=(item,)), limit_s=10)
    (only,) = reply.replies
    assert isinstance(only, ItemReply)
    return only.payload


async def test_every_worker_joins_and_says_what_it_is() -> None:
    async with staffed(group(stage("echo"))) as staff:
        await staff.all_joined()
        assert staff.statuses() == ["idle", "idle"]
        for state in staff.states():
            assert state.pid is not None
            assert state.rss_bytes > 0
            assert state.load_s is not None
            assert (state.generation, state.why) == (1, "")


async def test_a_worker_killed_while_idle_is_replaced_and_counted() -> None:
    async with staffed(group(stage("echo"), count=1)) as staff:
        await staff.all_joined()
        (before,) = staff.states()
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        await staff.until(lambda: staff.states()[0].pid not in (None, before.pid))
        await staff.all_joined()
        assert staff.supervisor.deaths == {DeathCause.KILLED: 1}


async def test_a_death_is_counted_before_its_batch_is_told() -> None:
    counted: list[int] = []

    class Asking(Workers):
        async def serve_worker(self, port: WorkerPort) -> None:
            try:
                await answer(port, b"abort")
            except WorkerDied as death:
                counted.append(staff.supervisor.deaths[death.cause])
            await anyio.sleep_forever()

    async with staffed(group(stage("trouble"), count=1), Asking()) as staff:
        await staff.until(lambda: bool(counted))
        assert counted[0] == 1


async def test_a_broken_place_stays_broken_while_it_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pagemill.engine.restarts.FIRST_WAIT_S", 0.001)
    monkeypatch.setattr("pagemill.engine.restarts.BROKEN_WAIT_S", 0.001)
    async with staffed(group(stage("unfit"), count=1)) as staff:
        await staff.until(lambda: staff.statuses() == ["broken"])
        deaths = staff.supervisor.deaths.total()
        while staff.supervisor.deaths.total() < deaths + 2:
            assert staff.statuses() == ["broken"]
            assert "2 and 2 make 5" in staff.states()[0].why
            await anyio.sleep(0.005)


async def test_a_system_without_processes_to_spare_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = open_descriptors()
    real = anyio.open_process
    failures = [OSError("no process left")]

    async def scarce(*args: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return await real(*args, **options)

    monkeypatch.setattr(anyio, "open_process", scarce)
    async with staffed(group(stage("echo"), count=1)) as staff:
        await staff.all_joined()
        assert staff.supervisor.deaths == {DeathCause.EXIT: 1}
    assert open_descriptors() == before


async def test_a_fault_of_the_crew_ends_one_worker_and_not_the_server() -> None:
    async with staffed(group(stage("echo"), count=1), Workers(faults=1)) as staff:
        await staff.until(lambda: staff.crew.counts == [1, 0, 1])
        assert staff.statuses() == ["idle"]


async def test_a_swap_goes_worker_by_worker() -> None:
    async with staffed(group(stage("pid", generation="old"), count=3)) as staff:
        await staff.all_joined()
        staff.crew.counts.clear()
        assert await staff.supervisor.swap("group", (stage("pid", generation="new"),)) == 2
        assert staff.crew.counts == [4, 3] * 3
        assert [state.generation for state in staff.states()] == [2, 2, 2]
        assert [b"new" in await answer(port) for port in staff.crew.ports] == [True] * 3


async def test_a_swap_that_fails_half_way_brings_the_old_back(tmp_path: Path) -> None:
    async with staffed(group(stage("pid", generation="old"))) as staff:
        await staff.all_joined()
        staff.crew.counts.clear()
        with pytest.raises(Defect, match="loaded before"):
            await staff.supervisor.swap("group", (stage("loads_once", flag=f"{tmp_path}/flag"),))
        assert min(staff.crew.counts) == 2
        assert [state.generation for state in staff.states()] == [1, 1]
        assert [b"old" in await answer(port) for port in staff.crew.ports] == [True] * 2


async def test_a_swap_that_is_cancelled_leaves_the_old_in_place(tmp_path: Path) -> None:
    flag = tmp_path / "loading"
    async with staffed(group(stage("pid", generation="old"))) as staff:
        await staff.all_joined()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                staff.supervisor.swap, "group", (stage("stuck_loading", flag=str(flag)),)
            )
            await staff.until(flag.exists)
            tasks.cancel_scope.cancel()
        assert [state.generation for state in staff.states()] == [1, 1]
        assert staff.statuses() == ["idle", "idle"]


async def test_only_a_group_that_is_there_can_be_swapped() -> None:
    async with staffed(group(stage("echo"), count=1)) as staff:
        with pytest.raises(BadOption):
            await staff.supervisor.swap("other", ())


async def test_a_worker_may_end_its_batch_before_it_leaves(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    item = OutgoingItem(nonce=1, payload=f"wait {gate}".encode(), buffers=())
    crew = Workers(busy_with=OutgoingBatch(stage="stage", items=(item,)))
    async with staffed(group(stage("trouble"), count=1), crew) as staff:
        writer = await anyio.to_thread.run_sync(os.open, gate, os.O_WRONLY)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(staff.supervisor.leave)
            await staff.until(lambda: staff.statuses() == ["leaving"])
            os.close(writer)
        assert crew.ends == []
        assert staff.states() == []
        assert staff.supervisor.deaths == {DeathCause.LEFT: 1}


async def test_a_worker_that_does_not_leave_in_time_is_ended_and_nobody_blamed(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    item = OutgoingItem(nonce=1, payload=f"wait {gate}".encode(), buffers=())
    crew = Workers(busy_with=OutgoingBatch(stage="stage", items=(item,)))
    async with staffed(group(stage("trouble"), count=1), crew) as staff:
        writer = await anyio.to_thread.run_sync(os.open, gate, os.O_WRONLY)
        await staff.supervisor.leave(grace_s=0)
        assert crew.ends == [DeathCause.LEFT]
        os.close(writer)


async def test_after_leaving_nothing_starts() -> None:
    async with staffed(group(stage("echo"), count=1)) as staff:
        await staff.all_joined()
        await staff.supervisor.leave()
        with pytest.raises(ShuttingDown):
            await staff.supervisor.swap("group", (stage("pid"),))
        assert staff.states() == []


async def test_the_end_of_the_supervisor_is_the_end_of_busy_workers_too(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    item = OutgoingItem(nonce=1, payload=f"wait {gate}".encode(), buffers=())
    crew = Workers(busy_with=OutgoingBatch(stage="stage", items=(item,)))
    before = open_descriptors()
    async with staffed(group(stage("trouble"), count=1), crew) as staff:
        writer = await anyio.to_thread.run_sync(os.open, gate, os.O_WRONLY)
        pid = staff.states()[0].pid
    os.close(writer)
    assert f"{pid}" not in os.listdir("/proc")
    assert crew.ends == [DeathCause.LEFT]
    assert open_descriptors() == before
