"""What work costs, in seconds of one worker: learned while running. Pure."""

from dataclasses import dataclass, field
from typing import Final

PRIOR_ITEM_S: Final = 0.1  # a whole batch: what is not known yet runs alone
PRIOR_REQUEST_S: Final = 0.5  # a receipt
LEAST_ITEM_S: Final = 0.0005  # the round trip to a worker: nothing costs less
LEAST_COST: Final = 1e-9
_ITEM_PACE: Final = 0.05  # the last 20 items count
_REQUEST_PACE: Final = 0.1
_MOST_TYPICAL: Final = 4.0


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

    A mean of what was seen, each request counting for at most four typical ones: one
    300-page PDF among receipts must not make every receipt look like fifty pages.
    """

    _means: dict[str, float] = field(default_factory=dict)

    def estimate_s(self, pipeline: str) -> float:
        """Return what a request of `pipeline` will take, all its items together."""
        return self._means.get(pipeline, PRIOR_REQUEST_S)

    def typical_s(self) -> float:
        """Return what a request of the dearest pipeline in use will take."""
        return max(self._means.values(), default=PRIOR_REQUEST_S)

    def observe(self, pipeline: str, seconds: float) -> None:
        """Learn from a request that has ended."""
        if seconds <= 0:  # refused before any work: it says nothing
            return
        mean = max(self.estimate_s(pipeline), LEAST_ITEM_S)
        self._means[pipeline] = mean + _REQUEST_PACE * (min(seconds, _MOST_TYPICAL * mean) - mean)
