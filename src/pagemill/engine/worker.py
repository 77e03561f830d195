"""The child process: load stages, run batches, one thread, no second chances.

Started as `python -m pagemill.engine.worker FD`, where FD is its end of a private
socket. It trusts the front; the front does not trust it.
"""

import ctypes
import faulthandler
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from pagemill.engine.buffers import HEADER_BYTES, Buffer, digest_of, item_digest
from pagemill.engine.channel import BlockingChannel, ChannelClosed
from pagemill.engine.memory import rss_bytes
from pagemill.engine.messages import (
    Answer,
    Batch,
    BatchDone,
    Failure,
    Item,
    Joined,
    Refused,
    Setup,
    StageSetup,
)
from pagemill.engine.stage import Input, Output, Stage
from pagemill.errors import AppError, Defect

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_PR_SET_NO_NEW_PRIVS: Final = 38


def main() -> None:
    """Serve the socket named on the command line until it closes."""
    faulthandler.enable()
    parent = int(sys.argv[2])
    _tie_to(parent)
    channel = BlockingChannel(socket.socket(fileno=int(sys.argv[1])))
    try:
        setup, _ = channel.receive()
        assert isinstance(setup, Setup)
        stages = _join(setup, channel)
        if stages is not None:
            _serve(channel, stages)
    except (ChannelClosed, BrokenPipeError):  # the front is gone: so are we
        return


def _tie_to(parent: int) -> None:
    """Die with the front, gain no privileges, dump no core, leave Ctrl-C to the front."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() != parent:  # it died before the signal was asked for
        sys.exit(0)


def _join(setup: Setup, channel: BlockingChannel) -> dict[str, Stage] | None:
    """Load every stage and ask what it must know; None when one is not fit."""
    if setup.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, setup.cores)  # before any native library counts cores
    start_s = time.monotonic()
    stages: dict[str, Stage] = {}
    for wanted in setup.stages:
        try:
            stages[wanted.name] = _load(wanted)
        except Exception as error:  # noqa: BLE001 - the worker's edge: the front is told why
            traceback.print_exc()
            known = error if isinstance(error, AppError) else Defect(repr(error))
            channel.send(Refused(stage=wanted.name, code=known.code, message=known.message))
            return None
    joined = Joined(
        generation=setup.generation,
        load_s=time.monotonic() - start_s,
        rss_bytes=rss_bytes(),
        facts=_facts(stages),
    )
    channel.send(joined)
    return stages


def _load(wanted: StageSetup) -> Stage:
    module, _, function = wanted.load.partition(":")
    stage: Stage = getattr(import_module(module), function)(wanted.config)
    stage.check()
    return stage


def _facts(stages: dict[str, Stage]) -> dict[str, str]:
    """Return what the stages say of themselves, such as the precision they chose."""
    return {
        f"{name}.{key}": str(value)
        for name, stage in stages.items()
        for key, value in getattr(stage, "facts", {}).items()
    }


def _serve(channel: BlockingChannel, stages: dict[str, Stage]) -> None:
    while True:
        message, fds = channel.receive()
        if not isinstance(message, Batch):
            return
        with ExitStack() as held:
            done, out = _run_batch(message, fds, stages[message.stage], held)
            channel.send(done, out)


@dataclass(slots=True)
class _Work:
    """One item in the worker: what it reads, what names it, what came of it."""

    item: Item
    digest: bytes
    given: Input
    outcome: Output | AppError | None = None
    seconds: float = 0.0


def _run_batch(
    batch: Batch, fds: Sequence[int], stage: Stage, held: ExitStack
) -> tuple[BatchDone, list[int]]:
    """Run all items; return the reply and its descriptors, which `held` closes."""
    with ExitStack() as inputs:
        buffers = [inputs.enter_context(Buffer.adopt(fd)) for fd in fds]
        views = [_view(buffer) for buffer in buffers]
        work = [_work(batch.stage, item, buffers, views) for item in batch.items]
        groups = [work] if batch.together else [[each] for each in work]
        for group in groups:
            _run(stage, group)
        out: list[int] = []
        replies = tuple(_reply(each, out, held) for each in work)
        seconds = tuple(each.seconds for each in work)
    done = BatchDone(
        sequence=batch.sequence, replies=replies, seconds=seconds, rss_bytes=rss_bytes()
    )
    return done, out


def _view(buffer: Buffer) -> memoryview:
    """Return the data; the mapping lives as long as an array over it."""
    return memoryview(buffer.map())[HEADER_BYTES:]


def _work(stage: str, item: Item, buffers: Sequence[Buffer], views: Sequence[memoryview]) -> _Work:
    identities = [buffers[i].identity for i in item.buffers]
    return _Work(
        item=item,
        digest=item_digest(stage, item.payload, identities),
        given=Input(payload=item.payload, buffers=tuple(views[i] for i in item.buffers)),
    )


def _run(stage: Stage, group: Sequence[_Work]) -> None:
    start_s = time.perf_counter()
    try:
        outcomes = stage.run([each.given for each in group])
    except Exception as error:  # noqa: BLE001 - the worker loop: an item fails, the worker stays
        outcomes = [_known(error)] * len(group)
    spent_s = (time.perf_counter() - start_s) / len(group)
    for each, outcome in zip(group, outcomes, strict=True):
        each.outcome = outcome
        each.seconds = spent_s


def _known(error: Exception) -> AppError:
    if isinstance(error, AppError):
        return error
    traceback.print_exc()
    return Defect(repr(error))


def _reply(each: _Work, out: list[int], held: ExitStack) -> Answer | Failure:
    nonce, outcome = each.item.nonce, each.outcome
    if isinstance(outcome, AppError):
        return Failure(
            nonce=nonce, digest=each.digest, code=outcome.code, message=outcome.message
        )
    assert outcome is not None
    indices = []
    for number, data in enumerate(outcome.buffers):
        identity = digest_of(each.digest, number.to_bytes(4, "little"))
        buffer = held.enter_context(Buffer.of(memoryview(data), identity))  # type: ignore[arg-type] # any buffer
        indices.append(len(out))
        out.append(buffer.fd)
    return Answer(
        nonce=nonce, digest=each.digest, payload=outcome.payload, buffers=tuple(indices)
    )


if __name__ == "__main__":
    main()
