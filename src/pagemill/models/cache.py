"""What was made of the weights once, kept on disk so that a worker starts at once.

An entry is worthless to all but its maker: it is checked by its digest, written in one
step, and made again whenever anything about it is wrong.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_DIGEST_BYTES: Final = 32


class Cache:
    """Entries by key in one folder; without a folder, or if it is unusable, nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        """Keep entries in `folder`, which is made when the first one is."""
        self._folder = folder

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the entry, made and kept if it is not there or damaged.

        Args:
            key: names all that the entry was made of.
            make: makes it.

        """
        if self._folder is None:
            return make()
        path = self._folder / hashlib.sha256(key.encode()).hexdigest()
        kept = _read(path)
        if kept is None:
            kept = make()
            with suppress(OSError):  # a read-only or full disk costs time, nothing else
                _write(path, kept)
        return kept


def default_folder() -> Path | None:
    """Return the user's own; None for a user without a home."""
    try:
        return Path.home() / ".cache" / "pagemill"
    except RuntimeError:
        return None


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, entry = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return entry if hashlib.sha256(entry).digest() == digest else None


def _write(path: Path, entry: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(entry).digest())
            file.write(entry)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
