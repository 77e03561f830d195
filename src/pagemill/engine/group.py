"""What a group of equal workers is, and which cores each of them gets."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pagemill.engine.messages import StageSetup


@dataclass(frozen=True, kw_only=True)  # no slots: they leave cached_property no place
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
    environment: tuple[str, ...] = ()  # names of our variables that it may see besides

    @cached_property
    def stage_names(self) -> frozenset[str]:
        """Return what its workers can do; asked for at each dispatch."""
        return frozenset(stage.name for stage in self.stages)

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


def _quota_cores(root: Path, memberships: Path = Path("/proc/self/cgroup")) -> float | None:
    """Return the least quota of the groups we are in, in cores; None without any."""
    v2, v1 = _memberships(memberships)
    quotas = []
    for folder, quota_of in (
        *((root / path, _quota_v2) for path in v2),
        *((root / "cpu" / path, _quota_v1) for path in v1),
    ):
        try:
            quota, period = quota_of(folder)
        except (OSError, ValueError):  # no such group here, or no quota of its own
            continue
        if quota > 0 and period > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def _memberships(file: Path) -> tuple[list[Path], list[Path]]:
    """Return our group and all above it, of version 2 and of version 1, relative.

    Each list ends with the root: in a container that is the container's own group,
    whatever path the host knows it by.
    """
    v2, v1 = {Path(): None}, {Path(): None}
    try:
        lines = file.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        group = Path(path.lstrip("/"))
        if number == "0":
            v2 |= dict.fromkeys((group, *group.parents))
        elif "cpu" in controllers.split(","):
            v1 |= dict.fromkeys((group, *group.parents))
    return list(v2), list(v1)


def _quota_v2(folder: Path) -> tuple[int, int]:
    quota, period = (folder / "cpu.max").read_text().split()
    return (-1 if quota == "max" else int(quota)), int(period)


def _quota_v1(folder: Path) -> tuple[int, int]:
    return (
        int((folder / "cpu.cfs_quota_us").read_text()),
        int((folder / "cpu.cfs_period_us").read_text()),
    )
