"""Is every answer the same alone, in a crowd, and while workers are killed?

Sends every document of the corpus alone, then all of them in random order at a
concurrency, then again while a random worker dies by SIGKILL each second; compares
the bytes, log id aside. Exit status 1 on any difference or failure.

    python scripts/exactness.py [--concurrency 16] [--limit N] [--pages 10] [--seed 0]
"""

import argparse
import base64
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import anyio
import documents
import httpx
from documents import CORPUS
from running import Running, server

Answer = tuple[int, str]


def chosen(limit: int | None) -> list[Path]:
    paths = [CORPUS / row["file"] for row in documents.rows()]
    return paths if limit is None else random.Random(1).sample(paths, limit)


def body(path: Path) -> bytes:
    return json.dumps(
        {"file": base64.b64encode(path.read_bytes()).decode(), "visualize": False, "logId": "same"}
    ).encode()


async def ask(client: httpx.AsyncClient, path: Path) -> Answer:
    headers = {"content-type": "application/json", "X-Request-Timeout-Seconds": "1500"}
    reply = await client.post("/ocr", content=body(path), headers=headers)
    return reply.status_code, hashlib.sha256(reply.content).hexdigest()


async def crowd(url: str, paths: list[Path], concurrency: int, *, seed: int) -> dict[Path, Answer]:
    order = random.Random(seed).sample(paths, len(paths))
    answers: dict[Path, Answer] = {}
    left = iter(order)

    async def user(client: httpx.AsyncClient) -> None:
        for path in left:
            answers[path] = await ask(client, path)

    limits = httpx.Limits(max_connections=concurrency)
    async with (
        httpx.AsyncClient(base_url=url, timeout=1800, limits=limits) as client,
        anyio.create_task_group() as group,
    ):
        for _ in range(concurrency):
            group.start_soon(user, client)
    return answers


async def kill_workers(running: Running, every_s: float, counts: Counter[str]) -> None:
    chance = random.Random(2)
    while True:
        await anyio.sleep(every_s)
        workers = running.workers()
        if workers:
            os.kill(chance.choice(workers), signal.SIGKILL)
            counts["kills"] += 1


def compare(name: str, alone: dict[Path, Answer], other: dict[Path, Answer]) -> int:
    differ = [path for path in alone if other.get(path) != alone[path]]
    failed = [path for path, (status, _) in other.items() if status >= 500]
    print(f"{name}: {len(other)} answered, {len(differ)} differ, {len(failed)} failed", flush=True)
    for path in differ[:10]:
        print(f"  {path.name}: alone {alone[path][0]}, now {other.get(path, ('-',))[0]}")
    return len(differ) + len(failed)


async def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--pages", default="10")
    parser.add_argument("--kill-every-s", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    paths = chosen(args.limit)
    counts: Counter[str] = Counter()
    with server(environment={"PAGEMILL_PADDLEX__MAX_PAGES": args.pages}) as running:
        start = time.monotonic()
        alone = await crowd(running.url, paths, 1, seed=args.seed)
        print(
            f"alone: {len(alone)} in {time.monotonic() - start:.0f} s",
            Counter(s for s, _ in alone.values()),
            flush=True,
        )
        faults = sum(1 for status, _ in alone.values() if status >= 500)
        crowded = await crowd(running.url, paths, args.concurrency, seed=args.seed + 1)
        faults += compare(f"concurrency {args.concurrency}", alone, crowded)
        async with anyio.create_task_group() as group:
            group.start_soon(kill_workers, running, args.kill_every_s, counts)
            killed = await crowd(running.url, paths, args.concurrency, seed=args.seed + 2)
            group.cancel_scope.cancel()
        faults += compare(f"with {counts['kills']} kills", alone, killed)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
