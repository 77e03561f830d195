"""The ledger beside a dictionary of states: it allows what is legal and nothing else."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pagemill.engine.ledger import Ledger, LedgerError, Outcome, State

Move = Callable[[Ledger, int], object]
# name -> (move, states it is legal in, state after it; None: gone)
MOVES: dict[str, tuple[Move, tuple[State, ...], State | None]] = {
    "start": (lambda ledger, n: ledger.start(n, "w"), (State.QUEUED,), State.RUNNING),
    "lose": (lambda ledger, n: ledger.lose(n, blamed=True), (State.RUNNING,), State.QUEUED),
    "settle": (
        lambda ledger, n: ledger.settle(n, Outcome.ANSWERED),
        (State.QUEUED, State.RUNNING),
        None,
    ),
    "release": (lambda ledger, n: ledger.release(n), (State.ABANDONED,), None),
    "abandon": (
        lambda ledger, n: ledger.abandon(n, Outcome.CANCELLED),
        (State.RUNNING,),
        State.ABANDONED,
    ),
}


class LedgerMachine(RuleBasedStateMachine):
    """Any move on any item, legal or not."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.states: dict[int, State | None] = {}
        self.ends = 0

    @rule()
    def accept(self) -> None:
        number = self.ledger.accept()
        assert number not in self.states
        self.states[number] = State.QUEUED

    @precondition(lambda self: self.states)
    @rule(data=st.data(), name=st.sampled_from(sorted(MOVES)))
    def move(self, data: st.DataObject, name: str) -> None:
        number = data.draw(st.sampled_from(sorted(self.states)))
        move, legal, after = MOVES[name]
        before = self.states[number]
        if name == "abandon" and before is State.QUEUED:
            legal, after = (State.QUEUED,), None
        if before not in legal:
            with pytest.raises(LedgerError):
                move(self.ledger, number)
            return
        move(self.ledger, number)
        self.states[number] = after
        self.ends += name in ("settle", "abandon")

    @invariant()
    def it_agrees_with_the_model(self) -> None:
        self.ledger.check()
        assert {n: self.ledger.state(n) for n in self.states} == self.states
        assert self.ledger.settled.total() == self.ends
        for state in State:
            assert self.ledger.count(state) == list(self.states.values()).count(state)


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLedgerMachine = LedgerMachine.TestCase
