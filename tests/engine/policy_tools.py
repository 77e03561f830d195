"""Requests and items for tests of the policy, in few words."""

from collections.abc import Sequence

from pagemill.engine.batching import Draw, Hands
from pagemill.engine.fairness import Item
from pagemill.engine.policy import Policy, Work
from pagemill.engine.task import Context, Priority

FOREVER_S = 1e9


def hands(*stages: str, able: int = 1, idle: int = 1, batch: int = 1) -> Hands:
    names = stages or ("read",)
    return Hands(
        stages=frozenset(names),
        able=dict.fromkeys(names, able),
        idle=dict.fromkeys(names, idle),
        batch=batch,
    )


def admit(
    policy: Policy, *, deadline_s: float = FOREVER_S, priority: Priority = Priority.INTERACTIVE
) -> Context:
    context = Context(request_id="r", deadline_s=deadline_s, priority=priority)
    return policy.admit(context, pipeline="ocr")


def learn(policy: Policy, stage: str = "read", *, unit_s: float = 0.01) -> None:
    """Teach the policy what a unit of cost takes."""
    policy._stage_costs.observe(stage, 1.0, unit_s)


def add(policy: Policy, context: Context, *costs: float, stage: str = "read") -> list[Item]:
    return [
        policy.accept(Work(stage=stage, digest=_digest(policy), cost=cost), context, now_s=0.0)
        for cost in costs
    ]


def _digest(policy: Policy) -> bytes:
    return policy.ledger.accepted.to_bytes(16, "big")


def draw(policy: Policy, with_hands: Hands | None = None, *, now_s: float = 0.0) -> Draw:
    return policy.draw(with_hands or hands(), "w", now_s=now_s)


def numbers(items: Sequence[Item]) -> list[int]:
    return [item.number for item in items]
