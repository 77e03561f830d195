"""Where log lines go and how they look: JSON lines, or text on a terminal."""

import logging
import sys
from typing import Final

import structlog

from pagemill.settings import LogSettings

_SHARED: Final[tuple[structlog.typing.Processor, ...]] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
)


def configure(settings: LogSettings) -> None:
    """Send structlog and the standard library's logging to standard error."""
    text = settings.format == "text" or (settings.format == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if text else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            *_SHARED,
            structlog.processors.StackInfoRenderer(),
            *(() if text else (structlog.processors.dict_tracebacks,)),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(settings.level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=settings.level.upper(), force=True)
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
