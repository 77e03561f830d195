"""Whose item is next: priority first, then weighted start-time fair queueing. Pure.

Every request is a flow with a tag, in seconds of service divided by its weight; the
flow with the least tag is served. A flow that comes (back) starts at the tag now
being served, so it neither owes for nor profits from the time it was away.

Source: Goyal, Vin, Cheng, Start-time Fair Queueing, SIGCOMM 1996.
"""

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from pagemill.engine.task import Priority

SHORT_S: Final = 10.0
SHORT_WEIGHT: Final = 8.0
LONG_WEIGHT: Final = 1.0
_SLACK: Final = 64  # dead entries that a heap may keep besides its live ones


@dataclass(slots=True, eq=False, kw_only=True)
class Flow:
    """One request's share.

    `attained_s` is the service it got; `outstanding_s` what its items still need.
    `debt` is what it was charged too little (or too much), in units of the tag. It is
    settled at the next charge: only a refund lets a tag fall. Each heap holds a flow
    once, with its tag or an older, lower one; more often only after refunds.
    """

    priority: Priority
    number: int
    tag: float = 0.0
    debt: float = 0.0
    attained_s: float = 0.0
    outstanding_s: float = 0.0
    queued: int = 0
    lanes: dict[str, "_Lane"] = field(default_factory=dict)


@dataclass(slots=True, eq=False, kw_only=True)
class Item:
    """One item, as far as its turn goes. Its number is its place inside its request."""

    number: int
    flow: Flow
    stage: str
    cost: float
    estimate_s: float
    deadline_s: float
    digest: bytes = b""
    bucket: int = 0
    fds: int = 0
    payload_bytes: int = 0
    nonce: int = 0  # of its attempt, while it runs
    suspect: bool = False  # it may have killed a worker: it runs alone
    queued: bool = False
    queued_s: float = 0.0
    charge: float = 0.0


class _Lane:
    """One flow's items of one stage, by number; removed ones go when they surface."""

    __slots__ = ("heap", "live")

    def __init__(self) -> None:
        self.heap: list[tuple[int, Item]] = []
        self.live = 0

    def push(self, item: Item) -> None:
        heapq.heappush(self.heap, (item.number, item))
        self.live += 1

    def head(self) -> Item | None:
        while self.heap and not self.heap[0][1].queued:
            heapq.heappop(self.heap)
        return self.heap[0][1] if self.heap else None

    def removed(self) -> None:
        self.live -= 1
        if len(self.heap) > 2 * self.live + _SLACK:
            self.heap = [entry for entry in self.heap if entry[1].queued]
            heapq.heapify(self.heap)


class _Waiting:
    """Flows that have items of one stage, by priority and tag; and how much there is."""

    __slots__ = ("count", "flows", "heap", "seconds")

    def __init__(self) -> None:
        self.heap: list[tuple[int, float, int, Flow]] = []
        self.flows = 0
        self.count = 0
        self.seconds = 0.0

    def add(self, item: Item) -> None:
        self.count += 1
        self.seconds += item.estimate_s

    def drop(self, item: Item) -> None:
        self.count -= 1
        self.seconds = self.seconds - item.estimate_s if self.count else 0.0

    def compact(self, stage: str) -> None:
        """Forget flows whose items are all gone, once they are most of the heap."""
        if len(self.heap) <= 2 * self.flows + _SLACK:
            return
        flows = {entry[2]: entry[3] for entry in self.heap}
        self.heap = []
        for flow in flows.values():
            if stage in flow.lanes and flow.lanes[stage].live:
                self.heap.append((flow.priority, flow.tag, flow.number, flow))
            else:
                flow.lanes.pop(stage, None)
        heapq.heapify(self.heap)


