"""A pagemill server of one's own for measurements: started, watched, stopped."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import httpx

CORPUS: Final = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "dev"
_URL: Final = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers at `url`; its log is in the file `log`."""

    url: str
    pid: int
    log: Path

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
    """Run `pagemill serve` on a free loopback port until the block ends."""
    with tempfile.NamedTemporaryFile("w+b", suffix=".log", delete=False) as log:
        command = [sys.executable, "-m", "pagemill.cli", "serve", "--port", "0", *flags]
        process = subprocess.Popen(
            command,
            stderr=log,
            stdout=log,
            env=os.environ | {"PAGEMILL_LOG__FORMAT": "json"} | (environment or {}),
        )
        try:
            yield Running(url=_wait_ready(process, log), pid=process.pid, log=Path(log.name))
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_ready(process: subprocess.Popen[bytes], log: IO[Any]) -> str:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        found = _URL.search(Path(log.name).read_text())
        if found and _is_ready(found[0]):
            return found[0]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    message = f"the server did not get ready:\n{Path(log.name).read_text()[-4000:]}"
    raise RuntimeError(message)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready").is_success
    except httpx.HTTPError:
        return False
