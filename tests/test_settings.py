"""Flags win over the environment, the environment over the file, the file over defaults."""

from pathlib import Path

import pytest

from pagemill import settings
from pagemill.errors import BadOption


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pagemill.toml"
    path.write_text('[limits]\nmax_pages = 5\nmax_pixels = 6\n[server]\nhost = "file"\n')
    return path


def test_the_nearest_source_wins(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_LIMITS__MAX_PIXELS", "7")
    monkeypatch.setenv("PAGEMILL_SERVER__HOST", "environment")
    loaded = settings.load(config=file, flags={"server": {"host": "flag"}})
    assert loaded.limits.max_pages == 5
    assert loaded.limits.max_pixels == 7
    assert loaded.server.host == "flag"
    assert loaded.limits.max_bytes == settings.LimitSettings().max_bytes


def test_the_file_in_the_working_folder_is_found(file: Path) -> None:
    assert file.name == "pagemill.toml"
    assert settings.load().limits.max_pages == 5


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ({"server": {"hots": "x"}}, "server.hots"),
        ({"limits": {"max_pages": 0}}, "limits.max_pages"),
    ],
)
def test_a_wrong_setting_is_named(flags: dict[str, object], name: str) -> None:
    with pytest.raises(BadOption, match=name):
        settings.load(flags=flags)


def test_a_file_that_was_asked_for_must_be_there() -> None:
    with pytest.raises(BadOption, match=r"nowhere\.toml"):
        settings.load(config=Path("nowhere.toml"))


def test_a_broken_file_is_named(file: Path) -> None:
    file.write_text("[limits")
    with pytest.raises(BadOption, match=r"pagemill\.toml"):
        settings.load(config=file)


def test_keys_are_masked_when_printed() -> None:
    loaded = settings.load(flags={"server": {"api_keys": ["secret"]}})
    assert "secret" not in str(loaded.model_dump(mode="json"))
