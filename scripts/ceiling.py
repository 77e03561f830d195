"""How near does the server come to the bare models on this machine?

The ceiling: the very tensors that the server would run, prepared beforehand, through
the same models in one pinned process a core, nothing else running. Then the server at
a concurrency on the same documents. Prints both in images a second, and the ratio.

    python scripts/ceiling.py [--files 12] [--rounds 2] [--concurrency 8]

Exit status 1 below 0.90.
"""

import argparse
import multiprocessing as mp
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import httpx
from documents import for_benchmarks
from running import server

CONFIG = {"runtime": "openvino", "device": "cpu", "precision": "auto", "threads": 1}


def prepare(path: Path, stages: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the stages' inputs of one document, as (model, array)."""
    import msgspec

    from pagemill.engine.stage import Input
    from pagemill.stages import wire
    from pagemill.stages.detect import _tile
    from pagemill.stages.recognize import strip_of

    def run(name: str, request: Any, *buffers: Any) -> Any:
        item = Input(
            payload=msgspec.msgpack.encode(request), buffers=tuple(map(memoryview, buffers))
        )
        return item, stages[name].run([item])[0]

    _, read = run("read_page", wire.ReadPage(page=0, max_pixels=10**8), path.read_bytes())
    page = msgspec.msgpack.decode(read.payload, type=wire.PageRead)
    pixels, scaled = (bytes(buffer) for buffer in read.buffers)
    work, maps = [], []
    for tile in page.tiles:
        asked = wire.Detect(det_width=page.det_width, det_height=page.det_height, tile=tile)
        item, answer = run("detect", asked, scaled)
        work.append(("detect", _tile(item)[None].copy()))
        maps.append(bytes(answer.buffers[0]))
    _, cut = run("cut", wire.Cut(page=page), pixels, *maps)
    for strip in msgspec.msgpack.decode(cut.payload, type=wire.Lines).strips:
        asked = wire.Recognize(offset=strip.offset, width=strip.width, text_width=strip.text_width)
        item = Input(payload=b"", buffers=(memoryview(bytes(cut.buffers[0])),))
        work.append(("recognize", strip_of(item, asked)[None].copy()))
    return work


def child(core: int, paths: list[Path], rounds: int, taken: Any, barrier: Any) -> None:
    """Run documents one after the other until all are taken."""
    os.sched_setaffinity(0, {core})
    from importlib import import_module

    names = ("read_page", "detect", "cut", "recognize")
    stages = {name: import_module(f"pagemill.stages.{name}").load(CONFIG) for name in names}
    work = [prepare(path, stages) for path in paths]
    models = {name: stages[name]._model for name in ("detect", "recognize")}
    for _ in range(rounds + 1):  # the first round warms up
        barrier.wait()
        while True:
            with taken.get_lock():
                index = taken.value
                taken.value += 1
            if index >= len(work):
                break
            for name, array in work[index]:
                models[name].run(array)
        barrier.wait()


def ceiling(paths: list[Path], rounds: int) -> list[float]:
    """Return images a second of each round."""
    context = mp.get_context("spawn")
    cores = sorted(os.sched_getaffinity(0))
    taken, barrier = context.Value("i", 0), context.Barrier(len(cores) + 1)
    processes = [
        context.Process(target=child, args=(c, paths, rounds, taken, barrier)) for c in cores
    ]
    for process in processes:
        process.start()
    rates = []
    for _ in range(rounds + 1):
        taken.value = 0
        barrier.wait()
        start = time.perf_counter()
        barrier.wait()
        rates.append(len(paths) / (time.perf_counter() - start))
    for process in processes:
        process.join()
    return rates[1:]


async def served(paths: list[Path], rounds: int, concurrency: int) -> list[float]:
    """Return the server's images a second of each round."""
    bodies = [path.read_bytes() for path in paths]
    rates = []
    with server() as running:
        async with httpx.AsyncClient(base_url=running.url, timeout=600) as client:
            for _ in range(rounds + 1):
                # Twice the documents, so that the ends of a round weigh less.
                left = iter(bodies * 2)

                async def user(left: Any = left) -> None:
                    for body in left:
                        (await client.post("/v1/ocr", content=body)).raise_for_status()

                start = time.perf_counter()
                async with anyio.create_task_group() as group:
                    for _ in range(concurrency):
                        group.start_soon(user)
                rates.append(2 * len(bodies) / (time.perf_counter() - start))
    return rates[1:]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--concurrency", type=int, default=8)
    args = parser.parse_args()
    paths = for_benchmarks(args.files)
    bare = ceiling(paths, args.rounds)
    ours = anyio.run(served, paths, args.rounds, args.concurrency)
    ratio = statistics.median(ours) / statistics.median(bare)
    bare_text, our_text = ([round(rate, 3) for rate in rates] for rates in (bare, ours))
    print(f"bare models {bare_text}, server {our_text} images/s, ratio {ratio:.3f}")
    return 0 if ratio >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
