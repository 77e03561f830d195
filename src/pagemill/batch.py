"""`pagemill ocr`: many files, a bounded number at a time, each failure named."""

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from pagemill import files, logs
from pagemill.assembly import Parts, ocr_options, running
from pagemill.documents import render
from pagemill.documents.values import Document
from pagemill.engine.buffers import Buffer
from pagemill.engine.task import Context, Priority
from pagemill.errors import AppError, BadInput, TooManyBytes, UnsupportedType
from pagemill.files import OutputFormat, Source
from pagemill.pipelines.options import OcrOptions, parse_pages
from pagemill.settings import Settings

RENDER: Final[dict[OutputFormat, Callable[[Document], str]]] = {
    "json": render.to_json,
    "text": render.to_text,
    "markdown": render.to_markdown,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What was asked for on the command line."""

    paths: tuple[Path, ...]
    output: Path | None
    output_format: OutputFormat
    pages: str | None
    password: str | None
    force: bool


def run(job: Job, settings: Settings) -> int:
    """Read the files of `job`; return the exit status.

    Raises:
        BadInput: a path does not exist, or an option is wrong.

    """
    logs.configure(settings.log)
    sources = list(files.find(job.paths))
    pages = None if job.pages is None else parse_pages(job.pages)
    asked = ocr_options(settings.ocr, pages=pages, password=job.password)
    work = _Work(job, settings, asked)
    todo = [source for source in sources if not work.is_done(source)]
    work.counts["skipped"] = len(sources) - len(todo)
    try:
        if todo:
            anyio.run(work.read_all, todo)
    except KeyboardInterrupt:
        work.console.print("Interrupted; run the same command again to go on.")
        return 130  # 128 + SIGINT, as shells have it
    work.report()
    return 1 if work.counts["failed"] else 0


class _PagesPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        elapsed = task.elapsed or 0.0
        pages = task.fields.get("pages", 0)
        return Text(f"{pages / elapsed:.1f} pages/s" if elapsed else "- pages/s")


class _Work:
    def __init__(self, job: Job, settings: Settings, options: OcrOptions) -> None:
        self.job = job
        self.settings = settings
        self.options = options
        self.counts: Counter[str] = Counter()
        self.console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("reading"),
            BarColumn(),
            MofNCompleteColumn(),
            _PagesPerSecond(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    def is_done(self, source: Source) -> bool:
        if self.job.output is None or self.job.force:
            return False
        return files.is_done(source, files.target(source, self.job.output, self.job.output_format))

    async def read_all(self, todo: list[Source]) -> None:
        bar = self.progress.add_task("reading", total=len(todo))
        answers = _InOrder(self.print_answer)
        async with running(self.settings) as parts:
            # Two documents a worker keep every core busy between a document's stages.
            limiter = anyio.Semaphore(2 * parts.workers)

            async def one(index: int, source: Source) -> None:
                try:
                    answers.put(index, await self.read_one(source, parts))
                finally:
                    limiter.release()
                self.progress.update(bar, advance=1, pages=self.counts["pages"])

            with self.progress:
                async with anyio.create_task_group() as group:
                    for index, source in enumerate(todo):
                        await limiter.acquire()
                        group.start_soon(one, index, source)

    async def read_one(self, source: Source, parts: Parts) -> str | None:
        """Return what to print, if anything; a failure is named and counted."""
        try:
            document = await self.read_document(source, parts)
        except UnsupportedType as error:
            if source.named:
                self.fail(source, error)
            else:
                self.counts["not documents"] += 1
            return None
        except AppError as error:
            self.fail(source, error)
            return None
        self.counts["documents"] += 1
        self.counts["pages"] += len(document.pages)
        answer = RENDER[self.job.output_format](document)
        if self.job.output is None:
            return answer
        target = files.target(source, self.job.output, self.job.output_format)
        await anyio.to_thread.run_sync(files.write_whole, target, answer)
        return None

    async def read_document(self, source: Source, parts: Parts) -> Document:
        with ExitStack() as held:
            data = await anyio.to_thread.run_sync(
                _bytes_of, source.path, self.settings.limits.max_bytes
            )
            buffer = held.enter_context(Buffer.of(data))
            deadline_s = anyio.current_time() + self.settings.limits.max_timeout_s
            context = Context(
                request_id=str(source.path), deadline_s=deadline_s, priority=Priority.BATCH
            )
            admitted = held.enter_context(parts.engine.admit(context, pipeline="ocr"))
            return await parts.ocr.read_all(buffer, self.options, admitted)

    def fail(self, source: Source, error: AppError) -> None:
        self.counts["failed"] += 1
        self.console.print(
            f"{source.path}: {error.message} [{error.code}]", markup=False, highlight=False
        )

    def print_answer(self, answer: str) -> None:
        sys.stdout.write(answer if answer.endswith("\n") else answer + "\n")
        sys.stdout.flush()

    def report(self) -> None:
        order = ("documents", "pages", "skipped", "not documents", "failed")
        named = [f"{self.counts[name]} {name}" for name in order if self.counts[name]]
        if self.job.output is not None or self.counts["failed"]:
            self.console.print(", ".join(named) or "nothing to read", markup=False, highlight=False)


class _InOrder:
    """Hands answers on in the order of their index, whenever they come."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._waiting: dict[int, str | None] = {}
        self._next = 0

    def put(self, index: int, answer: str | None) -> None:
        self._waiting[index] = answer
        while self._next in self._waiting:
            ready = self._waiting.pop(self._next)
            self._next += 1
            if ready is not None:
                self._emit(ready)


def _bytes_of(path: Path, limit: int) -> bytes:
    """Return the file's bytes, refusing more than `limit` before reading them."""
    try:
        if path == files.STDIN:
            data = sys.stdin.buffer.read(limit + 1)
        else:
            with path.open("rb") as file:
                data = file.read(limit + 1)
    except OSError as error:
        message = f"It cannot be read: {error.strerror}."
        raise BadInput(message) from error
    if len(data) > limit:
        message = f"It is larger than limits.max_bytes ({limit} bytes)."
        raise TooManyBytes(message)
    return data
