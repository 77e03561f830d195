"""What runs next, what is refused, what becomes of items whose worker died."""

from itertools import pairwise

import pytest

from pagemill.engine.batching import Hands
from pagemill.engine.cost import RequestCosts
from pagemill.engine.fairness import Item
from pagemill.engine.ledger import Outcome
from pagemill.engine.policy import Fate, Limits, Policy, Work
from pagemill.engine.port import DeathCause
from pagemill.engine.task import Context, Priority
from tests.engine.policy_tools import add, admit, draw, hands, learn, numbers

SAME = Limits(short_s=0.0)  # every request has weight 1


def taught(limits: Limits = SAME) -> Policy:
    policy = Policy(limits)
    learn(policy)  # a unit of cost takes 10 ms
    return policy


def end(policy: Policy, *items: Item) -> None:
    for item in items:
        policy.finish(item, Outcome.ANSWERED, seconds=item.estimate_s, now_s=0.0)


def run_alone(policy: Policy, *, rounds: int, with_hands: Hands | None = None) -> list[int]:
    """Let one worker do `rounds` batches; return the flows of what it did, in order."""
    served = []
    for _ in range(rounds):
        batch = draw(policy, with_hands).batch
        served += [item.flow.number for item in batch]
        end(policy, *batch)
    return served


def test_nothing_queued_is_nothing_drawn() -> None:
    assert draw(Policy()).batch == ()


def test_a_batch_takes_a_tenth_of_a_second() -> None:
    policy = taught()
    items = add(policy, admit(policy), *[4.0] * 5)
    assert numbers(draw(policy).batch) == numbers(items[:2])


def test_an_item_longer_than_a_batch_runs_alone() -> None:
    policy = taught()
    items = add(policy, admit(policy), 100.0, 1.0)
    assert numbers(draw(policy).batch) == numbers(items[:1])


def test_two_idle_workers_share_the_lines_of_a_page() -> None:
    policy = taught()
    items = add(policy, admit(policy), *[1.0] * 8)
    first = draw(policy, hands(able=2, idle=2)).batch
    assert numbers(first) == numbers(items[:4])


def test_a_worker_leaves_half_of_the_rest_to_the_busy_one_but_no_crumbs() -> None:
    policy = taught()
    add(policy, admit(policy), *[1.0] * 8)
    sizes = []
    while batch := draw(policy, hands(able=2, idle=1)).batch:
        sizes.append(len(batch))
    assert sizes == [4, 2, 2]


def test_many_idle_workers_get_an_item_each() -> None:
    policy = taught()
    add(policy, admit(policy), *[1.0] * 8)
    assert len(draw(policy, hands(able=64, idle=64)).batch) == 1


def test_a_batch_is_of_one_stage() -> None:
    policy = taught()
    learn(policy, "cut")
    context = admit(policy)
    (first,) = add(policy, context, 1.0)
    (second,) = add(policy, context, 1.0, stage="cut")
    both = hands("read", "cut")
    assert numbers(draw(policy, both).batch) == [first.number]
    assert numbers(draw(policy, both).batch) == [second.number]


def test_a_worker_gets_only_what_it_can_do() -> None:
    policy = taught()
    add(policy, admit(policy), 1.0)
    assert draw(policy, hands("cut")).batch == ()


def test_requests_of_equal_weight_take_turns() -> None:
    policy = taught()
    first, second = admit(policy), admit(policy)
    add(policy, first, *[10.0] * 3)
    add(policy, second, *[10.0] * 3)
    assert run_alone(policy, rounds=6) == [1, 2, 1, 2, 1, 2]


def test_a_request_that_comes_late_gets_no_credit_for_its_absence() -> None:
    policy = taught()
    add(policy, admit(policy), *[10.0] * 20)
    run_alone(policy, rounds=10)
    add(policy, admit(policy), *[10.0] * 10)
    assert run_alone(policy, rounds=4).count(2) == 2


def test_a_short_request_overtakes_a_long_one() -> None:
    policy = taught(Limits(short_s=2.0))
    add(policy, admit(policy), *[10.0] * 60)
    run_alone(policy, rounds=30)  # the long one has had 3 s
    add(policy, admit(policy), *[10.0] * 8)
    assert run_alone(policy, rounds=10).count(2) == 8


def test_a_higher_class_goes_first() -> None:
    policy = taught()
    add(policy, admit(policy, priority=Priority.BATCH), *[10.0] * 2)
    add(policy, admit(policy), *[10.0] * 2)
    assert run_alone(policy, rounds=4) == [2, 2, 1, 1]


