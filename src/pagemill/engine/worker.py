"""The child process: load stages, run batches, one thread, no second chances.

Started as `python -m pagemill.engine.worker FD`, where FD is its end of a private
socket. It trusts the front; the front does not trust it.
"""

import contextlib
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
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from pagemill.engine.buffers import HEADER_BYTES, Buffer, digest_of, item_digest
from pagemill.engine.channel import BlockingChannel, ChannelClosed, FrameTooLarge
from pagemill.engine.memory import rss_bytes
from pagemill.engine.messages import (
    FDS_LIMIT,
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
_OOM_SCORE: Final = "500"  # of 1000: when memory runs out, we go before the front


def main() -> NoReturn:
    """Serve the socket named on the command line until it closes."""
    faulthandler.enable()
    _tie_to(parent=int(sys.argv[2]))
    end = socket.socket(fileno=int(sys.argv[1]))
    end.set_inheritable(False)  # no grandchild keeps the connection open
    # ConnectionError: the front is gone, and so are we.
    with contextlib.suppress(ChannelClosed, ConnectionError):
        _work_for(BlockingChannel(end))
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)  # native libraries crash and hang in their destructors


def _work_for(channel: BlockingChannel) -> None:
    setup, _ = channel.receive()
    assert isinstance(setup, Setup)
    stages = _join(setup, channel)
    if stages is not None:
        _serve(channel, stages)


def _tie_to(*, parent: int) -> None:
    """Die with the front, gain no privileges, dump no core, leave Ctrl-C to the front."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        with contextlib.suppress(OSError):  # read-only /proc of some sandboxes
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() != parent:  # it died before the signal was asked for
        sys.exit(0)


def _join(setup: Setup, channel: BlockingChannel) -> dict[str, Stage] | None:
    """Load every stage and ask what it must know; None when one is not fit."""
    _bind(setup.cores)  # before any native library counts cores
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


def _bind(cores: tuple[int, ...]) -> None:
    if not cores or not hasattr(os, "sched_setaffinity"):
        return
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:  # the container's cores changed: slower is better than dead
        print(f"cannot be bound to cores {cores}: {error}", file=sys.stderr)  # noqa: T201 - the front logs it


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
            try:
                channel.send(done, out)
            except FrameTooLarge as error:
                channel.send(_all_failed(done, Defect(f"the reply is too large: {error}")))


def _all_failed(done: BatchDone, error: Defect) -> BatchDone:
    replies = tuple(
        Failure(nonce=each.nonce, digest=each.digest, code=error.code, message=error.message)
        for each in done.replies
    )
    return msgspec.structs.replace(done, replies=replies)


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
    outcomes: Sequence[Output | AppError]
    try:
        outcomes = stage.run([each.given for each in group])
        if len(outcomes) != len(group):
            message = f"{len(outcomes)} answers to {len(group)} items"
            raise Defect(message)  # noqa: TRY301 - settled like the stage's own errors
    except Exception as error:  # noqa: BLE001 - the worker loop: an item fails, the worker stays
        outcomes = [_known(error)] * len(group)
    spent_s = (time.perf_counter() - start_s) / len(group)
    for each, outcome in zip(group, outcomes, strict=True):
        each.outcome = outcome
        each.seconds = spent_s


def _known(error: Exception) -> AppError:
    if isinstance(error, AppError):
        return error
    traceback.print_exception(error)
    return Defect(repr(error))


def _reply(each: _Work, out: list[int], held: ExitStack) -> Answer | Failure:
    """Return the frame's part of one item; `out` grows by its descriptors."""
    outcome = each.outcome
    if isinstance(outcome, Output):
        try:
            return _answer(each, outcome, out, held)
        except Exception as error:  # noqa: BLE001 - the worker loop: what no frame can carry
            outcome = _known(error)
    if not isinstance(outcome, AppError):
        outcome = Defect(f"the stage answered with {type(outcome).__name__}")
    return Failure(
        nonce=each.item.nonce, digest=each.digest, code=outcome.code, message=outcome.message
    )


def _answer(each: _Work, output: Output, out: list[int], held: ExitStack) -> Answer:
    if len(out) + len(output.buffers) > FDS_LIMIT:
        message = f"{len(output.buffers)} more buffers do not fit the batch's reply"
        raise Defect(message)
    buffers = [
        held.enter_context(
            Buffer.of(memoryview(data), digest_of(each.digest, number.to_bytes(4, "little")))  # type: ignore[arg-type] # any buffer
        )
        for number, data in enumerate(output.buffers)
    ]
    answer = Answer(
        nonce=each.item.nonce,
        digest=each.digest,
        payload=bytes(output.payload),
        buffers=tuple(range(len(out), len(out) + len(buffers))),
    )
    out += [buffer.fd for buffer in buffers]
    return answer


if __name__ == "__main__":
    main()
