"""What work costs, in seconds of one worker: learned while running. Pure."""

import math
from dataclasses import dataclass, field
from typing import Final

PRIOR_ITEM_S: Final = 0.05  # a line or a tile on one core, before anything is known
PRIOR_REQUEST_S: Final = 0.5  # a receipt
LEAST_ITEM_S: Final = 0.0005  # the round trip to a worker: nothing costs less
LEAST_COST: Final = 1e-9
_ITEM_PACE: Final = 0.05  # the last 20 items count
_REQUEST_PACE: Final = 0.1


@dataclass(slots=True)
class _Rate:
    seconds: float
    cost: float


@dataclass(slots=True)
class StageCosts:
    """Seconds per unit of cost, for each stage.

    Seconds and units are averaged apart, so large items, which say most about the
    rate, also count most.
    """

    _rates: dict[str, _Rate] = field(default_factory=dict)

    def estimate_s(self, stage: str, cost: float) -> float:
        """Return what an item will take; a guess until its stage has run once."""
        rate = self._rates.get(stage)
        if rate is None:
            return PRIOR_ITEM_S
        return max(LEAST_ITEM_S, max(cost, LEAST_COST) * rate.seconds / rate.cost)

    def observe(self, stage: str, cost: float, seconds: float) -> None:
        """Learn from an item that was answered."""
        cost = max(cost, LEAST_COST)
        rate = self._rates.setdefault(stage, _Rate(seconds, cost))
        rate.seconds += _ITEM_PACE * (seconds - rate.seconds)
        rate.cost += _ITEM_PACE * (cost - rate.cost)


@dataclass(slots=True)
class RequestCosts:
    """Seconds of work in a typical request, for each pipeline.

    A geometric mean: one 300-page PDF among receipts must not make every receipt
    look like a hundred pages.
    """

    _logs: dict[str, float] = field(default_factory=dict)

    def estimate_s(self, pipeline: str) -> float:
        """Return what a request of `pipeline` will take, all its items together."""
        return math.exp(self._logs.get(pipeline, math.log(PRIOR_REQUEST_S)))

    def typical_s(self) -> float:
        """Return what a request of the dearest pipeline in use will take."""
        return max(map(self.estimate_s, self._logs), default=PRIOR_REQUEST_S)

    def observe(self, pipeline: str, seconds: float) -> None:
        """Learn from a request that has ended."""
        if seconds <= 0:  # refused before any work: it says nothing
            return
        log = math.log(seconds)
        known = self._logs.setdefault(pipeline, log)
        self._logs[pipeline] = known + _REQUEST_PACE * (log - known)
