"""Metrics: each of those that the issue lists, with its labels and its figures."""

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pagemill.engine.observer import Observer
from pagemill.engine.port import DeathCause
from pagemill.server.metrics import Metrics
from tests.server.fakes import STATE, FakeEngine, Served
from tests.server.test_health import BROKEN, STARTING, WORKER

pytestmark = pytest.mark.anyio


def samples(text: str) -> dict[str, float]:
    """Return the value of each sample by its name and labels."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def watched(**changed: Any) -> Metrics:
    metrics = Metrics()
    metrics.watch(lambda: replace(STATE, **changed))
    return metrics


def test_events_of_the_engine() -> None:
    metrics = watched()
    observer: Observer = metrics
    observer.item_finished("detect", 0.2, 0.3, "done")
    observer.item_finished("detect", 0.0, 700.0, "failed")
    observer.batch_sent("recognize", 3)
    observer.worker_died(DeathCause.CRASH)
    observer.worker_died(DeathCause.HANG)
    observer.retried("detect")
    observer.quarantined()
    observer.shed("overloaded")
    found = samples(metrics.render().decode())
    expected = {
        "pagemill_items_total{outcome=done,stage=detect}": 1,
        "pagemill_item_wait_seconds_sum{stage=detect}": 0.2,
        "pagemill_item_run_seconds_bucket{le=0.5,stage=detect}": 1,
        "pagemill_item_run_seconds_bucket{le=+Inf,stage=detect}": 2,
        "pagemill_batch_items_sum{stage=recognize}": 3,
        "pagemill_worker_restarts_total{cause=crash}": 1,
        "pagemill_worker_restarts_total{cause=hang}": 1,
        "pagemill_retries_total{stage=detect}": 1,
        "pagemill_quarantined_total": 1,
        "pagemill_shed_total{reason=overloaded}": 1,
    }
    assert {name: found.get(name) for name in expected} == expected


def test_states_are_read_when_they_are_asked_for() -> None:
    workers = (WORKER, replace(WORKER, name="ocr-1"), BROKEN, STARTING)
    metrics = watched(
        workers=workers, queued={"detect": 2, "cut": 0}, running=3, requests=4,
        predicted_wait_s=1.5, quarantined=2,
    )  # fmt: skip
    found = samples(metrics.render().decode())
    expected = {
        "pagemill_queue_items{stage=detect}": 2,
        "pagemill_queue_items{stage=cut}": 0,
        "pagemill_running_items": 3,
        "pagemill_requests_in_flight": 4,
        "pagemill_predicted_wait_seconds": 1.5,
        "pagemill_quarantine_size": 2,
        "pagemill_ready": 1,
        "pagemill_workers{state=idle}": 2,
        "pagemill_workers{state=broken}": 1,
        "pagemill_workers{state=starting}": 1,
        "pagemill_process_resident_bytes{process=ocr-1}": 300 << 20,
        "pagemill_model_load_seconds{worker=ocr-1}": 1.23456,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert found["pagemill_process_resident_bytes{process=front}"] > 10 << 20


async def test_requests_by_route_and_status_never_by_what_a_caller_wrote() -> None:
    async with Served().client() as client:
        for path in ("/nope/1", "/nope/2", "/v1/ocr/x", "/../etc"):
            await client.get(path)
        await client.post("/v1/ocr?pages=1", content=b"x")
        await client.post("/v1/ocr?pages=x", content=b"x")
        await client.post("/ocr", content=b"{}")
        reply = await client.get("/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = samples(reply.text)
    requests = {key: value for key, value in found.items() if "requests_total" in key}
    assert requests == {
        "pagemill_requests_total{route=unknown,status=404}": 4,
        "pagemill_requests_total{route=/v1/ocr,status=200}": 1,
        "pagemill_requests_total{route=/v1/ocr,status=422}": 1,
        "pagemill_requests_total{route=/ocr,status=422}": 1,
    }
    assert found["pagemill_request_seconds_count{route=/v1/ocr}"] == 2


async def test_a_server_that_is_not_ready_still_tells_its_metrics() -> None:
    engine = FakeEngine(state=replace(STATE, missing=("detect",), draining=True))
    async with Served(engine=engine).client() as client:
        found = samples((await client.get("/metrics")).text)
    assert found["pagemill_ready"] == 0