class FairQueue:
    """All queued items. Every operation costs O(log n), cancelling O(1)."""

    def __init__(self, *, short_s: float = SHORT_S) -> None:
        """Start empty; a request weighs more until it has had `short_s` of service."""
        self._short_s = short_s
        self._waiting: defaultdict[str, _Waiting] = defaultdict(_Waiting)
        self._now: dict[Priority, float] = dict.fromkeys(Priority, 0.0)

    def add(self, item: Item) -> None:
        """Queue an item, new or again: it takes the place that its number gives."""
        flow, waiting = item.flow, self._waiting[item.stage]
        item.queued = True
        if not flow.queued:
            flow.tag = max(flow.tag, self._now[flow.priority])
        flow.queued += 1
        lane = flow.lanes.get(item.stage)
        if lane is None:
            lane = flow.lanes[item.stage] = _Lane()
            heapq.heappush(waiting.heap, (flow.priority, flow.tag, flow.number, flow))
        waiting.flows += not lane.live
        lane.push(item)
        waiting.add(item)

    def remove(self, item: Item) -> None:
        """Take an item out, wherever it stands."""
        assert item.queued
        waiting = self._waiting[item.stage]
        lane = item.flow.lanes[item.stage]
        item.queued = False
        item.flow.queued -= 1
        lane.removed()
        waiting.drop(item)
        if not lane.live:
            waiting.flows -= 1
            waiting.compact(item.stage)

    def head(self, stage: str) -> Item | None:
        """Return the item of `stage` whose turn it is."""
        heap = self._waiting[stage].heap if stage in self._waiting else []
        while heap:
            priority, tag, number, flow = heap[0]
            lane = flow.lanes.get(stage)
            item = lane.head() if lane is not None else None
            if item is None:
                heapq.heappop(heap)
                flow.lanes.pop(stage, None)
            elif tag != flow.tag:
                heapq.heapreplace(heap, (priority, flow.tag, number, flow))
            else:
                return item
        return None

    def first(self, stages: frozenset[str]) -> Item | None:
        """Return the item whose turn it is among all of `stages`."""
        heads = [head for stage in stages if (head := self.head(stage)) is not None]
        return min(heads, key=_turn, default=None)

    def charge(self, item: Item) -> None:
        """Count an item's estimated service, as it starts."""
        flow = item.flow
        self._now[flow.priority] = max(self._now[flow.priority], flow.tag)
        item.charge = item.estimate_s / self.weight(flow)
        step = item.charge + flow.debt
        flow.tag += max(0.0, step)
        flow.debt = min(0.0, step)
        flow.attained_s += item.estimate_s

    def correct(self, item: Item, seconds: float) -> None:
        """Replace an item's estimate by what it really took."""
        item.flow.debt += item.charge * (seconds / item.estimate_s - 1.0)
        item.flow.attained_s += seconds - item.estimate_s

    def refund(self, item: Item) -> None:
        """Take an item's charge back: its worker died, and others shall not overtake it."""
        flow = item.flow
        flow.attained_s -= item.estimate_s
        flow.tag -= item.charge
        for stage in flow.lanes:  # a second, lower entry; `head` and `compact` sort it out
            entry = (flow.priority, flow.tag, flow.number, flow)
            heapq.heappush(self._waiting[stage].heap, entry)

    def weight(self, flow: Flow) -> float:
        """Return a flow's weight: a receipt need not wait for a 300-page PDF."""
        return SHORT_WEIGHT if flow.attained_s < self._short_s else LONG_WEIGHT

    def count(self, stage: str) -> int:
        """Return how many items of `stage` are queued."""
        return self._waiting[stage].count if stage in self._waiting else 0

    def seconds(self, stage: str) -> float:
        """Return how long the queued items of `stage` will take one worker."""
        return self._waiting[stage].seconds if stage in self._waiting else 0.0

    def depths(self) -> dict[str, int]:
        """Return how many items are queued, for each stage ever seen."""
        return {stage: waiting.count for stage, waiting in self._waiting.items()}


def _turn(item: Item) -> tuple[int, float, int, int]:
    flow = item.flow
    return flow.priority, flow.tag, flow.number, item.number
