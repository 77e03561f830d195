"""Does every file of the corpus get what its manifest says?

    python scripts/corpus.py [--pages 50] [--concurrency 4]

`expect` of the manifest: text (2xx with the truth's words), ok (2xx), empty (2xx without
text), 4xx, or either of two. Prints each miss, every file whose truth was found by less
than half, 5xx and worker deaths. Exit status 1 on a miss, a 5xx or a death.
"""

import argparse
import base64
import json
import re
import sys
from collections import Counter
from itertools import pairwise

import anyio
import documents
import httpx
from documents import CORPUS, Row
from running import server


def truth(row: Row) -> str:
    """Return the text that a file should give, as far as the ground truth tells."""
    known = documents.truth_files(row)
    if "lines" in known:
        return " ".join(documents.true_lines(known["lines"]))
    for kind in ("text", "keywords"):
        if kind in known:
            return known[kind].read_text()
    if "text_layer" in known:
        pages = json.loads(known["text_layer"].read_text())["pages"]
        return " ".join(page["text"] for page in pages)
    return ""


def recall(found: str, wanted: str) -> float:
    """Return the share of the truth's letters, as a bag of bigrams, that were found."""
    bags = [Counter(map("".join, pairwise(_squeezed(text)))) for text in (found, wanted)]
    return (bags[0] & bags[1]).total() / max(1, bags[1].total())


def _squeezed(text: str) -> str:
    return re.sub(r"\W+", "", text.lower())


def verdict(expect: str, status: int, text: str) -> bool:
    """Whether an answer is what the manifest expects."""
    fine = {
        "4xx": 400 <= status < 500,
        "ok": status == 200,
        "text": status == 200 and bool(text.strip()),
        "empty": status == 200 and not text.strip(),
    }
    return any(fine[each] for each in expect.split("_or_"))


async def ask(client: httpx.AsyncClient, row: Row) -> tuple[int, str, str]:
    """Return status, text and error message."""
    data = base64.b64encode((CORPUS / row["file"]).read_bytes()).decode()
    reply = await client.post("/ocr", json={"file": data, "visualize": False})
    body = reply.json()
    pages = body.get("result", {}).get("ocrResults", [])
    text = "\n".join(line for page in pages for line in page["prunedResult"]["rec_texts"])
    return reply.status_code, text, body["errorMsg"]


async def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", default="50")
    parser.add_argument("--concurrency", type=int, default=4)
    args = parser.parse_args()
    rows = documents.rows()
    statuses: Counter[int] = Counter()
    misses, weak = [], []
    left = iter(rows)
    environment = {
        "PAGEMILL_PADDLEX__MAX_PAGES": args.pages,
        "PAGEMILL_LIMITS__DEFAULT_TIMEOUT_S": "1200",
    }
    with server(environment=environment) as running:
        async with httpx.AsyncClient(base_url=running.url, timeout=1800) as client:

            async def user() -> None:
                for row in left:
                    status, text, message = await ask(client, row)
                    statuses[status] += 1
                    if not verdict(row["expect"], status, text):
                        misses.append(
                            f"{row['id']}: expected {row['expect']}, got {status} {message[:100]}"
                        )
                    found = recall(text, truth(row))
                    if row["expect"] == "text" and truth(row) and found < 0.5:
                        weak.append(f"{row['id']} ({row['kind']}, {row['language']}): {found:.0%}")

            async with anyio.create_task_group() as group:
                for _ in range(args.concurrency):
                    group.start_soon(user)
            metrics = (await client.get("/metrics")).text
    deaths = re.findall(r"^pagemill_worker_restarts_total\{.*$", metrics, re.MULTILINE)
    print(f"{len(rows)} files, statuses {dict(sorted(statuses.items()))}, misses {len(misses)}")
    print("worker deaths:", deaths or "none")
    print("\n".join(sorted(misses)))
    print("truth found by less than half:", *sorted(weak), sep="\n  ")
    faults = misses or deaths or any(status >= 500 for status in statuses)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
