"""The truth about this server: alive, ready, and in numbers."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from pagemill.engine.state import EngineState
from pagemill.server.answers import json_response
from pagemill.server.errors import request_id
from pagemill.server.metrics import CONTENT_TYPE
from pagemill.server.parts import ServerParts


def build_router(parts: ServerParts) -> APIRouter:
    """Return the routes for people, orchestrators and Prometheus; none needs a key."""
    router = APIRouter(tags=["health"])

    @router.get("/health", summary="Health, as PaddleX clients expect it")
    async def health(request: Request) -> Response:
        """Answer 200 while the process lives; `status` says how it fares."""
        state = parts.engine.snapshot()
        body = {
            "logId": request_id(request),
            "errorCode": 0,
            "errorMsg": "Healthy",
            "status": _status(state),
            "model_loaded": not state.missing,
            "gpu_available": _has_gpu(state),
        }
        return json_response(body)

    @router.get("/health/live", summary="Is the process alive")
    async def live() -> Response:
        """Answer 200 as long as the event loop turns."""
        return json_response({"status": "alive"})

    @router.get("/health/ready", summary="Would a request be served")
    async def ready() -> Response:
        """Answer 200 when every stage has a worker, else 503 and what is missing."""
        state = parts.engine.snapshot()
        headers = None if state.ready else {"Retry-After": "1"}
        return json_response(_readiness(state), status=200 if state.ready else 503, headers=headers)

    @router.get("/metrics", summary="Metrics for Prometheus")
    async def metrics() -> Response:
        """Answer in Prometheus' text format."""
        return Response(parts.metrics.render(), headers={"content-type": CONTENT_TYPE})

    return router


def _status(state: EngineState) -> str:
    if state.draining:
        return "draining"
    if state.missing:
        broken = any(worker.status == "broken" for worker in state.workers)
        return "degraded" if broken else "loading"
    return "ok"


def _has_gpu(state: EngineState) -> bool:
    facts = (worker.facts.items() for worker in state.workers)
    return any(
        key.endswith(".device") and not value.lower().startswith("cpu")
        for each in facts
        for key, value in each
    )


def _readiness(state: EngineState) -> dict[str, Any]:
    return {
        "status": "ready" if state.ready else _status(state),
        "missing": list(state.missing),
        "draining": state.draining,
        "queued": state.queued,
        "predicted_wait_s": round(state.predicted_wait_s, 3),
        "workers": [
            {
                "name": worker.name,
                "status": worker.status,
                "generation": worker.generation,
                "rss_mb": worker.rss_bytes >> 20,
                "load_s": worker.load_s and round(worker.load_s, 3),
                "facts": worker.facts,
                "why": worker.why,
            }
            for worker in state.workers
        ],
    }
