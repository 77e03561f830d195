"""Which items a worker gets together. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pagemill.engine.fairness import FairQueue, Item
from pagemill.engine.messages import FDS_LIMIT, FRAME_LIMIT_BYTES

BATCH_S: Final = 0.1  # what a receipt waits for behind a long PDF, or one item if that is longer
CHUNK_S: Final = 0.02  # a round trip takes some 0.5 ms: smaller batches waste cores
BATCH_ITEMS: Final = 64
PAYLOAD_LIMIT_BYTES: Final = FRAME_LIMIT_BYTES // 2  # the rest is for the frame itself
_LOOKAHEAD: Final = 8
_ROUNDING: Final = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """A worker that asks for work, and those who could help it.

    `able` workers can do a stage, `idle` of them have nothing to do, both counting
    the one who asks. `batch` is how many items of equal shape it may run as one.
    """

    stages: frozenset[str]
    able: dict[str, int]
    idle: dict[str, int]
    batch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Items of one stage to run, taken from the queue; and those found too late."""

    batch: tuple[Item, ...]
    expired: tuple[Item, ...]


def next_batch(queue: FairQueue, hands: Hands, *, now_s: float, batch_s: float = BATCH_S) -> Draw:
    """Take the items whose turn it is, charged to their requests; () when none is.

    All of one stage, up to `batch_s` of estimated work, fewer when other workers could
    share it. An item too long for any batch goes alone, and so does a suspect.
    """
    expired: list[Item] = []
    while (first := queue.first(hands.stages)) is not None:
        queue.remove(first)
        if first.deadline_s > now_s:
            break
        expired.append(first)
    else:
        return Draw(batch=(), expired=tuple(expired))
    load = _Load(limit_s=_share_s(queue, first, hands, batch_s))
    load.add(first)
    queue.charge(first)
    batch = [first]
    if not first.suspect:
        aside: list[Item] = []
        for item in _mates(queue, first, hands, aside):
            if item.deadline_s <= now_s:
                expired.append(item)
            elif load.add(item):
                queue.charge(item)
                batch.append(item)
            else:
                aside.append(item)
                break
        for item in aside:
            queue.add(item)
    return Draw(batch=tuple(batch), expired=tuple(expired))


@dataclass(slots=True, kw_only=True)
class _Load:
    """What a batch holds so far, and how long it may take."""

    limit_s: float
    seconds: float = 0.0
    fds: int = 0
    payload_bytes: int = 0

    def add(self, item: Item) -> bool:
        """Add an item if it fits; the first one is added whatever it is."""
        seconds = self.seconds + item.estimate_s
        fds = self.fds + item.fds
        payload_bytes = self.payload_bytes + item.payload_bytes
        fits_frame = fds <= FDS_LIMIT and payload_bytes <= PAYLOAD_LIMIT_BYTES
        if self.seconds and not (fits_frame and seconds <= self.limit_s * _ROUNDING):
            return False
        self.seconds, self.fds, self.payload_bytes = seconds, fds, payload_bytes
        return True


def _share_s(queue: FairQueue, first: Item, hands: Hands, batch_s: float) -> float:
    """Return how much work to take: what is left for each able worker, within bounds.

    Halving what remains lets two workers end a page's lines at the same time; but
    busy workers are waited for only in chunks worth the way.
    """
    backlog_s = queue.seconds(first.stage) + first.estimate_s
    idle_share_s = backlog_s / max(1, hands.idle.get(first.stage, 1))
    able_share_s = backlog_s / max(1, hands.able.get(first.stage, 1))
    return min(batch_s, max(able_share_s, min(CHUNK_S, idle_share_s)))


def _mates(queue: FairQueue, first: Item, hands: Hands, aside: list[Item]) -> Iterator[Item]:
    """Yield items taken from the queue that may follow `first`, in turn.

    On a device that runs a batch as one, only those of equal bucket: others are put
    `aside`, of which there may be a few.
    """
    together = hands.batch > 1
    left = (hands.batch if together else BATCH_ITEMS) - 1
    patience = _LOOKAHEAD * hands.batch if together else 0
    while left:
        item = queue.head(first.stage)
        if item is None or item.suspect:
            return
        fits = not together or item.bucket == first.bucket
        if not fits and not patience:
            return
        queue.remove(item)
        if fits:
            left -= 1
            yield item
        else:
            patience -= 1
            aside.append(item)
