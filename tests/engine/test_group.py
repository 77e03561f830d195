"""Each worker gets cores of its own, and quotas of containers count."""

from pathlib import Path

import pytest

from pagemill.engine.group import _quota_cores, assign_cores, usable_cores


@pytest.mark.parametrize(
    ("count", "threads", "cores"),
    [
        (4, 1, ((0,), (1,), (2,), (3,))),
        (2, 2, ((0, 1), (2, 3))),
        (1, 8, ((0, 1, 2, 3),)),
        (5, 1, ((0,), (1,), (2,), (3,), (0,))),
    ],
)
def test_workers_do_not_share_cores_while_there_are_enough(
    count: int, threads: int, cores: tuple[tuple[int, ...], ...]
) -> None:
    assert assign_cores((0, 1, 2, 3), count=count, threads=threads) == cores


def test_without_known_cores_workers_are_not_bound() -> None:
    assert assign_cores((), count=2, threads=1) == ((), ())


def test_there_is_always_a_core() -> None:
    assert usable_cores()


def test_a_quota_of_cgroup_v2_counts(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert _quota_cores(tmp_path) == 1.5


def test_a_quota_of_cgroup_v1_counts(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("200000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert _quota_cores(tmp_path) == 2.0


@pytest.mark.parametrize("text", ["max 100000", "", "nonsense"])
def test_no_quota_is_no_bound(tmp_path: Path, text: str) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert _quota_cores(tmp_path) is None


def test_the_least_quota_of_all_groups_above_us_counts(tmp_path: Path) -> None:
    memberships = tmp_path / "memberships"
    memberships.write_text("0::/system.slice/pagemill.service\n")
    service = tmp_path / "system.slice" / "pagemill.service"
    service.mkdir(parents=True)
    (service / "cpu.max").write_text("max 100000")
    (service.parent / "cpu.max").write_text("300000 100000")
    assert _quota_cores(tmp_path, memberships) == 3.0
    (service / "cpu.max").write_text("200000 100000")
    assert _quota_cores(tmp_path, memberships) == 2.0


def test_a_path_that_only_the_host_knows_is_no_quota_but_the_root_is(tmp_path: Path) -> None:
    memberships = tmp_path / "memberships"
    memberships.write_text("3:cpu,cpuacct:/docker/0123\n")
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("200000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert _quota_cores(tmp_path, memberships) == 2.0
