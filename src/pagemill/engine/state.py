"""What the engine tells of itself, for /health and /metrics."""

from dataclasses import dataclass

from pagemill.engine.port import DeathCause
from pagemill.engine.supervisor import WorkerState


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """The engine at one moment.

    `missing` are the stages that no worker can do now; `predicted_wait_s` is how
    much later than on an idle machine an ordinary request would end.
    """

    workers: tuple[WorkerState, ...]
    queued: dict[str, int]
    running: int
    requests: int
    predicted_wait_s: float
    draining: bool
    missing: tuple[str, ...]
    quarantined: int
    deaths: dict[DeathCause, int]

    @property
    def ready(self) -> bool:
        """Whether a request would be served."""
        return not self.draining and not self.missing
