"""Whatever happens in whatever order: every item ends once, fairly and in time."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pagemill.engine.batching import Hands
from pagemill.engine.fairness import FairQueue, Flow, Item
from pagemill.engine.ledger import Outcome
from pagemill.engine.policy import Fate, Limits, Policy, Work
from pagemill.engine.port import DeathCause
from pagemill.engine.task import Context, Priority

BATCH_S = 0.1
LONGEST_S = 0.3
UNIT_S = 0.01
WORKERS = 2
STAGES = ("read", "cut")
HANDS = Hands(
    stages=frozenset(STAGES),
    able=dict.fromkeys(STAGES, WORKERS),
    idle=dict.fromkeys(STAGES, 1),
)
LIMITS = Limits(short_s=0.0, batch_s=BATCH_S, max_losses=4)
costs = st.floats(0.1, LONGEST_S / UNIT_S)


@dataclass
class Known:
    """What must be true of an item."""

    item: Item
    deadline_s: float
    blames: int = 0
    losses: int = 0
    ended: Outcome | None = None
    running: bool = False


class PolicyMachine(RuleBasedStateMachine):
    """Two workers, requests of two classes, and a model that is too simple to be wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = Policy(LIMITS)
        for stage in STAGES:
            self.policy._stage_costs.observe(stage, 1.0, UNIT_S)
        self.now_s = 0.0
        self.contexts: list[Context] = []
        self.known: dict[int, Known] = {}
        self.held: dict[int, tuple[Item, ...]] = {}

    @rule(left_s=st.floats(0.1, 10.0), priority=st.sampled_from(Priority))
    def admit(self, left_s: float, priority: Priority) -> None:
        deadline_s = self.now_s + left_s
        context = Context(request_id="r", deadline_s=deadline_s, priority=priority)
        self.contexts.append(self.policy.admit(context, pipeline="ocr"))

    @precondition(lambda self: self.contexts)
    @rule(data=st.data(), stage=st.sampled_from(STAGES), some=st.lists(costs, max_size=8))
    def add(self, data: st.DataObject, stage: str, some: list[float]) -> None:
        context = data.draw(st.sampled_from(self.contexts))
        for cost in some:
            digest = len(self.known).to_bytes(16, "big")
            work = Work(stage=stage, digest=digest, cost=cost)
            item = self.policy.accept(work, context, now_s=self.now_s)
            self.known[item.number] = Known(item=item, deadline_s=context.deadline_s)

    @rule(worker=st.integers(1, WORKERS))
    def draw(self, worker: int) -> None:
        if worker in self.held:
            return
        drawn = self.policy.draw(HANDS, str(worker), now_s=self.now_s)
        for item in drawn.expired:
            known = self.known[item.number]
            assert known.deadline_s <= self.now_s
            self._end(item, Outcome.EXPIRED)
        for item in drawn.batch:
            known = self.known[item.number]
            assert known.deadline_s > self.now_s
            assert known.ended is None
            assert not known.running
            assert known.blames == 0 or len(drawn.batch) == 1
            known.running = True
        assert len({item.stage for item in drawn.batch}) <= 1
        seconds = sum(item.estimate_s for item in drawn.batch)
        assert len(drawn.batch) <= 1 or seconds <= BATCH_S * 1.001
        if drawn.batch:
            self.held[worker] = drawn.batch

    @precondition(lambda self: self.held)
    @rule(data=st.data(), outcome=st.sampled_from([Outcome.ANSWERED, Outcome.FAILED]))
    def finish(self, data: st.DataObject, outcome: Outcome) -> None:
        worker = data.draw(st.sampled_from(sorted(self.held)))
        for item in self.held.pop(worker):
            wanted = self.policy.finish(item, outcome, seconds=item.estimate_s, now_s=self.now_s)
            assert wanted == (self.known[item.number].ended is None)
            if wanted:
                self._end(item, outcome)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), cause=st.sampled_from(DeathCause))
    def die(self, data: st.DataObject, cause: DeathCause) -> None:
        worker = data.draw(st.sampled_from(sorted(self.held)))
        for item in self.held.pop(worker):
            known = self.known[item.number]
            known.losses += 1
            known.blames += cause.blames
            known.running = False
            fate = self.policy.lose(item, cause, now_s=self.now_s)
            assert fate is self._expected_fate(known)
            if fate in (Fate.POISONED, Fate.LOST):
                self._end(item, Outcome[fate.name])

    @staticmethod
    def _expected_fate(known: Known) -> Fate:
        if known.ended is not None:
            return Fate.FORGOTTEN
        if known.blames == 2:
            return Fate.POISONED
        return Fate.LOST if known.losses == LIMITS.max_losses else Fate.RETRIED

    @precondition(lambda self: any(each.ended is None for each in self.known.values()))
    @rule(data=st.data(), outcome=st.sampled_from([Outcome.CANCELLED, Outcome.EXPIRED]))
    def abandon(self, data: st.DataObject, outcome: Outcome) -> None:
        live = [number for number, each in self.known.items() if each.ended is None]
        item = self.known[data.draw(st.sampled_from(live))].item
        self.policy.abandon(item, outcome)
        self._end(item, outcome)

    @rule(seconds=st.floats(0.0, 1.0))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def _end(self, item: Item, outcome: Outcome) -> None:
        known = self.known[item.number]
        assert known.ended is None
        known.ended = outcome

    @invariant()
    def nothing_is_lost_or_ended_twice(self) -> None:
        self.policy.ledger.check()
        live = [each for each in self.known.values() if each.ended is None]
        assert self.policy.ledger.settled.total() == len(self.known) - len(live)
        waiting = [each for each in live if not each.running]
        assert sum(self.policy.queue.depths().values()) == len(waiting)

    @invariant()
    def requests_of_a_class_are_served_alike(self) -> None:
        flows = {each.item.flow for each in self.known.values() if each.item.flow.queued}
        for priority in Priority:
            tags = [flow.tag for flow in flows if flow.priority is priority]
            in_flight = 1 + WORKERS  # a refund may move a tag back by what was in flight
            assert not tags or max(tags) - min(tags) <= (BATCH_S + LONGEST_S) * in_flight

    def teardown(self) -> None:
        """Let everything run out: then nothing may be left."""
        for worker in sorted(self.held):
            for item in self.held.pop(worker):
                self.policy.finish(item, Outcome.ANSWERED, seconds=0.01, now_s=self.now_s)
        while batch := self.policy.draw(HANDS, "w", now_s=self.now_s).batch:
            for item in batch:
                self.policy.finish(item, Outcome.ANSWERED, seconds=0.01, now_s=self.now_s)
        assert self.policy.ledger.settled.total() == len(self.known)
        assert not list(self.policy.ledger)
        for context in self.contexts:
            self.policy.dismiss(context)


PolicyMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPolicyMachine = PolicyMachine.TestCase


@settings(max_examples=100, deadline=None)
@given(data=st.data(), first=st.lists(costs, min_size=30, max_size=30))
def test_two_backlogged_requests_differ_by_a_batch_and_an_item_at_most(
    data: st.DataObject, first: list[float]
) -> None:
    second = data.draw(st.lists(costs, min_size=30, max_size=30))
    stages = data.draw(st.lists(st.sampled_from(STAGES), min_size=60, max_size=60))
    policy = Policy(LIMITS)
    for stage in STAGES:
        policy._stage_costs.observe(stage, 1.0, UNIT_S)
    served: dict[int, float] = {}
    for some in (first, second):
        context = policy.admit(Context(request_id="r", deadline_s=1e9), pipeline="ocr")
        served[context.flow] = 0.0
        for cost in some:
            policy.accept(Work(stage=stages.pop(), digest=b"", cost=cost), context, now_s=0.0)
    while batch := policy.draw(HANDS, "w", now_s=0.0).batch:
        for item in batch:
            served[item.flow.number] += item.estimate_s
        if len({item.flow for item in policy.queued()}) < 2:
            break
        one, other = served.values()
        assert abs(one - other) <= BATCH_S + LONGEST_S


class QueueMachine(RuleBasedStateMachine):
    """The fair queue beside a list: the same items, and the head has the least tag."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = FairQueue(short_s=0.0)
        self.items: list[Item] = []
        self.taken: list[Item] = []
        self.flows = [Flow(priority=Priority(n % 2), number=n) for n in range(4)]
        self.number = 0

    @rule(flow=st.integers(0, 3), stage=st.sampled_from(STAGES), seconds=st.floats(0.01, 1.0))
    def add(self, flow: int, stage: str, seconds: float) -> None:
        self.number += 1
        item = Item(
            number=self.number,
            flow=self.flows[flow],
            stage=stage,
            cost=1.0,
            estimate_s=seconds,
            deadline_s=1.0,
        )
        self.queue.add(item)
        self.items.append(item)

    @rule(stage=st.sampled_from(STAGES))
    def take(self, stage: str) -> None:
        head = self.queue.head(stage)
        turns = [
            (item.flow.priority, item.flow.tag, item.flow.number, item.number)
            for item in self.items
            if item.stage == stage
        ]
        if head is None:
            assert not turns
            return
        assert head.number == min(turns)[3]
        self.queue.remove(head)
        self.queue.charge(head)
        self.items.remove(head)
        self.taken.append(head)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), seconds=st.none() | st.floats(0.0, 2.0))
    def give_back(self, data: st.DataObject, seconds: float | None) -> None:
        item = data.draw(st.sampled_from(self.taken))
        self.taken.remove(item)
        if seconds is None:
            self.queue.refund(item)
            self.queue.add(item)
            self.items.append(item)
        else:
            self.queue.correct(item, seconds)

    @precondition(lambda self: self.items)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.items))
        self.queue.remove(item)
        self.items.remove(item)

    @invariant()
    def it_knows_how_much_it_holds(self) -> None:
        for stage in STAGES:
            there = [item for item in self.items if item.stage == stage]
            assert self.queue.count(stage) == len(there)
            assert abs(self.queue.seconds(stage) - sum(i.estimate_s for i in there)) < 1e-6


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestQueueMachine = QueueMachine.TestCase
