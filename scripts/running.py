"""A pagemill server of one's own for measurements: started, watched, stopped."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

_URL: Final = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers at `url`."""

    url: str
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Return the front's process id."""
        return self.process.pid

    def workers(self) -> list[int]:
        """Return the process ids of its workers."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(pid) for pid in children if _is_worker(int(pid))]


def _is_worker(pid: int) -> bool:
    try:
        return b"pagemill.engine.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it ended between the two looks
        return False


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Return a memory figure of /proc/PID/status, in MB; 0 when the process is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


@contextmanager
def server(*flags: str, environment: dict[str, str] | None = None) -> Iterator[Running]:
    """Run `pagemill serve` on a free loopback port until the block ends.

    Raises:
        RuntimeError: it did not get ready; the message has the end of its log.

    """
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pagemill.cli", "serve", "--port", "0", *flags],
            stderr=log,
            stdout=log,
            env=os.environ | {"PAGEMILL_LOG__FORMAT": "json"} | (environment or {}),
        )
        try:
            yield Running(_wait_ready(process, Path(log.name)), process)
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    end_s = time.monotonic() + 120
    while time.monotonic() < end_s and process.poll() is None:
        found = _URL.search(log.read_text())
        if found and _is_ready(found[0]):
            return found[0]
        time.sleep(0.1)  # another program's start cannot be awaited otherwise
    message = f"the server did not get ready:\n{log.read_text()[-4000:]}"
    raise RuntimeError(message)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready").is_success
    except httpx.HTTPError:
        return False
