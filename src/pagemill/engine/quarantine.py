"""Inputs that killed workers, remembered for a while by digest. Pure."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

POISON_BLAMES: Final = 2
QUARANTINE_S: Final = 600.0
QUARANTINE_ITEMS: Final = 10_000


@dataclass(slots=True, kw_only=True)
class Quarantine:
    """How often each digest was blamed for a worker's death; the oldest is forgotten."""

    keep_s: float = QUARANTINE_S
    most: int = QUARANTINE_ITEMS
    _records: OrderedDict[bytes, tuple[int, float]] = field(default_factory=OrderedDict)

    def blames(self, digest: bytes, *, now_s: float) -> int:
        """Return how often `digest` was blamed lately."""
        blames, until_s = self._records.get(digest, (0, 0.0))
        return blames if now_s < until_s else 0

    def is_poison(self, digest: bytes, *, now_s: float) -> bool:
        """Return whether `digest` is refused."""
        return self.blames(digest, now_s=now_s) >= POISON_BLAMES

    def remember(self, digest: bytes, blames: int, *, now_s: float) -> None:
        """Note blames; they are never fewer than before."""
        blames = max(blames, self.blames(digest, now_s=now_s))
        self._records[digest] = (blames, now_s + self.keep_s)
        self._records.move_to_end(digest)
        while len(self._records) > self.most:
            self._records.popitem(last=False)

    def clear(self, digest: bytes, *, now_s: float) -> None:
        """Forget a mere suspicion: the item was answered."""
        if self._records and not self.is_poison(digest, now_s=now_s):
            self._records.pop(digest, None)

    def count(self, *, now_s: float) -> int:
        """Return how many digests are refused; O(n), for reports."""
        return sum(1 for digest in self._records if self.is_poison(digest, now_s=now_s))
