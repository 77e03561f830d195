"""Health in every state: what a person, an orchestrator and a PaddleX client see."""

from dataclasses import replace
from typing import Any

import pytest

from pagemill.engine.state import EngineState
from pagemill.engine.supervisor import WorkerState
from tests.server.fakes import STATE, FakeEngine, Served

pytestmark = pytest.mark.anyio
WORKER = WorkerState(
    name="ocr-0",
    group="ocr",
    stages=frozenset({"detect"}),
    status="idle",
    generation=1,
    pid=5,
    rss_bytes=300 << 20,
    load_s=1.23456,
    facts={"detect.device": "CPU", "detect.runtime": "openvino"},
    why="",
)
GPU = replace(WORKER, facts={"detect.device": "CUDA:0"})
STARTING = replace(WORKER, status="starting", load_s=None, pid=None, rss_bytes=0, facts={})
BROKEN = replace(STARTING, status="broken", why="it died 5 times")


def served(**changed: Any) -> Served:
    return Served(engine=FakeEngine(state=replace(STATE, **changed)))


STATES = [
    ({"workers": (WORKER,)}, "ok", True, False),
    ({"workers": (WORKER, GPU)}, "ok", True, True),
    ({"workers": (STARTING,), "missing": ("detect",)}, "loading", False, False),
    ({"workers": (BROKEN,), "missing": ("detect",)}, "degraded", False, False),
    ({"workers": (WORKER, BROKEN)}, "ok", True, False),
    ({"workers": (WORKER,), "draining": True}, "draining", True, False),
    ({"workers": (STARTING,), "missing": ("detect",), "draining": True}, "draining", False, False),
]


@pytest.mark.parametrize(("changed", "status", "loaded", "gpu"), STATES)
async def test_health_is_paddlexs_body_and_three_facts(
    changed: dict[str, Any], status: str, *, loaded: bool, gpu: bool
) -> None:
    async with served(**changed).client() as client:
        reply = await client.get("/health", headers={"x-request-id": "mine"})
    assert reply.status_code == 200
    assert list(reply.json().items()) == [
        ("logId", "mine"), ("errorCode", 0), ("errorMsg", "Healthy"), ("status", status),
        ("model_loaded", loaded), ("gpu_available", gpu),
    ]  # fmt: skip


@pytest.mark.parametrize(("changed", "status", "loaded", "gpu"), STATES)
async def test_ready_says_what_is_missing(
    changed: dict[str, Any], status: str, *, loaded: bool, gpu: bool
) -> None:
    ready = status == "ok"
    async with served(**changed).client() as client:
        reply = await client.get("/health/ready")
        assert (await client.get("/health/live")).json() == {"status": "alive"}
    body = reply.json()
    assert reply.status_code == (200 if ready else 503)
    assert reply.headers.get("retry-after") == (None if ready else "1")
    assert body["status"] == ("ready" if ready else status)
    assert body["missing"] == list(changed.get("missing", ()))
    assert body["draining"] is changed.get("draining", False)


async def test_ready_tells_of_each_worker() -> None:
    async with served(workers=(WORKER, BROKEN), predicted_wait_s=0.12345).client() as client:
        body = (await client.get("/health/ready")).json()
    first, second = body["workers"]
    assert first == {
        "name": "ocr-0", "status": "idle", "generation": 1, "rss_mb": 300, "load_s": 1.235,
        "facts": {"detect.device": "CPU", "detect.runtime": "openvino"}, "why": "",
    }  # fmt: skip
    assert (second["load_s"], second["why"]) == (None, "it died 5 times")
    assert (body["queued"], body["predicted_wait_s"]) == ({"detect": 2}, 0.123)


async def test_the_state_is_the_engines_own() -> None:
    """Readiness reads what admission reads; no second flag can disagree."""
    state = replace(STATE, draining=True)
    assert not state.ready
    assert not replace(STATE, missing=("cut",)).ready
    assert isinstance(STATE, EngineState)
    assert STATE.ready
