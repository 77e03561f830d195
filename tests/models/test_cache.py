"""What is kept on disk, and what is not trusted."""

from pathlib import Path

import pytest

from pagemill.models import cache
from pagemill.models.cache import Cache


class Maker:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> bytes:
        self.made += 1
        return b"made"


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    make = Maker()
    folder = tmp_path / "new"
    assert [Cache(folder).get("key", make) for _ in range(2)] == [b"made"] * 2
    assert make.made == 1
    assert folder.stat().st_mode & 0o777 == 0o700
    Cache(folder).get("other", make)
    assert make.made == 2


def test_a_damaged_entry_is_made_again(tmp_path: Path) -> None:
    make = Maker()
    Cache(tmp_path).get("key", make)
    (path,) = tmp_path.iterdir()
    for damage in (b"", b"short", path.read_bytes()[:-1] + b"x"):
        path.write_bytes(damage)
        assert Cache(tmp_path).get("key", make) == b"made"
    assert make.made == 4
    assert list(tmp_path.iterdir()) == [path]  # nothing half-written is left


def test_an_unusable_folder_costs_time_alone(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    make = Maker()
    for folder in (file, file / "below", None):
        assert Cache(folder).get("key", make) == b"made"
    assert make.made == 3


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", homeless)
    assert cache.default_folder() is None
