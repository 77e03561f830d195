"""Which files to read and where their answers go; touches nothing but names and dates."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pagemill.errors import BadInput

OutputFormat = Literal["json", "text", "markdown"]
SUFFIX: Final[dict[OutputFormat, str]] = {"json": ".json", "text": ".txt", "markdown": ".md"}
STDIN: Final = Path("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file to read. `named` files must be documents; found ones may be anything."""

    path: Path
    relative: Path
    named: bool


def find(paths: Iterable[Path]) -> Iterator[Source]:
    """Yield every file of `paths`, folders searched in order of name, hidden ones left out.

    Raises:
        BadInput: a path does not exist.

    """
    for path in paths:
        if path.is_dir():
            yield from _walk(path)
        elif path == STDIN or path.exists():
            yield Source(
                path=path, relative=Path("stdin" if path == STDIN else path.name), named=True
            )
        else:
            message = f"There is no {path}."
            raise BadInput(message)


def _walk(folder: Path) -> Iterator[Source]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(root, name)
            if not name.startswith(".") and path.is_file():
                yield Source(path=path, relative=path.relative_to(folder), named=False)


def target(source: Source, output: Path, output_format: OutputFormat) -> Path:
    """Return where the answer goes: the file's own name, with a suffix more."""
    name = source.relative.name + SUFFIX[output_format]
    return output / source.relative.with_name(name)


def is_done(source: Source, answer: Path) -> bool:
    """Whether `answer` is there and not older than its file."""
    if source.path == STDIN:
        return False
    try:
        return answer.stat().st_mtime_ns >= source.path.stat().st_mtime_ns
    except FileNotFoundError:
        return False


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path` at once: a reader or a crash never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
