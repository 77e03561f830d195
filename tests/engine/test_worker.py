"""One real worker process: what it is, what it answers, how it ends."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from pagemill.engine import channel
from pagemill.engine.buffers import Buffer, digest_of, item_digest
from pagemill.engine.group import GroupSpec, usable_cores
from pagemill.engine.messages import Answer, BatchDone, Joined, StageSetup
from pagemill.engine.port import (
    BatchReply,
    DeathCause,
    ItemReply,
    OutgoingBatch,
    OutgoingItem,
    WorkerDied,
)
from pagemill.engine.process import WorkerProcess, _lines, _ReplyWrongError, _verified
from pagemill.errors import AppError, BadInput, Defect
from tests.descriptors import open_descriptors

FAKES = "tests.engine.fake_stages"


def batch(stage: str, *payloads: bytes, together: bool = False) -> OutgoingBatch:
    items = tuple(
        OutgoingItem(nonce=n, payload=payload, buffers=()) for n, payload in enumerate(payloads)
    )
    return OutgoingBatch(stage=stage, items=items, together=together)


def outcomes(reply: BatchReply) -> list[bytes | type[AppError]]:
    return [each.payload if isinstance(each, ItemReply) else type(each) for each in reply.replies]


@asynccontextmanager
async def started(
    *stages: str, cores: tuple[int, ...] = (), **options: Any
) -> AsyncIterator[WorkerProcess]:
    setups = tuple(StageSetup(name=name, load=f"{FAKES}:{name}") for name in stages)
    spec = GroupSpec(name="test", stages=setups, cores=(cores,), **options)
    process = WorkerProcess("test-0", spec, generation=3, cores=cores)
    with anyio.fail_after(30):
        await process.start()
        async with anyio.create_task_group() as group:
            group.start_soon(process.read_stderr)
            try:
                yield process
            finally:
                with anyio.CancelScope(shield=True):
                    await process.close()
                group.cancel_scope.cancel()


@asynccontextmanager
async def joined(*stages: str, **options: Any) -> AsyncIterator[WorkerProcess]:
    async with started(*stages, **options) as process:
        await process.join()
        yield process


@pytest.mark.anyio
async def test_a_worker_is_bound_and_stripped_before_it_loads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAGEMILL_SERVER__API_KEYS", "secret")
    monkeypatch.setenv("WANTED", "yes")
    core = usable_cores()[0]
    async with joined("surroundings", cores=(core,), environment=("WANTED",)) as process:
        reply = await process.run(batch("surroundings", b""), limit_s=10)
        assert process.joined is not None
        assert process.joined.generation == 3
        assert process.rss_bytes > 0
    (answer,) = reply.replies
    assert isinstance(answer, ItemReply)
    facts = json.loads(answer.payload)
    environment = facts.pop("environment")
    assert facts == {
        "cores": [core],
        "core_bytes": 0,
        "no_new_privileges": True,
        "ignores_interrupt": True,
        "leads_session": True,
    }
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["WANTED"] == "yes"
    assert "secret" not in environment.values()


@pytest.mark.anyio
async def test_cores_that_are_gone_do_not_keep_a_worker_from_joining() -> None:
    async with joined("echo", cores=(1023,)) as process:
        assert outcomes(await process.run(batch("echo", b"a"), limit_s=10)) == [b"a"]
        assert "cannot be bound" in process.stderr[0]


@pytest.mark.anyio
async def test_outputs_are_named_by_their_item_and_place() -> None:
    async with joined("echo") as process:
        with Buffer.of(b"pixels") as buffer:
            item = OutgoingItem(nonce=7, payload=b"p", buffers=(buffer, buffer))
            reply = await process.run(OutgoingBatch(stage="echo", items=(item,)), limit_s=10)
            digest = item_digest("echo", b"p", [buffer.identity] * 2)
        (answer,) = reply.replies
        assert isinstance(answer, ItemReply)
        expected = [digest_of(digest, n.to_bytes(4, "little")) for n in range(2)]
        assert [each.identity for each in answer.buffers] == expected
        for each in answer.buffers:
            each.close()


@pytest.mark.anyio
async def test_each_item_fails_by_itself_and_in_order() -> None:
    async with joined("trouble") as process:
        reply = await process.run(batch("trouble", b"ok 1", b"bad", b"defect", b"ok 2"), limit_s=10)
        assert outcomes(reply) == [b"ok 1", BadInput, Defect, b"ok 2"]
        assert len(reply.seconds) == 4
    assert any("RuntimeError: secret detail" in line for line in process.stderr)


@pytest.mark.anyio
async def test_items_run_together_only_when_told() -> None:
    async with joined("together") as process:
        apart = await process.run(batch("together", b"", b""), limit_s=10)
        both = await process.run(batch("together", b"", b"", together=True), limit_s=10)
        assert outcomes(apart) == [b"1", b"1"]
        assert outcomes(both) == [b"2", b"2"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "payload", [b"too few", b"no output", b"text", b"strided", b"many buffers", b"huge"]
)
async def test_what_no_frame_can_carry_is_a_defect_and_the_worker_stays(payload: bytes) -> None:
    async with joined("sloppy") as process:
        assert outcomes(await process.run(batch("sloppy", payload), limit_s=10)) == [Defect]
        assert outcomes(await process.run(batch("sloppy", b"fine"), limit_s=10)) == [b"fine"]


@pytest.mark.anyio
async def test_a_batch_that_fits_no_frame_fails_and_the_worker_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with joined("echo") as process:
        with monkeypatch.context() as patched:
            patched.setattr(channel, "FRAME_LIMIT_BYTES", 1000)
            reply = await process.run(batch("echo", bytes(2000), b"b"), limit_s=10)
        assert outcomes(reply) == [Defect, Defect]
        assert outcomes(await process.run(batch("echo", b"c"), limit_s=10)) == [b"c"]


@pytest.mark.anyio
async def test_a_batch_in_work_is_not_cut_off_by_cancellation() -> None:
    async with joined("echo") as process:
        with anyio.CancelScope() as scope:
            scope.cancel()
            reply = await process.run(batch("echo", b"a"), limit_s=10)
        assert outcomes(reply) == [b"a"]
        assert outcomes(await process.run(batch("echo", b"b"), limit_s=10)) == [b"b"]


@pytest.mark.anyio
async def test_a_batch_that_never_reached_its_worker_is_not_blamed() -> None:
    async with joined("trouble") as process:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSEGV)
        assert await process.wait_ended() is DeathCause.CRASH
        with pytest.raises(WorkerDied) as caught:
            await process.run(batch("trouble", b"ok"), limit_s=10)
        assert not caught.value.cause.blames


@pytest.mark.anyio
async def test_its_last_words_are_kept_and_logged() -> None:
    with capture_logs() as logs:
        async with joined("trouble") as process:
            with pytest.raises(WorkerDied):
                await process.run(batch("trouble", b"print before", b"abort"), limit_s=10)
            words = await process.last_words()
    assert words[0] == "before"
    assert "Fatal Python error: Aborted" in words
    assert {
        "event": "worker_stderr",
        "log_level": "info",
        "worker": "test-0",
        "line": "before",
    } in logs


@pytest.mark.anyio
async def test_words_cut_off_and_words_without_end_are_kept() -> None:
    send, receive = anyio.create_memory_object_stream[bytes](4)
    with send, receive:
        for piece in (b"one\ntw", b"o\n" + b"x" * 4500, b"\n", b"cut off"):
            send.send_nowait(piece)
        send.close()
        lines = [line async for line in _lines(receive)]  # type: ignore[arg-type] # as good
    assert lines == ["one", "two", "x" * 2000, "x" * 2000, "x" * 500, "cut off"]


@pytest.mark.anyio
async def test_a_load_that_takes_too_long_is_a_hang(tmp_path: Path) -> None:
    stage = StageSetup(name="s", load=f"{FAKES}:stuck_loading", config={"flag": f"{tmp_path}/f"})
    spec = GroupSpec(name="test", stages=(stage,), cores=((),), load_limit_s=0.2)
    process = WorkerProcess("test-0", spec, generation=1, cores=())
    await process.start()
    with pytest.raises(WorkerDied) as caught:
        await process.join()
    assert caught.value.cause is DeathCause.HANG
    await process.close()


@pytest.mark.anyio
async def test_when_the_front_closes_the_worker_goes_quietly() -> None:
    async with joined("echo") as process:
        process._channel.close()
        process.leaving = True
        assert await process.wait_ended() is DeathCause.LEFT


_FRONT = """
import os, subprocess, sys
from pagemill.engine import channel
from pagemill.engine.channel import _frame
from pagemill.engine.messages import Setup, StageSetup
ours, theirs = channel.pair()
fd = os.dup(ours.fileno())  # inherited: the end of the front is no end of the socket
os.set_inheritable(fd, True)
command = [sys.executable, "-m", "pagemill.engine.worker", str(theirs.fileno()), str(os.getpid())]
worker = subprocess.Popen(command, pass_fds=(theirs.fileno(), fd))
load = "tests.engine.fake_stages:stuck_loading"
stage = StageSetup(name="s", load=load, config={"flag": sys.argv[1]})
ours.sendall(_frame(Setup(worker="w", generation=1, stages=(stage,)), []))
print(worker.pid, flush=True)
worker.wait()
"""


@pytest.mark.anyio
async def test_a_worker_dies_with_a_front_that_is_killed_even_while_it_loads(
    tmp_path: Path,
) -> None:
    flag = tmp_path / "loading"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    front = await anyio.open_process(
        [sys.executable, "-c", _FRONT, str(flag)], stderr=subprocess.DEVNULL, env=environment
    )
    assert front.stdout is not None
    with anyio.fail_after(20):
        pid = int(await front.stdout.receive())
        await until(flag.exists)
        assert _runs(pid)
        front.kill()
        await front.aclose()
        await until(lambda: not _runs(pid))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await anyio.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


ASKED = batch("s", b"p")
DONE = BatchDone(
    sequence=1,
    replies=(Answer(nonce=0, digest=item_digest("s", b"p", ()), payload=b"", buffers=(0,)),),
    seconds=(0.1,),
    rss_bytes=1,
)


def changed(**fields: Any) -> BatchDone:
    return msgspec.structs.replace(DONE, **fields)


@pytest.mark.parametrize(
    "lie",
    [
        Joined(generation=1, load_s=1, rss_bytes=1),
        changed(sequence=2),
        changed(replies=(), seconds=()),
        changed(replies=DONE.replies * 2, seconds=(0.1, 0.1)),
        changed(seconds=()),
        changed(seconds=(math.nan,)),
        changed(seconds=(-1.0,)),
        changed(replies=(msgspec.structs.replace(DONE.replies[0], buffers=(0, 0)),)),
        changed(replies=(msgspec.structs.replace(DONE.replies[0], buffers=()),)),
        changed(replies=(msgspec.structs.replace(DONE.replies[0], nonce=1),)),
        changed(replies=(msgspec.structs.replace(DONE.replies[0], digest=b"x" * 16),)),
    ],
)
def test_a_reply_that_is_not_to_this_batch_is_refused_and_its_buffers_closed(lie: Any) -> None:
    with Buffer.of(b"out") as buffer:
        before = open_descriptors()
        with pytest.raises(_ReplyWrongError):
            _verified(ASKED, 1, lie, [os.dup(buffer.fd)])
        assert open_descriptors() == before
        honest = _verified(ASKED, 1, DONE, [os.dup(buffer.fd)])
    (answer,) = honest.replies
    assert isinstance(answer, ItemReply)
    assert answer.buffers[0].read() == b"out"
    answer.buffers[0].close()
