"""A pipeline and an engine of a few lines, and the application on top of them."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

import anyio
import httpx
from fastapi import FastAPI

from pagemill.documents.values import Document, Kind, Line, Page
from pagemill.engine.buffers import Buffer
from pagemill.engine.state import EngineState
from pagemill.engine.task import Context
from pagemill.errors import AppError, EmptyBody
from pagemill.pipelines.options import OcrOptions
from pagemill.server.app import build_app
from pagemill.server.metrics import Metrics
from pagemill.server.parts import ServerLimits, ServerParts

SQUARE = ((1.04, 2.0), (30.0, 2.0), (30.0, 12.0), (1.04, 12.0))
LINE = Line(text="TOTAL 10.40", confidence=0.987654321, polygon=SQUARE)
STATE = EngineState(
    workers=(),
    queued={"detect": 2},
    running=1,
    requests=1,
    predicted_wait_s=0.5,
    draining=False,
    missing=(),
    quarantined=0,
    deaths={},
)


@dataclass
class FakeEngine:
    state: EngineState = STATE
    refusal: AppError | None = None
    admitted: list[Context] = field(default_factory=list)
    draining: bool = False

    @contextmanager
    def admit(self, context: Context, *, pipeline: str) -> Iterator[Context]:
        assert pipeline == "ocr"
        if self.refusal is not None:
            raise self.refusal
        self.admitted.append(context)
        yield replace(context, flow=len(self.admitted))

    def snapshot(self) -> EngineState:
        return self.state


@dataclass
class FakeReading:
    kind: Kind
    total_pages: int
    pages: AsyncIterator[Page]


@dataclass
class FakeOcr:
    """Reads every document as the same pages; fails as told."""

    kind: Kind = "image"
    pages: int = 1
    error: AppError | None = None
    error_at_page: int = 0
    contents: list[bytes] = field(default_factory=list)
    options: list[OcrOptions] = field(default_factory=list)
    hangs: bool = False
    cancelled: bool = False

    async def read_all(self, document: Buffer, options: OcrOptions, context: Context) -> Document:
        async with self.reading(document, options, context) as reading:
            pages = tuple([page async for page in reading.pages])
        return Document(kind=reading.kind, total_pages=reading.total_pages, pages=pages)

    @asynccontextmanager
    async def reading(
        self, document: Buffer, options: OcrOptions, context: Context
    ) -> AsyncIterator[FakeReading]:
        assert context.flow
        content = document.read()
        self.contents.append(content)
        self.options.append(options)
        if self.hangs:
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled = True
        if not content:
            raise EmptyBody("no bytes")  # as stage `open` does
        if content.startswith(b"bad") and self.error is None:
            raise AppError.__subclasses__()[0]("this one is bad")  # BadInput
        async with aclosing(self._pages()) as pages:
            yield FakeReading(self.kind, self.pages, pages)

    async def _pages(self) -> AsyncGenerator[Page, None]:
        for index in range(self.pages):
            if self.error is not None and index >= self.error_at_page:
                raise self.error
            yield Page(
                index=index, width=40, height=20, turn=0, lines=(LINE,), regions=(SQUARE, SQUARE)
            )


@dataclass
class Served:
    """The application and what stands under it."""

    engine: FakeEngine = field(default_factory=FakeEngine)
    ocr: FakeOcr = field(default_factory=FakeOcr)
    limits: ServerLimits = field(default_factory=ServerLimits)

    def app(self) -> FastAPI:
        parts = ServerParts(engine=self.engine, ocr=self.ocr, metrics=Metrics(), limits=self.limits)
        return build_app(parts)

    def client(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app(), raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://test")
