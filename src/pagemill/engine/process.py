"""One worker process, seen from the front: started, spoken to, watched, ended."""

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import anyio
import structlog
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from pagemill.engine import channel
from pagemill.engine.buffers import Buffer, BufferBroken, item_digest
from pagemill.engine.group import GroupSpec
from pagemill.engine.memory import rss_bytes
from pagemill.engine.messages import (
    Answer,
    Batch,
    BatchDone,
    Failure,
    Item,
    Joined,
    Leave,
    Refused,
    Setup,
    Up,
)
from pagemill.engine.port import (
    BatchReply,
    DeathCause,
    ItemReply,
    OutgoingBatch,
    OutgoingItem,
    WorkerDied,
)
from pagemill.errors import AppError, from_code

STDERR_LINES: Final = 50
_LINE_CHARACTERS: Final = 2000
_CRASHES: Final = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGILL,
        signal.SIGFPE,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)
# What a worker may know of our environment: no keys, no secrets.
_PASSED: Final = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME"),
    *("VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "OPENBLAS_CORETYPE"),
)
_log = structlog.get_logger()


class WorkerProcess:
    """A worker process and its channel; a `WorkerPort` once it has joined."""

    def __init__(self, name: str, spec: GroupSpec, *, generation: int, cores: Sequence[int]) -> None:
        """Describe a worker; `start` makes it."""
        self.name = name
        self.spec = spec
        self.generation = generation
        self.cores = tuple(cores)
        self.joined: Joined | None = None
        self.busy = False
        self.leaving = False
        self.tasks_done = 0
        self.rss_bytes = 0
        self.peak_rss_bytes = 0
        self.stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._sequence = 0
        self._killed_as: DeathCause | None = None
        self._ended = anyio.Event()

    @property
    def stages(self) -> frozenset[str]:
        """Return what it can do."""
        return frozenset(stage.name for stage in self.spec.stages)

    @property
    def batch(self) -> int:
        """Return how many items of equal shape it may run as one."""
        return self.spec.batch

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    async def start(self) -> None:
        """Start the process; it then loads its stages."""
        ours, theirs = channel.pair()
        with theirs:
            command = [sys.executable, "-m", "pagemill.engine.worker"]
            self._process: Process = await anyio.open_process(
                [*command, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,  # native libraries print to either
                env=_environment(max(1, len(self.cores))),
                start_new_session=True,  # Ctrl-C in a terminal is for the front alone
                pass_fds=(theirs.fileno(),),
            )
        self._channel = channel.AsyncChannel(ours)

    async def join(self) -> Joined:
        """Wait until its stages are loaded and gave their known answers.

        Raises:
            AppError: a stage did not load; the process ends.
            WorkerDied: it died or hung while loading.

        """
        setup = Setup(
            worker=self.name,
            generation=self.generation,
            stages=self.spec.stages,
            cores=self.cores,
        )
        reply: Up | None = None
        try:
            with anyio.move_on_after(self.spec.load_limit_s):
                await self._channel.send(setup)
                reply, fds = await self._channel.receive()
                _close_all(fds)
        except channel.ChannelClosed:
            raise WorkerDied(await self.cause()) from None
        except channel.ChannelBroken as error:
            raise WorkerDied(await self._kill(DeathCause.PROTOCOL, str(error))) from error
        if isinstance(reply, Refused):
            error = from_code(reply.code, f"{reply.stage}: {reply.message}")
            raise error
        if not isinstance(reply, Joined):
            cause = DeathCause.HANG if reply is None else DeathCause.PROTOCOL
            raise WorkerDied(await self._kill(cause, "it did not join"))
        self.joined = reply
        self.rss_bytes = reply.rss_bytes
        return reply

    async def run(self, batch: OutgoingBatch, *, limit_s: float) -> BatchReply:
        """Run a batch; see `WorkerPort.run`."""
        if self._ended.is_set() or self._killed_as is not None:
            raise WorkerDied(await self.cause())
        self.busy = True
        try:
            return await self._exchange(batch, limit_s)
        finally:
            self.busy = False

    async def _exchange(self, batch: OutgoingBatch, limit_s: float) -> BatchReply:
        self._sequence += 1
        frame, fds = _frame(batch, self._sequence)
        try:
            with anyio.move_on_after(limit_s) as limit:
                await self._channel.send(frame, fds)
                reply, received = await self._channel.receive()
        except channel.ChannelClosed:
            raise WorkerDied(await self.cause()) from None
        except channel.ChannelBroken as error:
            raise WorkerDied(await self._kill(DeathCause.PROTOCOL, str(error))) from error
        if limit.cancelled_caught:
            why = f"a batch of {batch.stage} took over {limit_s:.0f} s"
            raise WorkerDied(await self._kill(DeathCause.HANG, why))
        try:
            result = _verified(batch, self._sequence, reply, received)
        except (BufferBroken, _ReplyWrongError) as error:
            raise WorkerDied(await self._kill(DeathCause.PROTOCOL, str(error))) from error
        assert isinstance(reply, BatchDone)
        self.tasks_done += len(batch.items)
        self.note_memory(reply.rss_bytes)
        if self._is_worn():
            self.leaving = True
        return result

    def _is_worn(self) -> bool:
        spec = self.spec
        old = spec.max_tasks is not None and self.tasks_done >= spec.max_tasks
        return old or self.rss_bytes > spec.max_rss_bytes

    def note_memory(self, rss: int) -> None:
        """Remember what it takes now."""
        self.rss_bytes = rss
        self.peak_rss_bytes = max(self.peak_rss_bytes, rss)

    async def watch_memory(self, every_s: float = 0.5) -> None:
        """Look at its memory until cancelled; kill it above the hard cap."""
        while True:
            self.note_memory(rss_bytes(self.pid))
            if self.rss_bytes > self.spec.hard_rss_bytes:
                await self._kill(DeathCause.MEMORY, f"{self.rss_bytes >> 20} MiB")
            await anyio.sleep(every_s)

    async def read_stderr(self) -> None:
        """Log what it prints, line by line, until it ends."""
        assert self._process.stdout is not None
        rest = ""
        async for text in TextReceiveStream(self._process.stdout, errors="replace"):
            *lines, rest = (rest + text).split("\n")
            for line in (*lines, *([rest] if len(rest) > _LINE_CHARACTERS else [])):
                self.stderr.append(line[:_LINE_CHARACTERS])
                _log.debug("worker_stderr", worker=self.name, line=line[:_LINE_CHARACTERS])
            rest = "" if len(rest) > _LINE_CHARACTERS else rest

    async def wait_ended(self) -> DeathCause:
        """Wait until the process is gone; return why."""
        await self._process.wait()
        self._ended.set()
        return self._cause()

    async def cause(self) -> DeathCause:
        """Return why it is gone; what closed its channel but lives is killed."""
        with anyio.move_on_after(1) as limit:  # its exit may be a moment behind
            return await self.wait_ended()
        assert limit.cancelled_caught
        return await self._kill(DeathCause.PROTOCOL, "it closed its channel")

    def _cause(self) -> DeathCause:
        status = self._process.returncode
        assert status is not None
        if self._killed_as is not None:
            return self._killed_as
        if status >= 0:
            return DeathCause.LEFT if self.leaving and status == 0 else DeathCause.EXIT
        if -status in _CRASHES:
            return DeathCause.CRASH
        # The kernel kills with SIGKILL when memory runs out; near the cap we know why.
        near_cap = self.peak_rss_bytes > 0.9 * self.spec.hard_rss_bytes
        return DeathCause.MEMORY if near_cap else DeathCause.KILLED

    async def _kill(self, cause: DeathCause, why: str) -> DeathCause:
        if self._killed_as is None and not self._ended.is_set():
            _log.error("worker_killed", worker=self.name, cause=cause.value, why=why)
            self._killed_as = cause
        return await self.kill()

    async def kill(self) -> DeathCause:
        """End it now; return why it is gone."""
        with anyio.CancelScope(shield=True):
            if self._process.returncode is None:
                self._process.kill()
            return await self.wait_ended()

    async def leave(self, grace_s: float) -> None:
        """Ask it to go, and make it go after `grace_s`."""
        self.leaving = True
        with anyio.move_on_after(grace_s):
            try:
                await self._channel.send(Leave())
            except channel.ChannelClosed:
                pass
            await self.wait_ended()
            return
        self._killed_as = self._killed_as or DeathCause.LEFT
        await self.kill()

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


class _ReplyWrongError(Exception):
    """The reply does not answer what was asked."""


def _frame(batch: OutgoingBatch, sequence: int) -> tuple[Batch, list[int]]:
    """Return the frame and its descriptors, each buffer once."""
    places: dict[int, int] = {}
    items = tuple(
        Item(
            nonce=item.nonce,
            payload=item.payload,
            buffers=tuple(places.setdefault(b.fd, len(places)) for b in item.buffers),
        )
        for item in batch.items
    )
    frame = Batch(sequence=sequence, stage=batch.stage, items=items, together=batch.together)
    return frame, list(places)


def _verified(
    batch: OutgoingBatch, sequence: int, reply: Up, fds: Sequence[int]
) -> BatchReply:
    """Return the replies, each held against the item that it must answer.

    Raises:
        BufferBroken, _ReplyWrongError: it lies; all descriptors are closed.

    """
    with ExitStack() as held:
        buffers = _adopt_all(fds, held)
        if not isinstance(reply, BatchDone) or reply.sequence != sequence:
            message = f"an answer to no question of ours: {type(reply).__name__}"
            raise _ReplyWrongError(message)
        if not len(reply.replies) == len(reply.seconds) == len(batch.items):
            message = f"{len(reply.replies)} replies to {len(batch.items)} items"
            raise _ReplyWrongError(message)
        used = [i for each in reply.replies if isinstance(each, Answer) for i in each.buffers]
        if sorted(used) != list(range(len(buffers))):
            message = "buffers that belong to no item, or to two"
            raise _ReplyWrongError(message)
        replies = tuple(
            _item_reply(batch.stage, item, each, buffers)
            for item, each in zip(batch.items, reply.replies, strict=True)
        )
        held.pop_all()
        return BatchReply(replies=replies, seconds=reply.seconds)


def _adopt_all(fds: Sequence[int], held: ExitStack) -> list[Buffer]:
    waiting = list(fds)
    held.callback(_close_all, waiting)
    buffers = []
    while waiting:
        buffers.append(held.enter_context(Buffer.adopt(waiting.pop(0))))
    return buffers


def _item_reply(
    stage: str, item: OutgoingItem, reply: Answer | Failure, buffers: Sequence[Buffer]
) -> ItemReply | AppError:
    digest = item_digest(stage, item.payload, [buffer.identity for buffer in item.buffers])
    if reply.nonce != item.nonce or reply.digest != digest:
        message = "the answer to another item"
        raise _ReplyWrongError(message)
    if isinstance(reply, Failure):
        return from_code(reply.code, reply.message)
    return ItemReply(payload=reply.payload, buffers=tuple(buffers[i] for i in reply.buffers))


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def _environment(threads: int) -> dict[str, str]:
    environ = os.environ  # noqa: TID251 - handed on, not read as settings
    passed = {name: environ[name] for name in _PASSED if name in environ}
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    # One arena: a worker has one thread that allocates much, and more only fragment.
    return passed | dict.fromkeys(names, str(threads)) | {"MALLOC_ARENA_MAX": "1"}