def test_what_an_item_really_took_is_charged() -> None:
    policy = taught()
    add(policy, admit(policy), *[10.0] * 4)
    add(policy, admit(policy), *[10.0] * 4)
    (item,) = draw(policy).batch
    policy.finish(item, Outcome.ANSWERED, seconds=0.3, now_s=0.0)  # thrice the estimate
    served = [each.flow.number for _ in range(5) for each in draw(policy).batch]
    assert served == [2, 1, 2, 2, 2]


def test_on_a_device_only_equal_buckets_share_a_batch() -> None:
    policy = taught()
    context = admit(policy)
    work = [Work(stage="read", digest=b"", cost=0.1, bucket=bucket) for bucket in (1, 2, 1, 2, 1)]
    for each in work:
        policy.accept(each, context, now_s=0.0)
    device = hands(batch=2)
    drawn = [numbers(draw(policy, device).batch) for _ in range(3)]
    assert drawn == [[1, 3], [2, 4], [5]]


def test_expired_items_are_told_apart_and_never_run() -> None:
    policy = taught()
    late = add(policy, admit(policy, deadline_s=1.0), 1.0, 1.0)
    good = add(policy, admit(policy), 1.0)
    drawn = draw(policy, now_s=1.0)
    assert numbers(drawn.batch) == numbers(good)
    assert numbers(drawn.expired) == numbers(late)
    assert policy.ledger.settled == {Outcome.EXPIRED: 2}


def test_a_cancelled_item_is_never_run() -> None:
    policy = taught()
    first, second, third = add(policy, admit(policy), 1.0, 1.0, 1.0)
    policy.abandon(second, Outcome.CANCELLED)
    assert numbers(draw(policy).batch) == [first.number, third.number]


def test_the_answer_to_an_abandoned_item_is_for_nobody() -> None:
    policy = taught()
    (item,) = add(policy, admit(policy), 1.0)
    draw(policy)
    policy.abandon(item, Outcome.CANCELLED)
    assert not policy.finish(item, Outcome.ANSWERED, seconds=0.01, now_s=0.0)
    policy.ledger.check()


def test_what_a_dead_worker_held_runs_again_alone_in_its_place() -> None:
    policy = taught()
    items = add(policy, admit(policy), 1.0, 1.0, 1.0)
    add(policy, admit(policy), *[1.0] * 3)
    batch = draw(policy, hands(able=2, idle=2)).batch
    assert {policy.lose(item, DeathCause.CRASH, now_s=0.0) for item in batch} == {Fate.RETRIED}
    drawn = [numbers(draw(policy).batch) for _ in range(5)]
    assert [each for each in drawn if set(each) & set(numbers(batch))] == [
        [item.number] for item in batch
    ]
    assert items[0] in batch


def test_a_kill_from_outside_is_nobodys_fault() -> None:
    policy = taught()
    items = add(policy, admit(policy), 1.0, 1.0)
    for item in draw(policy).batch:
        policy.lose(item, DeathCause.KILLED, now_s=0.0)
    assert numbers(draw(policy).batch) == numbers(items)


@pytest.mark.parametrize("cause", [cause for cause in DeathCause if cause.blames])
def test_two_deaths_make_an_item_poison(cause: DeathCause) -> None:
    policy = taught()
    (item,) = add(policy, admit(policy), 1.0)
    draw(policy)
    assert policy.lose(item, cause, now_s=0.0) is Fate.RETRIED
    draw(policy)
    assert policy.lose(item, cause, now_s=0.0) is Fate.POISONED
    assert policy.is_poison(item.digest, now_s=599.0)
    assert not policy.is_poison(item.digest, now_s=600.0)


def test_poison_ends_its_queued_copies_too() -> None:
    policy = taught()
    context = admit(policy)
    work = Work(stage="read", digest=b"poison")
    item, copy = (policy.accept(work, context, now_s=0.0) for _ in range(2))
    policy.quarantine.remember(b"poison", 2, now_s=0.0)
    assert numbers(policy.poisoned_copies(b"poison")) == [item.number, copy.number]
    assert draw(policy).batch == ()


def test_blame_outlives_a_caller_that_gave_up() -> None:
    policy = taught()
    work = Work(stage="read", digest=b"hangs")
    for _ in range(2):
        item = policy.accept(work, admit(policy), now_s=0.0)
        assert draw(policy).batch == (item,)
        policy.abandon(item, Outcome.EXPIRED)
        assert policy.lose(item, DeathCause.HANG, now_s=0.0) is Fate.FORGOTTEN
    assert policy.is_poison(b"hangs", now_s=0.0)


