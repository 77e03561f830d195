"""How much memory a process takes."""

import os
import resource
from typing import Final

_PAGE_BYTES: Final = resource.getpagesize()
_HAS_PROC: Final = os.path.isdir("/proc/self")  # noqa: PTH112 - one look, no object needed


def rss_bytes(pid: int | str = "self") -> int:
    """Return the resident memory of a process; 0 when it is gone or /proc is absent."""
    if not _HAS_PROC:
        return 0
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 - a hot path
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0
