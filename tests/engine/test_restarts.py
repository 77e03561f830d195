"""Back-off and breaker, in numbers."""

import signal

import pytest

from pagemill.engine import restarts
from pagemill.engine.port import DeathCause
from pagemill.engine.restarts import Record


def died(times: int, cause: DeathCause = DeathCause.CRASH, *, joined: bool = True) -> Record:
    record = Record()
    for _ in range(times):
        record = restarts.after_death(record, cause, joined=joined)
    return record


def test_waits_double_up_to_a_bound() -> None:
    waits = [restarts.wait_s(died(n)) for n in range(10)]
    assert waits == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_kills_from_outside_and_departures_cost_no_wait() -> None:
    assert restarts.wait_s(died(100, DeathCause.KILLED)) == 0.0
    assert restarts.wait_s(died(100, DeathCause.LEFT)) == 0.0


def test_five_deaths_before_joining_open_the_breaker() -> None:
    assert not died(4, joined=False).broken
    assert died(5, joined=False).broken
    assert restarts.wait_s(died(5, joined=False)) == restarts.BROKEN_WAIT_S


def test_workers_that_joined_never_open_it() -> None:
    assert not died(50).broken


def test_an_answer_forgives() -> None:
    assert restarts.after_answer(died(5, joined=False)) == Record()


def test_the_last_cause_is_kept_for_people() -> None:
    record = restarts.after_death(Record(), DeathCause.EXIT, joined=False, why="no such model")
    assert record.why == "no such model"


def test_no_number_of_deaths_is_too_many() -> None:
    assert restarts.wait_s(died(5000)) == restarts.LONGEST_WAIT_S


@pytest.mark.parametrize(
    ("status", "leaving", "near_cap", "cause"),
    [
        (0, True, False, DeathCause.LEFT),
        (0, False, False, DeathCause.EXIT),
        (3, True, False, DeathCause.EXIT),
        (-signal.SIGSEGV, False, False, DeathCause.CRASH),
        (-signal.SIGABRT, False, True, DeathCause.CRASH),
        (-signal.SIGTRAP, False, False, DeathCause.CRASH),
        (-signal.SIGKILL, False, False, DeathCause.KILLED),
        (-signal.SIGKILL, False, True, DeathCause.MEMORY),
        (-signal.SIGTERM, False, True, DeathCause.KILLED),
    ],
)
def test_an_exit_status_says_who_is_to_blame(
    status: int, *, leaving: bool, near_cap: bool, cause: DeathCause
) -> None:
    assert restarts.cause_of_end(status, leaving=leaving, near_cap=near_cap) is cause
