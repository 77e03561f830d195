"""What the engine tells whoever counts: metrics live elsewhere."""

from typing import Protocol

from pagemill.engine.port import DeathCause


class Observer(Protocol):
    """Told of events as they happen, on the event loop; must not block or raise."""

    def item_finished(self, stage: str, wait_s: float, run_s: float, outcome: str) -> None:
        """Note an item's end: seconds queued (last attempt), seconds in its stage."""
        ...

    def batch_sent(self, stage: str, items: int) -> None:
        """Note that a worker got `items` at once."""
        ...

    def worker_died(self, cause: DeathCause) -> None:
        """Note that a worker is gone."""
        ...

    def retried(self, stage: str) -> None:
        """Note that an item lost its worker and is queued again."""
        ...

    def quarantined(self) -> None:
        """Note that an input is refused for a while."""
        ...

    def shed(self, reason: str) -> None:
        """Note that a request was refused at the door; `reason` is an error's code."""
        ...


class NullObserver:
    """An observer that ignores everything."""

    def item_finished(self, stage: str, wait_s: float, run_s: float, outcome: str) -> None:
        """Ignore it."""

    def batch_sent(self, stage: str, items: int) -> None:
        """Ignore it."""

    def worker_died(self, cause: DeathCause) -> None:
        """Ignore it."""

    def retried(self, stage: str) -> None:
        """Ignore it."""

    def quarantined(self) -> None:
        """Ignore it."""

    def shed(self, reason: str) -> None:
        """Ignore it."""
