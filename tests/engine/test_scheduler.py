"""The engine with workers that are no processes: who gets which answer, and when."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest
from anyio.abc import TaskGroup

from pagemill.engine.buffers import Buffer
from pagemill.engine.observer import NullObserver
from pagemill.engine.port import (
    BatchReply,
    DeathCause,
    ItemReply,
    OutgoingBatch,
    WorkerDied,
)
from pagemill.engine.scheduler import Engine, EngineLimits
from pagemill.engine.supervisor import WorkerState
from pagemill.engine.task import Context, Result, Task
from pagemill.errors import (
    AppError,
    BadInput,
    DeadlineExceeded,
    NotReady,
    Overloaded,
    PoisonInput,
    ShuttingDown,
    WorkerLost,
)
from tests.descriptors import open_descriptors

pytestmark = pytest.mark.anyio
Answer = Callable[[OutgoingBatch], Awaitable[BatchReply]]
READ = frozenset({"read"})


def echo(batch: OutgoingBatch) -> BatchReply:
    replies = tuple(ItemReply(payload=item.payload, buffers=()) for item in batch.items)
    return BatchReply(replies=replies, seconds=(0.0,) * len(replies))


def payloads(batch: OutgoingBatch) -> list[str]:
    return [item.payload.decode() for item in batch.items]


@dataclass(eq=False)
class Port:
    """A worker: notes its batches, waits at its gate, then answers or dies."""

    name: str = "w"
    stages: frozenset[str] = READ
    batch: int = 1
    generation: int = 7
    leaving: bool = False
    deadly: Callable[[list[str]], DeathCause | None] = lambda _: None
    answer: Callable[[OutgoingBatch], BatchReply] = echo
    gate: anyio.Event = field(default_factory=anyio.Event)
    batches: list[list[str]] = field(default_factory=list)

    async def run(self, batch: OutgoingBatch, *, limit_s: float) -> BatchReply:
        assert limit_s > 0
        self.batches.append(payloads(batch))
        await self.gate.wait()
        cause = self.deadly(payloads(batch))
        if cause is not None:
            raise WorkerDied(cause)
        return self.answer(batch)


def open_port(
    *, deadly: Callable[[list[str]], DeathCause | None] = lambda _: None, name: str = "w"
) -> Port:
    port = Port(name=name, deadly=deadly)
    port.gate.set()
    return port


@dataclass
class FakeStaff:
    """A supervisor that supervises nobody."""

    known: frozenset[str] = READ
    places: list[WorkerState] = field(default_factory=list)
    deaths: Counter[DeathCause] = field(default_factory=Counter)

    async def run(self) -> None:
        await anyio.sleep_forever()

    async def leave(self) -> None:
        pass

    def states(self) -> Sequence[WorkerState]:
        return self.places

    def stages(self) -> frozenset[str]:
        return self.known


class Notes(NullObserver):
    """What the observer is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def item_finished(self, stage: str, wait_s: float, run_s: float, outcome: str) -> None:
        assert wait_s >= 0
        assert run_s >= 0
        self.told.append(f"{stage} {outcome}")

    def batch_sent(self, stage: str, items: int) -> None:
        self.told.append(f"sent {items} {stage}")

    def retried(self, stage: str) -> None:
        self.told.append(f"retried {stage}")

    def quarantined(self) -> None:
        self.told.append("quarantined")

    def shed(self, reason: str) -> None:
        self.told.append(f"shed {reason}")


@dataclass
class House:
    """An engine and what the test hears of it."""

    engine: Engine
    staff: FakeStaff
    notes: Notes
    tasks: TaskGroup
    heard: list[str] = field(default_factory=list)

    def join(self, *ports: Port) -> None:
        for port in ports:
            self.tasks.start_soon(self._keep, port)

    async def _keep(self, port: Port) -> None:
        while not port.leaving:  # as the supervisor does: another one takes its place
            await self.engine.serve_worker(port)

    def ask(self, context: Context, *names: str, stage: str = "read") -> None:
        """Run items side by side; how each ends is heard."""
        for name in names:
            self.tasks.start_soon(self._ask, Task(stage=stage, payload=name.encode()), context)

    async def _ask(self, task: Task, context: Context) -> None:
        name = task.payload.decode()
        try:
            result = await self.engine.run(task, context)
            self.heard.append(f"{name}={result.payload.decode()}")
        except AppError as error:
            self.heard.append(f"{name}!{error.code}")


def context(left_s: float = 100.0) -> Context:
    return Context(request_id="r", deadline_s=anyio.current_time() + left_s)


