"""The state of every accepted item: each ends exactly once. Pure.

    accept -> QUEUED -> start -> RUNNING -> settle
                 ^                 |  |
                 +----- lose ------+  +-> abandon -> ABANDONED -> release

`settle` and `abandon` end an item for its caller, from QUEUED as well. An ABANDONED
item has ended, but its worker is still at it and its answer goes to nobody.
"""

import enum
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass


class State(enum.Enum):
    """Where an item is."""

    QUEUED = "queued"
    RUNNING = "running"
    ABANDONED = "abandoned"


class Outcome(enum.Enum):
    """How an item ended."""

    ANSWERED = "answered"
    FAILED = "failed"  # with an error of its stage
    POISONED = "poisoned"
    LOST = "lost"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    REFUSED = "refused"  # drained, or no worker can do it any more


class LedgerError(Exception):
    """A transition that must not be: our defect, never an input's."""


@dataclass(slots=True, kw_only=True)
class Entry:
    """One item. `nonce` names its attempt; `blames` count deaths it may have caused."""

    state: State = State.QUEUED
    worker: str | None = None
    nonce: int | None = None
    blames: int = 0
    losses: int = 0


class Ledger:
    """Items that have not ended, and counts of those that have."""

    def __init__(self) -> None:
        """Start empty."""
        self.accepted = 0
        self.settled: Counter[Outcome] = Counter()
        self._entries: dict[int, Entry] = {}
        self._states: Counter[State] = Counter()
        self._nonce = 0

    def accept(self, *, blames: int = 0) -> int:
        """Return the number of a new item, QUEUED; numbers rise."""
        self.accepted += 1
        self._entries[self.accepted] = Entry(blames=blames)
        self._states[State.QUEUED] += 1
        return self.accepted

    def start(self, number: int, worker: str) -> int:
        """Give a QUEUED item to `worker`; return the attempt's nonce, never used before."""
        entry = self._entry(number, State.QUEUED)
        self._move(entry, State.RUNNING)
        self._nonce += 1
        entry.worker, entry.nonce = worker, self._nonce
        return self._nonce

    def lose(self, number: int, *, blamed: bool) -> Entry:
        """Put a RUNNING item whose worker is gone back to QUEUED."""
        entry = self._entry(number, State.RUNNING)
        self._move(entry, State.QUEUED)
        entry.worker = entry.nonce = None
        entry.losses += 1
        entry.blames += blamed
        return entry

    def settle(self, number: int, outcome: Outcome) -> None:
        """End a QUEUED or RUNNING item."""
        entry = self._entry(number, State.QUEUED, State.RUNNING)
        self._forget(number, entry)
        self.settled[outcome] += 1

    def abandon(self, number: int, outcome: Outcome) -> None:
        """End an item whose caller is gone; a RUNNING one stays until its release."""
        entry = self._entry(number, State.QUEUED, State.RUNNING)
        self.settled[outcome] += 1
        if entry.state is State.QUEUED:
            self._forget(number, entry)
        else:
            self._move(entry, State.ABANDONED)

    def release(self, number: int) -> Entry:
        """Forget an ABANDONED item: its worker has answered or died."""
        entry = self._entry(number, State.ABANDONED)
        self._forget(number, entry)
        return entry

    def state(self, number: int) -> State | None:
        """Return where an item is; None when it has ended."""
        entry = self._entries.get(number)
        return entry.state if entry else None

    def entry(self, number: int) -> Entry:
        """Return what is known of an item that has not ended."""
        return self._entry(number, *State)

    def count(self, state: State) -> int:
        """Return how many items are in `state`."""
        return self._states[state]

    def check(self) -> None:
        """Hold the counts against each other: no item lost, none ended twice."""
        live = self._states[State.QUEUED] + self._states[State.RUNNING]
        assert self.accepted == self.settled.total() + live
        assert self._states.total() == len(self._entries)
        for entry in self._entries.values():
            assert (entry.worker is None) == (entry.state is State.QUEUED)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers of items that have not left."""
        return iter(list(self._entries))

    def _entry(self, number: int, *states: State) -> Entry:
        entry = self._entries.get(number)
        if entry is None or entry.state not in states:
            message = f"item {number} is {entry.state.value if entry else 'gone'}"
            raise LedgerError(message)
        return entry

    def _move(self, entry: Entry, state: State) -> None:
        self._states[entry.state] -= 1
        self._states[state] += 1
        entry.state = state

    def _forget(self, number: int, entry: Entry) -> None:
        self._states[entry.state] -= 1
        del self._entries[number]
