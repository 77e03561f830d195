"""One worker process, seen from the front: started, spoken to, watched, ended."""

import contextlib
import math
import os
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack
from typing import Final

import anyio
import structlog
from anyio.abc import ByteReceiveStream, Process
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
from pagemill.engine.restarts import cause_of_end
from pagemill.errors import AppError, Defect, from_code

STDERR_LINES: Final = 50
NEAR_CAP: Final = 0.9  # of the hard cap: where a kernel's kill is taken for out of memory
_LAST_WORDS_S: Final = 1.0  # an end's signs come one after the other: exit, EOF, stderr
_LINE_CHARACTERS: Final = 2000
# What a worker may know of our environment: no keys, no secrets.
_PASSED: Final = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_CACHE_HOME", "VIRTUAL_ENV"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"),
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "OPENBLAS_CORETYPE"),
)
_log = structlog.get_logger()


class WorkerProcess:
    """A worker process and its channel; a `WorkerPort` once it has joined."""

    def __init__(
        self,
        name: str,
        spec: GroupSpec,
        *,
        generation: int,
        cores: Sequence[int],
        on_end: Callable[[DeathCause], None] = lambda _cause: None,
    ) -> None:
        """Describe a worker; `start` makes it.

        `on_end` is called once, before anyone is told what became of its batch.
        """
        self.name = name
        self.spec = spec
        self.stages = spec.stage_names
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
        self._on_end = on_end
        self._process: Process | None = None
        self._ended = anyio.Event()
        self._silent = anyio.Event()  # its stderr came to an end

    @property
    def batch(self) -> int:
        """Return how many items of equal shape it may run as one."""
        return self.spec.batch

    @property
    def pid(self) -> int | None:
        """Return its process id; None before it started."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the process; it then loads its stages.

        Raises:
            OSError: the system has no process, memory or descriptor left.

        """
        ours, theirs = channel.pair()
        self._channel = channel.AsyncChannel(ours)
        # -P: a worker imports from where we do, not from wherever we were started.
        command = [sys.executable, "-P", "-m", "pagemill.engine.worker"]
        with theirs, anyio.CancelScope(shield=True):  # a process half started is lost
            self._process = await anyio.open_process(
                [*command, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,  # native libraries print to either
                env=_environment(max(1, len(self.cores)), self.spec.environment),
                start_new_session=True,  # Ctrl-C in a terminal is for the front alone
                pass_fds=(theirs.fileno(),),
            )

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
            raise from_code(reply.code, f"{reply.stage}: {reply.message}")
        if not isinstance(reply, Joined):
            cause = DeathCause.HANG if reply is None else DeathCause.PROTOCOL
            raise WorkerDied(await self._kill(cause, "it did not join"))
        self.joined = reply
        self.rss_bytes = reply.rss_bytes
        return reply

    async def run(self, batch: OutgoingBatch, *, limit_s: float) -> BatchReply:
        """Run a batch; see `WorkerPort.run`.

        It cannot be cancelled, or the next batch would get this one's answer. It ends
        when the worker does: who cancels kills.
        """
        if self._ended.is_set() or self._killed_as is not None:
            raise WorkerDied(DeathCause.LEFT)  # whatever ended it, not this batch
        self.busy = True
        try:
            with anyio.CancelScope(shield=True):
                reply = await self._exchange(batch, limit_s)
        finally:
            self.busy = False
        return reply

    async def _exchange(self, batch: OutgoingBatch, limit_s: float) -> BatchReply:
        self._sequence += 1
        frame, fds = _frame(batch, self._sequence)
        sent = False
        try:
            with anyio.move_on_after(limit_s) as limit:
                await self._channel.send(frame, fds)
                sent = True
                reply, received = await self._channel.receive()
        except channel.FrameTooLarge as error:
            return _all_failed(batch, Defect(f"the batch is too large: {error}"))
        except channel.ChannelClosed:
            cause = await self.cause()
            # What did not reach it whole did not end it.
            raise WorkerDied(cause if sent else DeathCause.LEFT) from None
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
        """Look at its memory until it ends; kill it above the hard cap."""
        while not self._ended.is_set():
            self.note_memory(rss_bytes(self.pid or 0))
            if self.rss_bytes > self.spec.hard_rss_bytes:
                await self._kill(DeathCause.MEMORY, f"{self.rss_bytes >> 20} MiB")
            with anyio.move_on_after(every_s):
                await self._ended.wait()

    async def read_stderr(self) -> None:
        """Log what it prints, line by line, until it ends."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async for line in _lines(self._process.stdout):
                self.stderr.append(line)
                _log.info("worker_stderr", worker=self.name, line=line)
        finally:
            self._silent.set()

    async def last_words(self) -> list[str]:
        """Return the last lines it printed, once it is gone and they are all read."""
        with anyio.move_on_after(_LAST_WORDS_S):  # a grandchild may hold the pipe
            await self._silent.wait()
        return list(self.stderr)

    async def wait_ended(self) -> DeathCause:
        """Wait until the process is gone; return why."""
        assert self._process is not None
        await self._process.wait()
        if not self._ended.is_set():
            self._ended.set()
            self._on_end(self._cause())
        return self._cause()

    async def cause(self) -> DeathCause:
        """Return why it is gone; what closed its channel but lives is killed."""
        with anyio.move_on_after(_LAST_WORDS_S) as limit:
            return await self.wait_ended()
        assert limit.cancelled_caught
        return await self._kill(DeathCause.PROTOCOL, "it closed its channel")

    def _cause(self) -> DeathCause:
        if self._killed_as is not None:
            return self._killed_as
        assert self._process is not None
        assert self._process.returncode is not None
        return cause_of_end(
            self._process.returncode,
            leaving=self.leaving,
            near_cap=self.rss_bytes > NEAR_CAP * self.spec.hard_rss_bytes,
        )

    async def _kill(self, cause: DeathCause, why: str) -> DeathCause:
        if self._killed_as is None and not self._ended.is_set():
            _log.error("worker_killed", worker=self.name, cause=cause.value, why=why)
        return await self.kill(cause)

    async def kill(self, cause: DeathCause = DeathCause.LEFT) -> DeathCause:
        """End it now; return why it is gone: `cause`, unless something came first."""
        self._kill_now(cause)
        with anyio.CancelScope(shield=True):
            await self.wait_ended()
        return self._cause()

    def _kill_now(self, cause: DeathCause) -> None:
        if self._process is not None and self._process.returncode is None:
            self._killed_as = self._killed_as or cause
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def kill_when_cancelled(self) -> None:
        """Wait; when cancelled, end the process, and with it the batch that it has."""
        try:
            await self._ended.wait()
        finally:
            self._kill_now(DeathCause.LEFT)

    async def leave(self, grace_s: float) -> None:
        """Ask it to go, and make it go after `grace_s`."""
        self.leaving = True
        with anyio.move_on_after(grace_s):
            with contextlib.suppress(channel.ChannelClosed):
                await self._channel.send(Leave())
            await self.wait_ended()
            return
        await self.kill()

    async def close(self) -> None:
        """End it if it still runs, and give back every descriptor."""
        self._channel.close()
        if self._process is not None:
            await self.kill()
            await self._process.aclose()


class _ReplyWrongError(Exception):
    """The reply does not answer what was asked."""


async def _lines(stream: ByteReceiveStream) -> AsyncIterator[str]:
    """Yield the lines of a stream; overlong ones in pieces, the last without its end."""
    rest = ""
    async for text in TextReceiveStream(stream, errors="replace"):
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield line[:_LINE_CHARACTERS]
        while len(rest) > _LINE_CHARACTERS:
            yield rest[:_LINE_CHARACTERS]
            rest = rest[_LINE_CHARACTERS:]
    if rest:
        yield rest


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


def _all_failed(batch: OutgoingBatch, error: AppError) -> BatchReply:
    count = len(batch.items)
    return BatchReply(replies=(error,) * count, seconds=(0.0,) * count)


def _verified(batch: OutgoingBatch, sequence: int, reply: Up, fds: Sequence[int]) -> BatchReply:
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
        if not all(seconds >= 0 and math.isfinite(seconds) for seconds in reply.seconds):
            message = f"it took {reply.seconds} seconds"
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


def _environment(threads: int, wanted: Sequence[str]) -> dict[str, str]:
    environ = os.environ  # noqa: TID251 - handed on, not read as settings
    passed = {name: environ[name] for name in (*_PASSED, *wanted) if name in environ}
    passed["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    # One arena: a worker has one thread that allocates much, and more only fragment.
    return passed | dict.fromkeys(names, str(threads)) | {"MALLOC_ARENA_MAX": "1"}