@asynccontextmanager
async def house(limits: EngineLimits | None = None) -> AsyncIterator[House]:
    staff, notes = FakeStaff(), Notes()
    engine = Engine((), limits, notes, staff=staff)
    async with anyio.create_task_group() as tasks:
        yield House(engine=engine, staff=staff, notes=notes, tasks=tasks)
        tasks.cancel_scope.cancel()
    engine._policy.ledger.check()


async def settled() -> None:
    await anyio.wait_all_tasks_blocked()


async def test_an_item_gets_its_own_answer() -> None:
    async with house() as home:
        home.join(open_port())
        with home.engine.admit(context(), pipeline="ocr") as mine:
            result = await home.engine.run(Task(stage="read", payload=b"x"), mine)
    assert result == Result(payload=b"x", buffers=(), generation=7)
    assert home.notes.told == ["sent 1 read", "read ok"]


async def test_items_wait_for_a_worker_that_is_yet_to_come() -> None:
    async with house() as home:
        with home.engine.admit(context(), pipeline="ocr") as mine:
            home.ask(mine, "a", "b")
            await settled()
            assert home.heard == []
            home.join(open_port())
            await settled()
    assert sorted(home.heard) == ["a=a", "b=b"]


async def test_two_idle_workers_share_what_comes_at_once() -> None:
    async with house() as home:
        ports = [Port(name="v"), Port(name="w")]
        home.join(*ports)
        await settled()
        with home.engine.admit(context(), pipeline="ocr") as mine:
            home.ask(mine, "a", "b")
            await settled()
            assert [port.batches for port in ports] == [[["a"]], [["b"]]]


async def test_two_requests_take_turns() -> None:
    one_asks, two_asks = ("a1", "a2", "a3"), ("b1", "b2", "b3")
    async with house() as home:
        port = Port()
        with (
            home.engine.admit(context(), pipeline="ocr") as one,
            home.engine.admit(context(), pipeline="ocr") as two,
        ):
            home.ask(one, *one_asks)
            await settled()
            home.ask(two, *two_asks)
            await settled()
            home.join(port)
            port.gate.set()
            await settled()
    assert port.batches[:2] == [["a1"], ["b1"]]
    assert sorted(home.heard) == sorted(f"{name}={name}" for name in [*one_asks, *two_asks])


async def test_a_failed_item_fails_alone() -> None:
    def answer(batch: OutgoingBatch) -> BatchReply:
        replies = tuple(
            BadInput("no") if item.payload == b"bad" else ItemReply(payload=b"ok", buffers=())
            for item in batch.items
        )
        return BatchReply(replies=replies, seconds=(0.0,) * len(replies))

    async with house() as home:
        with home.engine.admit(context(), pipeline="ocr") as mine:
            home.ask(mine, "bad", "good")
            await settled()
            port = open_port()
            port.answer = answer
            home.join(port)
            await settled()
    assert home.heard == ["bad!bad_input", "good=ok"]


def poison(names: list[str]) -> DeathCause | None:
    return DeathCause.CRASH if "p" in names else None


async def batch_of_three(home: House, mine: Context, port: Port) -> None:
    """Have a, p and b sent as one batch: their costs are known to be small by then."""
    home.join(port)
    home.ask(mine, "warm")
    await settled()
    port.gate = anyio.Event()
    home.ask(mine, "hold")
    await settled()
    home.ask(mine, "a", "p", "b")
    await settled()
    port.gate.set()
    await settled()


async def test_a_poison_item_ends_alone_and_its_mates_are_answered() -> None:
    async with house() as home:
        port = open_port(deadly=poison)
        with home.engine.admit(context(), pipeline="ocr") as mine:
            await batch_of_three(home, mine, port)
            assert port.batches[2:] == [["a", "p", "b"], ["a"], ["p"], ["b"]]
            assert sorted(home.heard[2:]) == ["a=a", "b=b", "p!poison_input"]
            with pytest.raises(PoisonInput):
                await home.engine.run(Task(stage="read", payload=b"p"), mine)
    assert Counter(home.notes.told)["retried read"] == 3
    assert Counter(home.notes.told)["quarantined"] == 1


async def test_queued_copies_of_a_poison_item_cost_no_more_workers() -> None:
    async with house() as home:
        port = open_port(deadly=poison)
        with home.engine.admit(context(), pipeline="ocr") as mine:
            home.ask(mine, "p", "p", "p")
            await settled()
            home.join(port)
            await settled()
    assert home.heard == ["p!poison_input"] * 3
    assert len(port.batches) == 2


async def test_a_kill_from_outside_is_not_seen_by_anyone() -> None:
    causes = [DeathCause.KILLED, DeathCause.KILLED, DeathCause.LEFT]
    async with house() as home:
        port = open_port(deadly=lambda _: causes.pop() if causes else None)
        with home.engine.admit(context(), pipeline="ocr") as mine:
            home.join(port)
            home.ask(mine, "a")
            await settled()
    assert home.heard == ["a=a"]
    assert len(port.batches) == 4


