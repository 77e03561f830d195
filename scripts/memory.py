"""How much memory do the front and the workers take, and does it grow?

    python scripts/memory.py [--requests 2000] [--pdf-pages 300]

Prints the front's and the workers' peaks after a 300-dpi A4, the longest strip and a
long PDF, and RSS after 200 and after all requests. Exit status 1 when a bar is missed:
front 150 MB, worker 900 MB, +50 MB for the PDF, 5 % growth.
"""

import argparse
import random
import sys
from io import BytesIO

import anyio
import documents
import httpx
from documents import CORPUS
from fairness import scanned_pdf
from PIL import Image
from running import Running, memory_mb, server

HEADERS = {"X-Request-Timeout-Seconds": "1800"}


def a4_at_300_dpi() -> bytes:
    source = Image.open(CORPUS / "files" / "sroie_010.jpg").convert("RGB")
    out = BytesIO()
    source.resize((2480, 3508)).save(out, "JPEG", quality=85)
    return out.getvalue()


def strip() -> bytes:
    source = Image.open(CORPUS / "files" / "sroie_010.jpg").convert("RGB").resize((800, 1500))
    tall = Image.new("RGB", (800, 30_000), "white")
    for y in range(0, 30_000, 1500):
        tall.paste(source, (0, y))
    out = BytesIO()
    tall.save(out, "JPEG", quality=80)
    return out.getvalue()


async def post(client: httpx.AsyncClient, data: bytes) -> int:
    headers = HEADERS | {"accept": "application/x-ndjson"}
    async with client.stream("POST", "/v1/ocr", content=data, headers=headers) as reply:
        async for _ in reply.aiter_bytes():
            pass
    return reply.status_code


def figures(running: Running) -> tuple[float, float]:
    workers = [memory_mb(pid) for pid in running.workers()]
    return memory_mb(running.pid), sum(workers)


def mixed() -> list[bytes]:
    small = [row for row in documents.rows() if row["bytes"] < 400_000 and (row["pages"] or 1) <= 3]
    return [(CORPUS / row["file"]).read_bytes() for row in small]


async def many(client: httpx.AsyncClient, bodies: list[bytes], count: int, *, seed: int) -> None:
    chance = random.Random(seed)
    left = iter(range(count))

    async def user() -> None:
        for _ in left:
            await post(client, chance.choice(bodies))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(user)


async def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--pdf-pages", type=int, default=300)
    args = parser.parse_args()
    faults = []
    with server() as running:
        async with httpx.AsyncClient(base_url=running.url, timeout=1800) as client:
            for name, data in (("300-dpi A4", a4_at_300_dpi()), ("30,000-px strip", strip())):
                print(name, await post(client, data))
                peaks = [memory_mb(pid, "VmHWM") for pid in running.workers()]
                print("  worker peaks MB:", [round(peak) for peak in peaks], flush=True)
                faults += [f"{name}: worker {peak:.0f} MB" for peak in peaks if peak > 900]
            before = memory_mb(running.pid)
            await post(client, scanned_pdf(args.pdf_pages))
            after = memory_mb(running.pid)
            print(
                f"front before/after a {args.pdf_pages}-page PDF: {before:.0f}/{after:.0f} MB",
                flush=True,
            )
            faults += ["front grew over 50 MB"] if after - before > 50 else []
            bodies = mixed()
            await many(client, bodies, 200, seed=1)
            early = figures(running)
            print(
                f"after 200 requests: front {early[0]:.0f}, workers {early[1]:.0f} MB", flush=True
            )
            await many(client, bodies, args.requests - 200, seed=2)
            late = figures(running)
            print(f"after {args.requests}: front {late[0]:.0f}, workers {late[1]:.0f} MB")
            peak = memory_mb(running.pid, "VmHWM")
            print(f"front peak {peak:.0f} MB")
            faults += ["front over 150 MB"] if peak > 150 else []
            faults += ["grew over 5 %"] if sum(late) > 1.05 * sum(early) else []
    print("missed:" if faults else "all bars held", *faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
