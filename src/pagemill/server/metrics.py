"""Prometheus metrics: events as they happen, states when they are asked for."""

import os
from collections import Counter as Tally
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pagemill.engine.memory import rss_bytes
from pagemill.engine.port import DeathCause
from pagemill.engine.state import EngineState

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# From a cached answer to a long PDF, in seconds.
_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_ITEMS: Final = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counts what the engine (`engine.observer.Observer`) and the HTTP edge do."""

    def __init__(self) -> None:
        """Count in a registry of its own."""
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "pagemill_requests",
            "Requests by route and status.",
            ("route", "status"),
            registry=self.registry,
        )
        self._request_s = Histogram(
            "pagemill_request_seconds",
            "Seconds from the first byte of a request to the last of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._item_run_s = self._stage_histogram("run", "Seconds of native work")
        self._item_wait_s = self._stage_histogram("wait", "Seconds of waiting for a worker")
        self._items = self._counter("items", "Items by stage and outcome.", "stage", "outcome")
        self._batch_items = Histogram(
            "pagemill_batch_items",
            "Items handed to a worker at once.",
            ("stage",),
            buckets=_ITEMS,
            registry=self.registry,
        )
        self._deaths = self._counter("worker_restarts", "Workers ended, by cause.", "cause")
        self._retries = self._counter("retries", "Items run again after a death.", "stage")
        self._poison = self._counter("quarantined", "Inputs found to be poison.")
        self._shed = self._counter("shed", "Requests refused at the door.", "reason")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"pagemill_{name}", text, labels, registry=self.registry)

    def _stage_histogram(self, name: str, text: str) -> Histogram:
        return Histogram(
            f"pagemill_item_{name}_seconds",
            f"{text} of one item, by stage.",
            ("stage",),
            buckets=_SECONDS,
            registry=self.registry,
        )

    def watch(self, snapshot: Callable[[], EngineState]) -> None:
        """Show the engine's state whenever metrics are asked for."""
        self.registry.register(_StateCollector(snapshot))

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def request_finished(self, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is a template, never a path that a caller chose."""
        self._requests.labels(route, str(status)).inc()
        self._request_s.labels(route).observe(seconds)

    def item_finished(self, stage: str, wait_s: float, run_s: float, outcome: str) -> None:
        """Count an item."""
        self._items.labels(stage, outcome).inc()
        self._item_wait_s.labels(stage).observe(wait_s)
        self._item_run_s.labels(stage).observe(run_s)

    def batch_sent(self, stage: str, items: int) -> None:
        """Count a batch."""
        self._batch_items.labels(stage).observe(items)

    def worker_died(self, cause: DeathCause) -> None:
        """Count a worker's end."""
        self._deaths.labels(cause.value).inc()

    def retried(self, stage: str) -> None:
        """Count a retry."""
        self._retries.labels(stage).inc()

    def quarantined(self) -> None:
        """Count a poisonous input."""
        self._poison.inc()

    def shed(self, reason: str) -> None:
        """Count a refusal; `reason` is an error's code."""
        self._shed.labels(reason).inc()


class _StateCollector(Collector):
    def __init__(self, snapshot: Callable[[], EngineState]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        state = self._snapshot()
        queued = GaugeMetricFamily("pagemill_queue_items", "Items that wait.", labels=["stage"])
        for stage, count in sorted(state.queued.items()):
            queued.add_metric([stage], count)
        yield queued
        yield _gauge("running_items", "Items that a worker has.", state.running)
        yield _gauge("requests_in_flight", "Requests accepted and not ended.", state.requests)
        yield _gauge(
            "predicted_wait_seconds",
            "How much later than on an idle server a request would end.",
            state.predicted_wait_s,
        )
        yield _gauge("quarantine_size", "Inputs refused for a while.", state.quarantined)
        yield _gauge("ready", "1 when requests are served.", float(state.ready))
        yield from _workers(state)


def _workers(state: EngineState) -> Iterable[Metric]:
    count = GaugeMetricFamily("pagemill_workers", "Workers by state.", labels=["state"])
    for status, number in sorted(Tally(worker.status for worker in state.workers).items()):
        count.add_metric([status], number)
    yield count
    memory = GaugeMetricFamily(
        "pagemill_process_resident_bytes", "Resident memory.", labels=["process"]
    )
    memory.add_metric(["front"], rss_bytes(os.getpid()))
    load = GaugeMetricFamily(
        "pagemill_model_load_seconds", "Seconds a worker took to load.", labels=["worker"]
    )
    for worker in state.workers:
        memory.add_metric([worker.name], worker.rss_bytes)
        if worker.load_s is not None:
            load.add_metric([worker.name], worker.load_s)
    yield memory
    yield load


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"pagemill_{name}", text, value=value)
