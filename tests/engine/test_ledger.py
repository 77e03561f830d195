"""The ledger's transitions, legal and not."""

from collections.abc import Callable

import pytest

from pagemill.engine.ledger import Ledger, LedgerError, Outcome, State


def running(ledger: Ledger) -> int:
    number = ledger.accept()
    ledger.start(number, "w")
    return number


def test_an_item_goes_from_queued_over_running_to_its_end() -> None:
    ledger = Ledger()
    number = ledger.accept()
    states = [ledger.state(number)]
    ledger.start(number, "w")
    states.append(ledger.state(number))
    ledger.settle(number, Outcome.ANSWERED)
    states.append(ledger.state(number))
    assert states == [State.QUEUED, State.RUNNING, None]
    assert ledger.settled == {Outcome.ANSWERED: 1}


def test_every_attempt_has_a_nonce_of_its_own() -> None:
    ledger = Ledger()
    number = ledger.accept()
    nonces = []
    for _ in range(3):
        nonces.append(ledger.start(number, "w"))
        ledger.lose(number, blamed=False)
    assert len(set(nonces)) == 3


def test_losses_and_blames_are_counted() -> None:
    ledger = Ledger()
    number = running(ledger)
    ledger.lose(number, blamed=True)
    ledger.start(number, "v")
    entry = ledger.lose(number, blamed=False)
    assert (entry.losses, entry.blames, entry.worker) == (2, 1, None)


def test_an_abandoned_item_has_ended_but_stays_until_its_worker_is_done() -> None:
    ledger = Ledger()
    number = running(ledger)
    ledger.abandon(number, Outcome.EXPIRED)
    assert ledger.state(number) is State.ABANDONED
    ledger.check()
    ledger.release(number)
    assert ledger.state(number) is None
    ledger.check()


ILLEGAL: dict[str, Callable[[Ledger], object]] = {
    "start twice": lambda ledger: ledger.start(running(ledger), "v"),
    "lose what is queued": lambda ledger: ledger.lose(ledger.accept(), blamed=True),
    "settle the unknown": lambda ledger: ledger.settle(1, Outcome.ANSWERED),
    "release what runs": lambda ledger: ledger.release(running(ledger)),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_transition_raises(name: str) -> None:
    with pytest.raises(LedgerError):
        ILLEGAL[name](Ledger())


def test_an_item_cannot_end_twice() -> None:
    ledger = Ledger()
    number = running(ledger)
    ledger.settle(number, Outcome.ANSWERED)
    with pytest.raises(LedgerError, match="item 1 is gone"):
        ledger.settle(number, Outcome.EXPIRED)


def test_an_abandoned_item_cannot_be_answered() -> None:
    ledger = Ledger()
    number = running(ledger)
    ledger.abandon(number, Outcome.CANCELLED)
    with pytest.raises(LedgerError, match="item 1 is abandoned"):
        ledger.settle(number, Outcome.ANSWERED)
