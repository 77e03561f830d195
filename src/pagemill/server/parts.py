"""What the HTTP edge is built from: values and Protocols, so that tests can fake them."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pagemill.documents.values import Document, Kind, Page
from pagemill.engine.buffers import Buffer
from pagemill.engine.state import EngineState
from pagemill.engine.task import Context
from pagemill.pipelines.options import OcrOptions

if TYPE_CHECKING:
    from pagemill.server.metrics import Metrics

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What is refused at the edge, and whom; from the settings."""

    max_bytes: int = 50 * MIB
    default_timeout_s: float = 120.0
    max_timeout_s: float = 1800.0
    paddlex_max_pages: int | None = 10
    paddlex_visualize: bool = False
    allow_urls: bool = False
    url_allow_hosts: tuple[str, ...] = ()
    url_timeout_s: float = 10.0
    api_keys: tuple[str, ...] = ()


class Admits(Protocol):
    """What the edge needs of the engine."""

    @property
    def draining(self) -> bool:
        """Return whether it takes no new requests."""
        ...

    def admit(self, context: Context, *, pipeline: str) -> AbstractContextManager[Context]:
        """Accept a request for the length of the block, or refuse it at the door."""
        ...

    def snapshot(self) -> EngineState:
        """Return its state."""
        ...


class PageStream(Protocol):
    """A document while it is read (`pipelines.ocr.Reading`)."""

    @property
    def kind(self) -> Kind:
        """Return what it is."""
        ...

    @property
    def total_pages(self) -> int:
        """Return how many pages it has."""
        ...

    @property
    def pages(self) -> AsyncIterator[Page]:
        """Return its pages, in order."""
        ...


class ReadsDocuments(Protocol):
    """What the edge needs of pipeline `ocr`."""

    async def read_all(self, document: Buffer, options: OcrOptions, context: Context) -> Document:
        """Return the whole document."""
        ...

    def reading(
        self, document: Buffer, options: OcrOptions, context: Context
    ) -> AbstractAsyncContextManager[PageStream]:
        """Read it page by page."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """Everything that `app.build_app` puts together."""

    engine: Admits
    ocr: ReadsDocuments
    metrics: "Metrics"
    limits: ServerLimits = field(default_factory=ServerLimits)
    options: OcrOptions = field(default_factory=OcrOptions)
