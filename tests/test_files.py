"""Files are found in order, answers named after them, and never half written."""

import os
from pathlib import Path

import pytest

from pagemill import files
from pagemill.errors import BadInput


def test_folders_are_searched_in_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.png", "a/c.pdf", ".git/x.png", ".hidden"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    found = list(files.find([tmp_path]))
    assert [str(source.relative) for source in found] == ["b.png", "a/c.pdf"]
    assert not any(source.named for source in found)


def test_a_missing_path_is_named() -> None:
    with pytest.raises(BadInput, match="no-such-file"):
        list(files.find([Path("no-such-file")]))


def test_the_answer_keeps_the_name_of_its_file() -> None:
    source = files.Source(path=Path("in/a/scan.pdf"), relative=Path("a/scan.pdf"), named=False)
    assert files.target(source, Path("out"), "markdown") == Path("out/a/scan.pdf.md")


def test_an_answer_older_than_its_file_is_not_done(tmp_path: Path) -> None:
    path, answer = tmp_path / "scan.png", tmp_path / "scan.png.txt"
    path.write_bytes(b"x")
    source = files.Source(path=path, relative=Path("scan.png"), named=True)
    assert not files.is_done(source, answer)
    answer.write_text("text")
    os.utime(path, ns=(10, 10))
    assert files.is_done(source, answer)
    os.utime(answer, ns=(5, 5))
    assert not files.is_done(source, answer)


def test_a_written_answer_is_whole_and_alone(tmp_path: Path) -> None:
    files.write_whole(tmp_path / "deep" / "a.txt", "text")
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.txt"]
