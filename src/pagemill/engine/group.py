"""What a group of equal workers is, and which cores each of them gets."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pagemill.engine.messages import StageSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """Equal workers. `cores` has one entry a worker; () leaves it unbound."""

    name: str
    stages: tuple[StageSetup, ...]
    cores: tuple[tuple[int, ...], ...]
    batch: int = 1
    max_rss_bytes: int = 900 * 2**20  # above it a worker retires after its batch
    hard_rss_bytes: int = 2 * 900 * 2**20  # above it a worker is killed
    max_tasks: int | None = None
    load_limit_s: float = 120.0

    @property
    def count(self) -> int:
        """Return how many workers there should be."""
        return len(self.cores)


def assign_cores(
    available: Sequence[int], *, count: int, threads: int
) -> tuple[tuple[int, ...], ...]:
    """Give each of `count` workers `threads` cores of its own, while there are enough.

    With fewer cores than wanted, workers share them in turn.
    """
    if not available:
        return ((),) * count
    width = min(threads, len(available))
    return tuple(
        tuple(available[(worker * width + i) % len(available)] for i in range(width))
        for worker in range(count)
    )


def usable_cores() -> tuple[int, ...]:
    """Return the cores this process may use; fewer when a cgroup's quota says so.

    Source: sched_getaffinity(2); cpu.max of cgroup v2, cpu.cfs_quota_us of v1.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = sorted(os.sched_getaffinity(0))
    else:  # macOS: no affinity
        cores = list(range(os.cpu_count() or 1))
    quota = _quota_cores(Path("/sys/fs/cgroup"))
    return tuple(cores if quota is None else cores[: max(1, math.floor(quota))])


def _quota_cores(root: Path) -> float | None:
    for quota_of in (_quota_v2, _quota_v1):
        try:
            quota, period = quota_of(root)
        except (OSError, ValueError):  # no such cgroup version here
            continue
        if quota > 0 and period > 0:
            return quota / period
    return None


def _quota_v2(root: Path) -> tuple[int, int]:
    quota, period = (root / "cpu.max").read_text().split()
    return (-1 if quota == "max" else int(quota)), int(period)


def _quota_v1(root: Path) -> tuple[int, int]:
    folder = root / "cpu"
    return (
        int((folder / "cpu.cfs_quota_us").read_text()),
        int((folder / "cpu.cfs_period_us").read_text()),
    )
