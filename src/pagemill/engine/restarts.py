"""When a worker that died is started again: pure, numbers in and numbers out."""

import signal
from dataclasses import dataclass, replace
from typing import Final

from pagemill.engine.port import DeathCause

FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 10.0
BREAKER_DEATHS: Final = 5
BROKEN_WAIT_S: Final = 30.0
_DOUBLINGS: Final = 30  # beyond any bound, and no float overflows
_CRASHES: Final = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGILL,
        signal.SIGFPE,
        signal.SIGSYS,
        signal.SIGTRAP,  # how PDFium and V8 end when a check of theirs fails
    }
)


def cause_of_end(status: int, *, leaving: bool, near_cap: bool) -> DeathCause:
    """Return why a worker ended that we did not kill.

    Args:
        status: its exit status; negative is the signal that ended it.
        leaving: we had asked it to go.
        near_cap: its memory, when last seen, was near its cap.

    """
    if status >= 0:
        return DeathCause.LEFT if leaving and status == 0 else DeathCause.EXIT
    if -status in _CRASHES:
        return DeathCause.CRASH
    # The kernel kills with SIGKILL when memory runs out; near the cap we know why.
    return DeathCause.MEMORY if near_cap and -status == signal.SIGKILL else DeathCause.KILLED


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """How one worker's place has fared since it last answered a batch.

    `deaths` counts blameable deaths in a row, `unfit` those before joining;
    `why` is the last such death, for people.
    """

    deaths: int = 0
    unfit: int = 0
    why: str = ""

    @property
    def broken(self) -> bool:
        """Whether starting it again is hopeless for now."""
        return self.unfit >= BREAKER_DEATHS


def after_answer(record: Record) -> Record:
    """Forget the past: the worker has answered a batch."""
    return Record() if record.deaths or record.unfit else record


def after_death(record: Record, cause: DeathCause, *, joined: bool, why: str = "") -> Record:
    """Remember a death. Kills from outside say nothing of the worker."""
    if not cause.blames:
        return record
    unfit = 0 if joined else record.unfit + 1
    return replace(record, deaths=record.deaths + 1, unfit=unfit, why=why or cause.value)


def wait_s(record: Record) -> float:
    """Return how long to wait before the next start: doubling, bounded."""
    if record.broken:
        return BROKEN_WAIT_S
    if not record.deaths:
        return 0.0
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(record.deaths - 1, _DOUBLINGS))