async def test_an_item_that_outlives_eight_workers_is_lost() -> None:
    async with house() as home:
        port = open_port(deadly=lambda _: DeathCause.KILLED)
        home.join(port)
        with (
            home.engine.admit(context(), pipeline="ocr") as mine,
            pytest.raises(WorkerLost),
        ):
            await home.engine.run(Task(stage="read", payload=b"a"), mine)
    assert len(port.batches) == 8


async def test_a_worker_taken_away_gives_its_items_to_another() -> None:
    async with house() as home:
        port = Port()
        with home.engine.admit(context(), pipeline="ocr") as mine:
            async with anyio.create_task_group() as owner:
                owner.start_soon(home.engine.serve_worker, port)
                home.ask(mine, "a")
                await settled()
                owner.cancel_scope.cancel()
            home.join(open_port())
            await settled()
    assert (port.batches, home.heard) == ([["a"]], ["a=a"])


async def test_a_sleeping_worker_taken_away_leaves_no_item_behind() -> None:
    async with house() as home:
        first, second = Port(name="v"), open_port()
        scope = anyio.CancelScope()

        async def serve() -> None:
            with scope:
                await home.engine.serve_worker(first)

        home.tasks.start_soon(serve)
        await settled()
        home.join(second)
        await settled()
        with home.engine.admit(context(), pipeline="ocr") as mine:
            home.engine._accept(Task(stage="read", payload=b"a"), mine)  # wakes the first
            scope.cancel()  # before it could look
            await settled()
    assert second.batches == [["a"]]


async def test_a_leaving_worker_gets_no_more() -> None:
    async with house() as home:
        port = Port()
        with home.engine.admit(context(), pipeline="ocr") as mine:
            home.join(port)
            home.ask(mine, "a", "b")
            await settled()
            port.leaving = True
            port.gate.set()
            await settled()
            assert home.heard == ["a=a"]


async def test_a_queued_item_ends_at_its_deadline() -> None:
    async with house() as home:
        with (
            home.engine.admit(context(0.01), pipeline="ocr") as mine,
            pytest.raises(DeadlineExceeded),
        ):
            await home.engine.run(Task(stage="read", payload=b"a"), mine)
        port = open_port()
        home.join(port)
        await settled()
        assert port.batches == []


async def test_a_deadline_that_has_passed_costs_no_work() -> None:
    async with house() as home:
        with (
            home.engine.admit(context(-1.0), pipeline="ocr") as mine,
            pytest.raises(DeadlineExceeded),
        ):
            await home.engine.run(Task(stage="read", payload=b"a"), mine)
    assert home.notes.told == []


def with_buffer(batch: OutgoingBatch) -> BatchReply:
    replies = tuple(ItemReply(payload=b"", buffers=(Buffer.of(b"x"),)) for _ in batch.items)
    return BatchReply(replies=replies, seconds=(0.0,) * len(replies))


async def test_a_running_item_ends_at_its_deadline_and_its_reply_is_closed() -> None:
    async with house() as home:
        port = Port(answer=with_buffer)
        home.join(port)
        before = open_descriptors()
        with (
            home.engine.admit(context(0.01), pipeline="ocr") as mine,
            pytest.raises(DeadlineExceeded),
        ):
            await home.engine.run(Task(stage="read", payload=b"a"), mine)
        port.gate.set()
        await settled()
        assert (port.batches, open_descriptors()) == ([["a"]], before)


async def test_a_cancelled_caller_leaves_no_item_and_no_buffer() -> None:
    async with house() as home:
        port = Port(answer=with_buffer)
        home.join(port)
        before = open_descriptors()
        with home.engine.admit(context(), pipeline="ocr") as mine:
            async with anyio.create_task_group() as callers:
                for name in (b"running", b"queued"):
                    task = Task(stage="read", payload=name)
                    callers.start_soon(home.engine.run, task, mine)
                await settled()
                callers.cancel_scope.cancel()
        port.gate.set()
        await settled()
        assert (port.batches, open_descriptors()) == ([["running"]], before)
        assert home.notes.told == ["sent 1 read", "read cancelled", "read cancelled"]


async def test_an_answer_that_comes_as_its_caller_is_cancelled_is_closed() -> None:
    async with house() as home:
        before = open_descriptors()
        port = Port(answer=with_buffer)
        home.join(port)
        with home.engine.admit(context(), pipeline="ocr") as mine:
            async with anyio.create_task_group() as callers:

                def answer(batch: OutgoingBatch) -> BatchReply:
                    callers.cancel_scope.cancel()
                    return with_buffer(batch)

                port.answer = answer
                port.gate.set()
                callers.start_soon(home.engine.run, Task(stage="read", payload=b"a"), mine)
            await settled()
            assert open_descriptors() == before


