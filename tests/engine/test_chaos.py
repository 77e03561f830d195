"""Real workers that die, hang, lie and swell: what the caller sees each time."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from pagemill.engine.buffers import Buffer
from pagemill.engine.group import GroupSpec
from pagemill.engine.messages import StageSetup
from pagemill.engine.port import DeathCause
from pagemill.engine.scheduler import Engine, EngineLimits
from pagemill.engine.task import Context, Result, Task
from pagemill.errors import AppError, BadInput, Defect, NotReady, PoisonInput
from tests.descriptors import open_descriptors

pytestmark = [pytest.mark.anyio, pytest.mark.chaos]
FAKES = "tests.engine.fake_stages"


def stage(name: str, load: str | None = None, **config: Any) -> StageSetup:
    return StageSetup(name=name, load=f"{FAKES}:{load or name}", config=config)


def spec(*stages: StageSetup, workers: int = 2, **options: Any) -> GroupSpec:
    return GroupSpec(name="test", stages=stages, cores=((),) * workers, **options)


async def settled(condition: Callable[[], bool]) -> None:
    while not condition():
        await anyio.sleep(0.01)


@dataclass
class Caller:
    """An engine and one admitted request on it."""

    engine: Engine
    context: Context

    async def ask(self, payload: str, *buffers: Buffer, stage: str = "trouble") -> str:
        task = Task(stage=stage, payload=payload.encode(), buffers=buffers)
        result: Result = await self.engine.run(task, self.context)
        for buffer in result.buffers:
            buffer.close()
        return result.payload.decode()

    async def outcome(self, payload: str, *, stage: str = "trouble") -> str:
        try:
            return await self.ask(payload, stage=stage)
        except AppError as error:
            return error.code

    async def all(self, *payloads: str) -> list[str]:
        outcomes: dict[int, str] = {}

        async def one(index: int, payload: str) -> None:
            outcomes[index] = await self.outcome(payload)

        async with anyio.create_task_group() as group:
            for index, payload in enumerate(payloads):
                group.start_soon(one, index, payload)
        return [outcomes[index] for index in range(len(payloads))]

    def deaths(self, cause: DeathCause) -> int:
        return self.engine.snapshot().deaths.get(cause, 0)

    async def died(self, cause: DeathCause, times: int) -> None:
        """Wait until as many deaths were seen; a death is counted once it is cleaned up."""
        await settled(lambda: self.deaths(cause) >= times)
        assert self.deaths(cause) == times

    def pids(self) -> list[int]:
        return [worker.pid for worker in self.engine.snapshot().workers if worker.pid]


@asynccontextmanager
async def calling(group: GroupSpec, *, limit_s: float = 30) -> AsyncIterator[Caller]:
    limits = EngineLimits(stage_limit_s=dict.fromkeys(("trouble", "echo", "pid", "liar"), limit_s))
    with anyio.fail_after(60):
        async with Engine([group], limits).serving() as engine:
            context = Context(request_id="test", deadline_s=anyio.current_time() + 50)
            with engine.admit(context, pipeline="test") as admitted:
                yield Caller(engine, admitted)


TROUBLE = stage("trouble")


@pytest.mark.parametrize(
    ("payload", "cause"),
    [
        ("segfault", DeathCause.CRASH),
        ("abort", DeathCause.CRASH),
        ("exit", DeathCause.EXIT),
    ],
)
async def test_what_kills_its_worker_twice_is_poison_and_its_mates_are_answered(
    payload: str, cause: DeathCause
) -> None:
    async with calling(spec(TROUBLE)) as caller:
        outcomes = await caller.all("ok 1", payload, "ok 2", "ok 3")
        assert outcomes == ["ok 1", "poison_input", "ok 2", "ok 3"]
        await settled(lambda: caller.deaths(cause) >= 2)


async def test_poison_is_refused_at_once_the_next_time() -> None:
    async with calling(spec(TROUBLE)) as caller:
        assert await caller.outcome("abort") == "poison_input"
        deaths = caller.deaths(DeathCause.CRASH)
        with pytest.raises(PoisonInput):
            await caller.ask("abort")
        assert caller.deaths(DeathCause.CRASH) == deaths


async def test_what_kills_once_is_answered_the_second_time(tmp_path: Path) -> None:
    payload = f"once {tmp_path / 'flag'}"
    async with calling(spec(TROUBLE)) as caller:
        assert await caller.ask(payload) == payload
        await caller.died(DeathCause.CRASH, 1)


async def test_a_hung_worker_is_killed_at_its_limit() -> None:
    async with calling(spec(TROUBLE), limit_s=0.5) as caller:
        assert await caller.all("hang", "ok 1") == ["poison_input", "ok 1"]
        await caller.died(DeathCause.HANG, 2)


async def test_a_worker_killed_from_outside_costs_no_answer(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with calling(spec(TROUBLE, workers=1)) as caller:
        outcomes: list[str] = []

        async def ask() -> None:
            outcomes.append(await caller.outcome(f"wait {gate}"))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            for kill in range(3):  # more often than poison would allow
                writer = await anyio.to_thread.run_sync(os.open, gate, os.O_WRONLY)
                (pid,) = caller.pids()
                os.kill(pid, signal.SIGKILL)
                os.close(writer)
                await caller.died(DeathCause.KILLED, kill + 1)
            writer = await anyio.to_thread.run_sync(os.open, gate, os.O_WRONLY)
            os.close(writer)
        assert outcomes == [f"wait {gate}"]


async def test_memory_over_the_cap_is_a_death_by_memory() -> None:
    group = spec(TROUBLE, workers=1, max_rss_bytes=100 << 20, hard_rss_bytes=200 << 20)
    async with calling(group, limit_s=20) as caller:
        assert await caller.outcome("eat 150") == "eat 150"  # over the soft cap: it retires
        assert await caller.outcome("ok 1") == "ok 1"
        await caller.died(DeathCause.LEFT, 1)


async def test_a_worker_retires_after_its_tasks_and_another_goes_on() -> None:
    async with calling(spec(stage("pid"), workers=1, max_tasks=2)) as caller:
        pids = [await caller.ask("", stage="pid") for _ in range(6)]
        assert len(set(pids)) == 3
        await settled(lambda: caller.deaths(DeathCause.LEFT) >= 2)


@pytest.mark.parametrize("kind", ["nonce", "digest", "buffers", "garbage"])
async def test_an_answer_out_of_contract_is_never_handed_on(kind: str) -> None:
    async with calling(spec(stage("liar", kind=kind), workers=1)) as caller:
        assert await caller.outcome("mine", stage="liar") == "poison_input"
        await caller.died(DeathCause.PROTOCOL, 2)


async def test_a_bad_input_fails_alone_and_costs_no_worker() -> None:
    async with calling(spec(TROUBLE)) as caller:
        assert await caller.all("bad", "ok 1") == ["bad_input", "ok 1"]
        with pytest.raises(BadInput, match="it is bad"):
            await caller.ask("bad")
        assert caller.engine.snapshot().deaths == {}


async def test_a_fault_of_ours_is_a_defect_and_costs_no_worker() -> None:
    async with calling(spec(TROUBLE)) as caller:
        with pytest.raises(Defect) as caught:
            await caller.ask("defect")
        assert not caught.value.public
        assert caller.engine.snapshot().deaths == {}


@pytest.mark.parametrize("load", ["unfit", "unloadable", "dies_loading"])
async def test_a_stage_that_cannot_join_is_named_and_requests_are_told(
    load: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagemill.engine.restarts.FIRST_WAIT_S", 0.001)
    async with calling(spec(stage("trouble", load), workers=1)) as caller:
        with pytest.raises(NotReady, match="trouble"):
            await caller.ask("ok")
        state = caller.engine.snapshot()
        assert state.missing == ("trouble",)
        assert state.workers[0].status == "broken"
        assert state.workers[0].why


async def test_buffers_come_back_and_no_descriptor_stays() -> None:
    async with calling(spec(stage("echo"), TROUBLE)) as caller:
        await caller.ask("warm", stage="echo")
        before = open_descriptors()
        with Buffer.of(b"pixels") as buffer:
            task = Task(stage="echo", payload=b"p", buffers=(buffer, buffer))
            result = await caller.engine.run(task, caller.context)
            assert [each.read() for each in result.buffers] == [b"pixels", b"pixels"]
            for each in result.buffers:
                each.close()
            await caller.outcome("abort")
            assert await caller.ask("still", buffer, stage="echo") == "still"
        await caller.all(*(f"ok {n}" for n in range(100)))
        await settled(lambda: len(caller.pids()) == 2 and not caller.engine.snapshot().missing)
        assert open_descriptors() == before


async def test_a_swap_takes_over_and_a_broken_one_keeps_the_old() -> None:
    async with calling(spec(stage("pid", generation="old"))) as caller:
        assert "old" in await caller.ask("", stage="pid")
        supervisor = caller.engine.supervisor
        assert await supervisor.swap("test", (stage("pid", generation="new"),)) == 2
        assert "new" in await caller.ask("", stage="pid")
        with pytest.raises(AppError):
            await supervisor.swap("test", (stage("pid", "unfit"),))
        assert "new" in await caller.ask("", stage="pid")
        assert len(caller.pids()) == 2


async def test_no_worker_outlives_the_engine() -> None:
    async with calling(spec(TROUBLE)) as caller:
        await caller.all("ok 1", "ok 2")
        await settled(lambda: len(caller.pids()) == 2)
        pids = caller.pids()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
