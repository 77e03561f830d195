"""How much memory a process takes."""

import os
import resource
from typing import Final

_PAGE_BYTES: Final = resource.getpagesize()
_STATM_BYTES: Final = 256  # seven numbers


def rss_bytes(pid: int | str = "self") -> int:
    """Return the resident memory of a process; 0 when it is gone or /proc is absent."""
    try:
        fd = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # no such process, or no /proc (macOS)
        return 0
    try:
        fields = os.pread(fd, _STATM_BYTES, 0).split()
    except ProcessLookupError:
        return 0
    finally:
        os.close(fd)
    return int(fields[1]) * _PAGE_BYTES