async def test_a_stage_that_nobody_knows_is_refused_at_once() -> None:
    async with house() as home:
        with home.engine.admit(context(), pipeline="ocr") as mine, pytest.raises(NotReady):
            await home.engine.run(Task(stage="write", payload=b""), mine)


def broken(status: str) -> WorkerState:
    return WorkerState(
        name="w",
        group="g",
        stages=READ,
        status=status,  # type: ignore[arg-type] # a literal, by the caller
        generation=1,
        pid=None,
        rss_bytes=0,
        load_s=None,
        facts={},
        why="",
    )


async def test_items_of_a_group_that_breaks_are_refused() -> None:
    async with house() as home:
        home.staff.places = [broken("waiting")]
        with home.engine.admit(context(), pipeline="ocr") as mine:
            home.ask(mine, "a")
            await settled()
            assert home.heard == []  # an ordinary restart: it waits
            home.staff.places = [broken("broken")]
            home.engine.supervisor.note_death(DeathCause.EXIT)
            await settled()
            assert home.heard == ["a!not_ready"]
        with pytest.raises(NotReady) as refusal, home.engine.admit(context(), pipeline="ocr"):
            pass
    assert refusal.value.retry_after_s == 30.0


async def test_too_many_requests_are_refused_at_the_door() -> None:
    async with house(EngineLimits(max_requests=1)) as home:
        with (
            home.engine.admit(context(), pipeline="ocr"),
            pytest.raises(Overloaded) as refusal,
            home.engine.admit(context(), pipeline="ocr"),
        ):
            pass
        with home.engine.admit(context(), pipeline="ocr"):
            pass
    assert refusal.value.retry_after_s == 1.0
    assert home.notes.told == ["shed overloaded"]


async def test_draining_lets_accepted_requests_end_and_takes_no_new_ones() -> None:
    async with house() as home:
        port = Port()
        home.join(port)
        with home.engine.admit(context(), pipeline="ocr") as mine:
            home.tasks.start_soon(home.engine.drain, 100.0)
            await settled()
            with (
                pytest.raises(ShuttingDown),
                home.engine.admit(context(), pipeline="ocr"),
            ):
                pass
            port.gate.set()
            home.ask(mine, "a")
            await settled()
            assert home.heard == ["a=a"]
        await settled()
        assert home.engine._callers.closed


async def test_what_outlasts_the_grace_ends_as_shutting_down() -> None:
    async with house() as home:
        home.join(Port())
        with home.engine.admit(context(), pipeline="ocr") as mine:
            home.ask(mine, "running", "queued")
            await settled()
            await home.engine.drain(0.0)
            await settled()
            assert home.heard == ["running!shutting_down", "queued!shutting_down"]
            with pytest.raises(ShuttingDown):
                await home.engine.run(Task(stage="read", payload=b"late"), mine)


async def test_the_end_of_serving_ends_every_item() -> None:
    async with house() as home:
        async with home.engine.serving():
            with home.engine.admit(context(), pipeline="ocr") as mine:
                home.ask(mine, "a")
                await settled()
        await settled()
        assert home.heard == ["a!shutting_down"]


async def test_the_snapshot_tells_what_is_where() -> None:
    async with house() as home:
        home.staff.known = frozenset({"read", "cut"})
        home.join(Port())
        with home.engine.admit(context(), pipeline="ocr") as mine:
            home.ask(mine, "a", "b", "c")
            await settled()
            state = home.engine.snapshot()
    assert (state.running, state.queued, state.requests) == (1, {"read": 2}, 1)
    assert (state.missing, state.ready) == (("cut",), False)
    assert state.predicted_wait_s == pytest.approx(0.4)


async def test_equal_items_go_together_where_a_device_gains_by_it() -> None:
    seen: list[tuple[list[str], bool]] = []

    def answer(batch: OutgoingBatch) -> BatchReply:
        seen.append((payloads(batch), batch.together))
        return echo(batch)

    async with house() as home:
        port = Port(batch=4, answer=answer)
        port.gate.set()
        home.join(port)
        with home.engine.admit(context(), pipeline="ocr") as mine:
            home.ask(mine, "warm")  # what an item costs is known from here on
            await settled()
            for name, bucket in (("a", 1), ("b", 2), ("c", 1)):
                task = Task(stage="read", payload=name.encode(), bucket=bucket)
                home.tasks.start_soon(home._ask, task, mine)
            await settled()
    assert seen[1:] == [(["a", "c"], True), (["b"], True)]
