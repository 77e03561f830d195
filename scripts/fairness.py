"""Does a long document hold a receipt up? Receipt latency idle, then beside a scanned PDF.

    python scripts/fairness.py [--pages 200] [--receipts 30]

Exit status 1 when p95 beside the PDF is over twice the idle p95.
"""

import argparse
import statistics
import sys
import time
from io import BytesIO

import anyio
import httpx
from documents import CORPUS
from PIL import Image
from running import server

HEADERS = {"X-Request-Timeout-Seconds": "1800"}


def scanned_pdf(pages: int) -> bytes:
    """Return a PDF whose pages are pictures of corpus receipts and scans."""
    paths = sorted(CORPUS.glob("files/sroie_*.jpg"))
    pictures = [Image.open(paths[i % len(paths)]).convert("RGB") for i in range(pages)]
    out = BytesIO()
    pictures[0].save(out, "PDF", save_all=True, append_images=pictures[1:], resolution=100)
    return out.getvalue()


async def latencies(client: httpx.AsyncClient, bodies: list[bytes], count: int) -> list[float]:
    times = []
    for i in range(count):
        start = time.perf_counter()
        reply = await client.post("/v1/ocr", content=bodies[i % len(bodies)], headers=HEADERS)
        reply.raise_for_status()
        times.append(time.perf_counter() - start)
    return times


def p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20, method="inclusive")[-1]


async def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--receipts", type=int, default=30)
    args = parser.parse_args()
    bodies = [path.read_bytes() for path in sorted(CORPUS.glob("files/sroie_*.jpg"))[:10]]
    pdf = scanned_pdf(args.pages)
    with server() as running:
        async with httpx.AsyncClient(base_url=running.url, timeout=1800) as client:
            await latencies(client, bodies, len(bodies))
            idle = await latencies(client, bodies, args.receipts)
            done = anyio.Event()

            async def read_pdf() -> None:
                headers = HEADERS | {"accept": "application/x-ndjson"}
                async with client.stream("POST", "/v1/ocr", content=pdf, headers=headers) as reply:
                    async for _ in reply.aiter_lines():
                        started.set()
                done.set()

            started = anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(read_pdf)
                await started.wait()
                beside = await latencies(client, bodies, args.receipts)
                print("PDF still being read at the end:", not done.is_set())
                group.cancel_scope.cancel()
    ratio = p95(beside) / p95(idle)
    for name, times in (("idle", idle), (f"beside a {args.pages}-page PDF", beside)):
        print(f"receipt {name}: p50 {statistics.median(times):.3f} s, p95 {p95(times):.3f} s")
    print(f"ratio of p95 {ratio:.2f}")
    return 0 if ratio <= 2 else 1


if __name__ == "__main__":
    sys.exit(anyio.run(main))
