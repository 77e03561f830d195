"""A real server for tests: started once on a free port, with real workers."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

READY_S = 90.0


@dataclass(frozen=True)
class Live:
    """A running server."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def workers(self) -> list[int]:
        """Return its workers' process ids."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in children]


@contextmanager
def live_server(folder: Path, *flags: str, **environment: str) -> Iterator[Live]:
    """Run `pagemill serve` until the block ends; its log lies in `folder`."""
    log = folder / "server.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "pagemill.cli", "serve", "--port", "0", *flags],
            stdout=file,
            stderr=file,
            env=os.environ | {"PAGEMILL_LOG__FORMAT": "json"} | environment,
        )
    try:
        yield Live(_ready(process, log), process, log)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(process: subprocess.Popen[bytes], log: Path) -> str:
    end_s = time.monotonic() + READY_S
    while time.monotonic() < end_s and process.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        if found and httpx.get(f"{found[0]}/health/ready").is_success:
            return found[0]
        time.sleep(0.1)  # another program's start cannot be awaited otherwise
    raise AssertionError(f"the server did not get ready:\n{log.read_text()[-3000:]}")
