"""Pipeline `ocr`: from a document's bytes to its pages of text."""

from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from pagemill.documents.values import Document, Kind, Line, Page, Pictures, Polygon
from pagemill.engine.buffers import Buffer
from pagemill.engine.task import Context
from pagemill.errors import AppError, BadOption, NotInstalled, first_of
from pagemill.pipelines import orientation
from pagemill.pipelines.calls import Call, Runs, call, call_all
from pagemill.pipelines.options import OcrOptions
from pagemill.pipelines.words import words_of
from pagemill.stages import wire

PICTURE_PX: Final = 2000  # PaddleX's max_output_img_size
_NO_ORIENTATION_MODEL: Final = (
    "The page orientation model is not installed; leave the option out: "
    "pages that read badly are turned without it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OcrLimits:
    """What bounds a document, from the settings."""

    max_pixels: int
    max_pages: int
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A document while it is read. `pages` come in order, as they are ready."""

    kind: Kind
    total_pages: int
    pages: MemoryObjectReceiveStream[Page]


class Ocr:
    """Reads documents through the engine; keeps nothing between them."""

    def __init__(self, engine: Runs, limits: OcrLimits) -> None:
        """Read with the stages of `engine`, within `limits`."""
        self._engine = engine
        self._limits = limits

    async def read_all(self, document: Buffer, options: OcrOptions, context: Context) -> Document:
        """Return the whole document, read.

        Raises:
            AppError: BadInput for what cannot be read, and all that `Engine.run` raises.

        """
        async with self.reading(document, options, context) as reading:
            pages = tuple([page async for page in reading.pages])
        return Document(kind=reading.kind, total_pages=reading.total_pages, pages=pages)

    @asynccontextmanager
    async def reading(
        self, document: Buffer, options: OcrOptions, context: Context
    ) -> AsyncIterator[Reading]:
        """Open `document` and read its pages while the caller takes them.

        At most `limits.window` pages are in work or waiting to be taken. Leaving the
        block early drops the rest. Raises as `read_all`.
        """
        if options.orientation == "model":
            raise NotInstalled(_NO_ORIENTATION_MODEL)
        with ExitStack() as held:
            asked = Call(
                stage="open",
                request=wire.Open(
                    password=options.password,
                    max_pixels=self._limits.max_pixels,
                    max_pages=self._limits.max_pages,
                ),
                reply=wire.Opened,
                buffers=(document,),
            )
            opened = (await call(self._engine, asked, context, held)).value
        indices = choose_pages(opened.pages, options)
        send, receive = anyio.create_memory_object_stream[Page](0)
        try:
            async with anyio.create_task_group() as group:
                reader = _DocumentReader(self._engine, self._limits, document, options, context)
                group.start_soon(reader.read_pages, indices, send)
                try:
                    yield Reading(kind=opened.kind, total_pages=opened.pages, pages=receive)
                finally:
                    group.cancel_scope.cancel()
                    receive.close()
        except* AppError as errors:
            raise first_of(errors) from None


def choose_pages(total: int, options: OcrOptions) -> Sequence[int]:
    """Return the zero-based pages to read.

    Raises:
        BadOption: a page was asked for that the document does not have.

    """
    if options.pages is not None and any(page >= total for page in options.pages):
        wanted = next(page for page in options.pages if page >= total) + 1
        message = f"Page {wanted} was asked for, but the document has {total}."
        raise BadOption(message)
    chosen = options.pages if options.pages is not None else range(total)
    return chosen if options.page_limit is None else chosen[: options.page_limit]


@dataclass(frozen=True, slots=True)
class _DocumentReader:
    engine: Runs
    limits: OcrLimits
    document: Buffer
    options: OcrOptions
    context: Context

    async def read_pages(self, indices: Sequence[int], send: MemoryObjectSendStream[Page]) -> None:
        """Send the pages in order, reading up to a window of them side by side."""
        window = anyio.Semaphore(self.limits.window)
        ready = {index: anyio.Event() for index in indices}
        pages: dict[int, Page] = {}

        async def read(index: int) -> None:
            pages[index] = await self.read_page(index)
            ready[index].set()

        async def start() -> None:
            for index in indices:
                await window.acquire()
                group.start_soon(read, index)

        async with send, anyio.create_task_group() as group:
            group.start_soon(start)
            for index in indices:
                await ready[index].wait()
                await send.send(pages.pop(index))
                window.release()

    async def read_page(self, index: int) -> Page:
        with ExitStack() as held:
            page, pixels, scaled = await self.decode(index, held)
            strips, buffers = await self.cut_lines(page, pixels, scaled, held)
            flips = await self.flips(strips, buffers)
            texts = await self.recognize(strips, buffers, range(len(strips)), flips=flips)
            if self.options.orientation == "auto" and not self.options.line_angle:
                texts, flips = await self.upright(strips, buffers, texts)
            read = self.assemble(index, page, list(zip(strips, texts, flips, strict=True)))
            return await self.drawn(read, pixels) if self.options.pictures else read

    async def decode(self, index: int, held: ExitStack) -> tuple[wire.PageRead, Buffer, Buffer]:
        """Return a page, its pixels and the detector's view of it."""
        options = self.options
        asked = Call(
            stage="read_page",
            request=wire.ReadPage(
                page=index,
                password=options.password,
                max_pixels=self.limits.max_pixels,
                side_px=options.det_side_px,
                side_type=options.det_side_type,
            ),
            reply=wire.PageRead,
            buffers=(self.document,),
            outputs=(2,),
        )
        read = await call(self.engine, asked, self.context, held)
        pixels, scaled = read.buffers
        return read.value, pixels, scaled

    async def cut_lines(
        self, page: wire.PageRead, pixels: Buffer, scaled: Buffer, held: ExitStack
    ) -> tuple[Sequence[wire.Strip], tuple[Buffer, ...]]:
        """Find the lines of a page and cut them out; closes what is not needed after that."""
        options = self.options
        with ExitStack() as maps_held:
            maps = await self.detect(page, scaled, maps_held)
            scaled.close()
            wanted = Call(
                stage="cut",
                request=wire.Cut(
                    page=page,
                    threshold=options.det_threshold,
                    box_threshold=options.det_box_threshold,
                    unclip_ratio=options.det_unclip_ratio,
                ),
                reply=wire.Lines,
                buffers=(pixels, *maps),
                outputs=(0, 1),
                cost=page.det_width * page.det_height,
            )
            lines = await call(self.engine, wanted, self.context, held)
        if not options.pictures:
            pixels.close()
        return lines.value.strips, lines.buffers

    async def drawn(self, page: Page, pixels: Buffer) -> Page:
        """Return the page with its pictures."""
        asked = Call(
            stage="draw",
            request=wire.Draw(
                width=page.width, height=page.height, polygons=page.regions, side_px=PICTURE_PX
            ),
            reply=wire.Drawn,
            buffers=(pixels,),
            outputs=(2,),
        )
        with ExitStack() as held:
            drawn = await call(self.engine, asked, self.context, held)
            outlined, plain = (buffer.read() for buffer in drawn.buffers)
        return replace(page, pictures=Pictures(outlined=outlined, plain=plain))

    async def detect(self, page: wire.PageRead, scaled: Buffer, held: ExitStack) -> list[Buffer]:
        """Return the text map of each tile."""
        calls = [
            Call(
                stage="detect",
                request=wire.Detect(
                    det_width=page.det_width, det_height=page.det_height, tile=tile
                ),
                reply=wire.Detected,
                buffers=(scaled,),
                outputs=(1,),
                cost=tile.width * tile.height,
                bucket=tile.width << 16 | tile.height,
            )
            for tile in page.tiles
        ]
        return [
            reply.buffers[0] for reply in await call_all(self.engine, calls, self.context, held)
        ]

    async def recognize(
        self,
        strips: Sequence[wire.Strip],
        buffers: tuple[Buffer, ...],
        chosen: Sequence[int],
        *,
        flips: Sequence[bool],
    ) -> list[wire.Recognized]:
        """Read the chosen strips; `flips` says which of all strips to turn over."""
        calls = [
            Call(
                stage="recognize",
                request=wire.Recognize(
                    offset=strips[i].offset,
                    width=strips[i].width,
                    text_width=strips[i].text_width,
                    flip=flips[i],
                    columns=self.options.words,
                ),
                reply=wire.Recognized,
                buffers=buffers,
                cost=strips[i].width,
                bucket=strips[i].width,
            )
            for i in chosen
        ]
        with ExitStack() as held:
            return [reply.value for reply in await call_all(self.engine, calls, self.context, held)]

    async def flips(self, strips: Sequence[wire.Strip], buffers: tuple[Buffer, ...]) -> list[bool]:
        """Say which lines stand on their heads, when that was asked for."""
        if not self.options.line_angle:
            return [False] * len(strips)
        calls = [
            Call(
                stage="line_angle",
                request=wire.LineAngle(
                    offset=strip.offset, width=strip.width, text_width=strip.text_width
                ),
                reply=wire.LineAngled,
                buffers=buffers,
            )
            for strip in strips
        ]
        with ExitStack() as held:
            replies = await call_all(self.engine, calls, self.context, held)
        return [reply.value.flipped > orientation.FLIPPED for reply in replies]

    async def upright(
        self,
        strips: Sequence[wire.Strip],
        buffers: tuple[Buffer, ...],
        texts: list[wire.Recognized],
    ) -> tuple[list[wire.Recognized], list[bool]]:
        """Return the better reading of the page, as it stands or turned over."""
        over = [True] * len(strips)
        stays = texts, [False] * len(strips)
        if not orientation.is_doubtful(strips, texts):
            return stays
        chosen = orientation.probes(strips)
        probed = await self.recognize(strips, buffers, chosen, flips=over)
        if not orientation.prefers_flip([texts[i] for i in chosen], probed):
            return stays
        return await self.recognize(strips, buffers, range(len(strips)), flips=over), over

    def assemble(
        self,
        index: int,
        page: wire.PageRead,
        read: Sequence[tuple[wire.Strip, wire.Recognized, bool]],
    ) -> Page:
        """Make the page a value; upside down, its last line is the first."""
        lines = [self.line(strip, text, flipped=flipped) for strip, text, flipped in read]
        flipped = not self.options.line_angle and any(flip for _, _, flip in read)
        strips, texts = [strip for strip, _, _ in read], [text for _, text, _ in read]
        if flipped:
            lines.reverse()
        return Page(
            index=index,
            width=page.width,
            height=page.height,
            turn=orientation.page_turn(strips, texts, flipped=flipped) if read else 0,
            lines=tuple(line for line in lines if self.keeps(line)),
            regions=tuple(line.polygon for line in lines),
        )

    def keeps(self, line: Line) -> bool:
        return bool(line.text) and line.confidence >= self.options.min_confidence

    def line(self, strip: wire.Strip, text: wire.Recognized, *, flipped: bool) -> Line:
        corners: Polygon = strip.polygon
        polygon = corners[2:] + corners[:2] if flipped else corners
        line = Line(text=text.text, confidence=text.confidence, polygon=polygon)
        if text.columns is None:
            return line
        return replace(line, words=words_of(text.text, text.columns, polygon))
