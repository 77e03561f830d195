"""Whether a request would meet its deadline, and when to come back. Pure.

Requests share the workers (fairness.py), so one of `c` seconds is ahead of or beside
at most `c` seconds of every other request, not of its whole 300-page PDF.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pagemill.engine.fairness import LONG_WEIGHT, SHORT_S, SHORT_WEIGHT
from pagemill.engine.task import Priority

LEAST_RETRY_S: Final = 1.0
MOST_RETRY_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request's standing: the work it still needs, and the work it has had."""

    priority: Priority
    remaining_s: float
    attained_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How many workers there are, and how many requests there may be."""

    workers: int
    max_requests: int


def predicted_s(new: Request, others: Iterable[Request], *, workers: int) -> float:
    """Return by when `new` would end, at most, from now."""
    ahead_s = sum(_ahead_s(new, other) for other in others)
    return (new.remaining_s + ahead_s) / max(1, workers)


def refusal_s(
    new: Request, others: Iterable[Request], capacity: Capacity, *, left_s: float
) -> float | None:
    """Return None to admit `new`, else the seconds after which it would fit.

    `left_s` is the time until its deadline. Where nothing is ahead, waiting cannot
    help: it is admitted, whatever the guess of its cost.
    """
    known = list(others)
    excess_s = predicted_s(new, known, workers=capacity.workers) - left_s
    if len(known) >= capacity.max_requests:
        # No sooner does the shortest of n requests end that share all workers.
        shortest_s = min((other.remaining_s for other in known), default=0.0)
        freed_s = shortest_s * len(known) / max(1, capacity.workers)
        return _retry_after_s(max(freed_s, excess_s))
    if excess_s > 0 and any(_ahead_s(new, other) > 0 for other in known):
        return _retry_after_s(excess_s)  # the backlog shrinks by a second a second
    return None


def _ahead_s(new: Request, other: Request) -> float:
    """Return how much of `other` is served before `new` ends."""
    if other.priority != new.priority:
        return other.remaining_s if other.priority < new.priority else 0.0
    if other.attained_s < SHORT_S:
        return min(other.remaining_s, new.remaining_s)
    boosted_s = min(new.remaining_s, max(0.0, SHORT_S - new.attained_s))
    share_s = boosted_s * LONG_WEIGHT / SHORT_WEIGHT + (new.remaining_s - boosted_s)
    return min(other.remaining_s, share_s)


def _retry_after_s(seconds: float) -> float:
    return min(MOST_RETRY_S, max(LEAST_RETRY_S, seconds))
