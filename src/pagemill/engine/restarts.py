"""When a worker that died is started again: pure, numbers in and numbers out."""

from dataclasses import dataclass, replace
from typing import Final

from pagemill.engine.port import DeathCause

FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 10.0
BREAKER_DEATHS: Final = 5
BROKEN_WAIT_S: Final = 30.0


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
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** (record.deaths - 1))
