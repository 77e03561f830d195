"""Builds the parts from the settings and passes them in; the only place that does."""

import platform
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from pagemill.engine.group import GroupSpec, assign_cores, usable_cores
from pagemill.engine.messages import StageSetup
from pagemill.engine.scheduler import Engine, EngineLimits
from pagemill.pipelines.ocr import Ocr, OcrLimits
from pagemill.pipelines.options import OcrOptions
from pagemill.server.metrics import Metrics
from pagemill.server.parts import ServerLimits, ServerParts
from pagemill.settings import (
    MIB,
    OcrSettings,
    RuntimeName,
    Settings,
    StageName,
    WorkerGroupSettings,
)

# Seconds that one item may take before its worker counts as hung: many times what the
# largest allowed page takes on one slow core.
STAGE_LIMIT_S: Final = {
    "open": 30.0,
    "read_page": 120.0,
    "detect": 60.0,
    "cut": 60.0,
    "recognize": 60.0,
    "line_angle": 30.0,
    "draw": 30.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A running pagemill: the engine, what stands on it, and how many workers it has."""

    engine: Engine
    ocr: Ocr
    server: ServerParts
    workers: int


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Parts]:
    """Start the workers; inside the block they serve, after it they are gone."""
    groups = worker_groups(settings, usable_cores())
    metrics = Metrics()
    limits = EngineLimits(max_requests=settings.limits.max_requests, stage_limit_s=STAGE_LIMIT_S)
    engine = Engine(groups, limits, metrics)
    ocr = Ocr(
        engine,
        OcrLimits(
            max_pixels=settings.limits.max_pixels,
            max_pages=settings.limits.max_pages,
            window=settings.ocr.window,
        ),
    )
    async with engine.serving():
        yield Parts(
            engine=engine,
            ocr=ocr,
            server=ServerParts(
                engine=engine,
                ocr=ocr,
                metrics=metrics,
                limits=server_limits(settings),
                options=ocr_options(settings.ocr),
            ),
            workers=sum(group.count for group in groups),
        )


def worker_groups(settings: Settings, cores: Sequence[int]) -> tuple[GroupSpec, ...]:
    """Return what each group of workers is to be, its cores chosen from `cores`."""
    return tuple(_group(settings, group, cores) for group in settings.workers)


def _group(settings: Settings, group: WorkerGroupSettings, cores: Sequence[int]) -> GroupSpec:
    count = group.count or max(1, len(cores) // group.threads)
    return GroupSpec(
        name=group.name,
        stages=tuple(
            StageSetup(
                name=name,
                load=f"pagemill.stages.{name}:load",
                config=_stage_config(settings, group, name),
            )
            for name in group.stages
        ),
        cores=assign_cores(cores, count=count, threads=group.threads),
        batch=group.batch,
        max_rss_bytes=group.max_rss_mb * MIB,
        hard_rss_bytes=2 * group.max_rss_mb * MIB,
        max_tasks=group.max_tasks,
    )


def _stage_config(
    settings: Settings, group: WorkerGroupSettings, _name: StageName
) -> dict[str, Any]:
    runtime = group.runtime or settings.runtime.runtime
    return {
        "runtime": default_runtime() if runtime == "auto" else runtime,
        "device": group.device or settings.runtime.device,
        "precision": group.precision or settings.runtime.precision,
        "threads": group.threads,
    }


def default_runtime() -> RuntimeName:
    """Return the faster runtime for this processor."""
    return "openvino" if platform.machine().lower() in ("x86_64", "amd64") else "onnxruntime"


def ocr_options(
    settings: OcrSettings, *, pages: tuple[int, ...] | None = None, password: str | None = None
) -> OcrOptions:
    """Return the settings' defaults as options of pipeline `ocr`."""
    return OcrOptions(
        pages=pages,
        password=password,
        orientation=settings.orientation,
        min_confidence=settings.min_confidence,
    )


def server_limits(settings: Settings) -> ServerLimits:
    """Return what the HTTP edge refuses, and whom."""
    return ServerLimits(
        max_bytes=settings.limits.max_bytes,
        default_timeout_s=settings.limits.default_timeout_s,
        max_timeout_s=settings.limits.max_timeout_s,
        paddlex_max_pages=settings.paddlex.max_pages,
        paddlex_visualize=settings.paddlex.visualize,
        allow_urls=settings.fetch.allow_urls,
        url_allow_hosts=settings.fetch.allow_hosts,
        url_timeout_s=settings.fetch.timeout_s,
        api_keys=tuple(key.get_secret_value() for key in settings.server.api_keys),
    )