def test_an_answer_clears_suspicion() -> None:
    policy = taught()
    policy.quarantine.remember(b"x", 1, now_s=0.0)
    item = policy.accept(Work(stage="read", digest=b"x"), admit(policy), now_s=0.0)
    assert item.suspect
    draw(policy)
    end(policy, item)
    assert policy.quarantine.blames(b"x", now_s=0.0) == 0


def test_the_quarantine_is_bounded() -> None:
    policy = Policy()
    policy.quarantine.most = 2
    for number in range(3):
        policy.quarantine.remember(bytes([number]), 2, now_s=0.0)
    assert [policy.is_poison(bytes([number]), now_s=0.0) for number in range(3)] == [
        False,
        True,
        True,
    ]


def test_an_item_that_loses_worker_after_worker_is_lost() -> None:
    policy = taught(Limits(max_losses=3))
    (item,) = add(policy, admit(policy), 1.0)
    fates = []
    for _ in range(3):
        draw(policy)
        fates.append(policy.lose(item, DeathCause.KILLED, now_s=0.0))
    assert fates == [Fate.RETRIED, Fate.RETRIED, Fate.LOST]


def test_costs_are_learned_for_each_stage() -> None:
    policy = Policy()
    context = admit(policy)
    (unknown,) = add(policy, context, 1000.0)
    learn(policy, unit_s=0.002)
    (known,) = add(policy, context, 1000.0)
    assert (unknown.estimate_s, known.estimate_s) == (0.1, 2.0)


def refusal_s(policy: Policy, deadline_s: float, *, workers: int = 1) -> float | None:
    context = Context(request_id="n", deadline_s=deadline_s)
    return policy.refusal_s(context, pipeline="ocr", workers=workers, now_s=0.0)


def test_an_idle_server_admits_even_the_impossible() -> None:
    assert refusal_s(Policy(), 0.001) is None


def test_a_request_that_would_be_late_is_told_when_to_come_back() -> None:
    policy = Policy()
    for _ in range(20):
        admit(policy)  # half a second each, as nothing else is known
    assert refusal_s(policy, 11.0) is None
    assert refusal_s(policy, 6.0) == pytest.approx(4.5)
    assert refusal_s(policy, 6.0, workers=2) is None


def test_a_long_document_counts_only_as_far_as_it_is_ahead() -> None:
    policy = taught()
    add(policy, admit(policy), *[1000.0] * 100)  # 1000 s
    assert refusal_s(policy, 1.1) is None


def test_the_number_of_requests_is_bounded() -> None:
    policy = Policy(Limits(max_requests=2))
    contexts = [admit(policy) for _ in range(2)]
    assert refusal_s(policy, 1000.0) == 1.0
    policy.dismiss(contexts[0])
    assert refusal_s(policy, 1000.0) is None


def test_a_batch_class_request_waits_for_all_interactive_ones() -> None:
    policy = taught()
    add(policy, admit(policy), *[1000.0] * 10)
    context = Context(request_id="n", deadline_s=50.0, priority=Priority.BATCH)
    late_s = policy.refusal_s(context, pipeline="ocr", workers=1, now_s=0.0)
    assert late_s == pytest.approx(50.5)


def test_one_huge_request_hardly_moves_the_estimate() -> None:
    policy = taught()
    for seconds in [0.5] * 20 + [120.0]:
        context = admit(policy)
        (item,) = add(policy, context, seconds * 100)
        draw(policy)
        end(policy, item)
        policy.dismiss(context)
    admit(policy)
    assert refusal_s(policy, 2.0) is None


def test_requests_of_many_sizes_count_by_their_mean() -> None:
    costs = RequestCosts()
    for _ in range(100):
        costs.observe("ocr", 0.001)
        costs.observe("ocr", 0.5)
    assert costs.estimate_s("ocr") == pytest.approx(0.25, abs=0.05)


def test_cancelling_ten_thousand_items_leaves_little_behind() -> None:
    policy = taught()
    for _ in range(10_000):
        context = admit(policy)
        (item,) = add(policy, context, 1.0)
        policy.abandon(item, Outcome.CANCELLED)
        policy.dismiss(context)
    assert len(policy.queue._waiting["read"].heap) < 100
    assert not policy._items
    assert not policy._requests


def test_service_is_in_order_inside_a_request() -> None:
    policy = taught()
    items = add(policy, admit(policy), *[1.0] * 50)
    done: list[int] = []
    while batch := draw(policy).batch:
        done += numbers(batch)
    assert done == numbers(items)
    assert all(first < second for first, second in pairwise(done))
