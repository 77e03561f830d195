"""Word F1 and character accuracy on the corpus, beside RapidOCR, in one run.

    python scripts/accuracy.py [--no-rapidocr] [--cls]

English receipts, forms, scans and pages with line truth: F1 over bags of words (runs of
letters and digits, lower case, all files together). Chinese and Japanese images with line
or text truth: F1 over bags of characters, since reading order has no single truth there, and
1 - edit distance / length of the truth. RapidOCR reads the same files on OpenVINO with its
own defaults, the angle classifier off unless --cls. Exit status 1 below 0.920, or below it.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable

import anyio
import documents
import httpx
from documents import CORPUS, Row
from running import server

Texts = dict[str, list[str]]
IMAGES = ("jpg", "jpeg", "png", "webp")
ENGLISH = ("receipt", "form", "page", "scan")


def chosen() -> tuple[list[Row], list[Row]]:
    """Return the English rows and the Chinese and Japanese ones."""
    rows = [row for row in documents.rows() if row["file"].rsplit(".")[-1].lower() in IMAGES]
    english = [
        r for r in rows if r["language"] == "en" and r["kind"] in ENGLISH and has(r, "lines")
    ]
    cjk = [r for r in rows if r["language"] in ("zh", "ja", "zh-Hant") and has(r, "lines", "text")]
    return english, cjk


def has(row: Row, *kinds: str) -> bool:
    return bool(documents.truth_files(row).keys() & set(kinds))


def truth(row: Row) -> list[str]:
    files = documents.truth_files(row)
    if "lines" in files:
        return documents.true_lines(files["lines"])
    return files["text"].read_text().split("\n")


def words(lines: Iterable[str]) -> list[str]:
    return re.findall(r"[a-z0-9]+", " ".join(lines).lower())


def characters(lines: Iterable[str]) -> list[str]:
    return [c for c in "".join(lines) if not c.isspace()]


def f1(rows: list[Row], texts: Texts, units: Callable[[Iterable[str]], list[str]]) -> float:
    """Return the F1 of all rows together."""
    hit = found = wanted = 0
    for row in rows:
        bags = Counter(units(texts[row["id"]])), Counter(units(truth(row)))
        hit += (bags[0] & bags[1]).total()
        found += bags[0].total()
        wanted += bags[1].total()
    return 2 * hit / max(1, found + wanted)


def character_accuracy(rows: list[Row], texts: Texts) -> float:
    wrong = length = 0
    for row in rows:
        read, wanted = characters(texts[row["id"]]), characters(truth(row))
        wrong += distance(read, wanted)
        length += len(wanted)
    return 1 - wrong / max(1, length)


def distance(left: list[str], right: list[str]) -> int:
    """Return Levenshtein's distance."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        above, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (a != b))
    return row[-1]


async def ours(rows: list[Row]) -> Texts:
    texts: Texts = {}
    left = iter(rows)
    headers = {"X-Request-Timeout-Seconds": "1800"}
    with server() as running:
        async with httpx.AsyncClient(base_url=running.url, timeout=1800) as client:

            async def user() -> None:
                for row in left:
                    body = (CORPUS / row["file"]).read_bytes()
                    reply = await client.post("/v1/ocr", content=body, headers=headers)
                    reply.raise_for_status()
                    lines = [line for page in reply.json()["pages"] for line in page["lines"]]
                    texts[row["id"]] = [line["text"] for line in lines]

            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(user)
    return texts


def rapidocr(rows: list[Row], *, cls: bool) -> Texts:
    import cv2
    import numpy as np
    from rapidocr import EngineType, RapidOCR

    kinds = dict.fromkeys(("Det.engine_type", "Rec.engine_type", "Cls.engine_type"))
    params = {**dict.fromkeys(kinds, EngineType.OPENVINO), "Global.use_cls": cls}
    engine = RapidOCR(params={**params, "Global.log_level": "critical"})
    texts: Texts = {}
    for row in rows:
        data = np.frombuffer((CORPUS / row["file"]).read_bytes(), np.uint8)
        texts[row["id"]] = list(engine(cv2.imdecode(data, cv2.IMREAD_COLOR)).txts or ())
    return texts


def report(name: str, texts: Texts, english: list[Row], cjk: list[Row]) -> tuple[float, float]:
    word_f1, char_f1 = f1(english, texts, words), f1(cjk, texts, characters)
    accuracy = character_accuracy(cjk, texts)
    print(
        f"{name}: word F1 {word_f1:.4f} on {len(english)} English files; on {len(cjk)} Chinese "
        f"and Japanese: character F1 {char_f1:.4f}, accuracy in order {accuracy:.4f}",
        flush=True,
    )
    return word_f1, char_f1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--no-rapidocr", action="store_true")
    parser.add_argument("--cls", action="store_true")
    args = parser.parse_args()
    english, cjk = chosen()
    word_f1, char_f1 = report("pagemill", anyio.run(ours, english + cjk), english, cjk)
    theirs = (0.0, 0.0)
    if not args.no_rapidocr:
        texts = rapidocr(english + cjk, cls=args.cls)
        theirs = report("RapidOCR", texts, english, cjk)
    return 0 if word_f1 >= max(0.920, theirs[0]) and char_f1 >= theirs[1] else 1


if __name__ == "__main__":
    sys.exit(main())
