"""The development corpus: its rows, their truth, and those that benchmarks use.

python scripts/documents.py COUNT     prints the benchmarks' documents, a path a line
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

CORPUS: Final = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "dev"
Row = dict[str, Any]


def rows() -> list[Row]:
    """Return the manifest, a row a file."""
    return [json.loads(line) for line in (CORPUS / "manifest.jsonl").read_text().splitlines()]


def truth_files(row: Row) -> dict[str, Path]:
    """Return a row's files of ground truth, by type."""
    return {each["type"]: CORPUS / each["file"] for each in row["ground_truth"]}


def true_lines(path: Path) -> list[str]:
    """Return the texts of a truth of type `lines`, without those not to be scored."""
    lines = json.loads(path.read_text())["lines"]
    return [line["text"] for line in lines if line["text"] != "###" and not line.get("ignore")]


def for_benchmarks(count: int) -> list[Path]:
    """Return every n-th of the English receipts, forms and scans that have line truth."""
    paths = [
        CORPUS / row["file"]
        for row in rows()
        if row["kind"] in ("receipt", "form", "scan")
        and row["language"] == "en"
        and not row["derived"]
        and "lines" in truth_files(row)
    ]
    return paths[:: max(1, len(paths) // count)][:count]


if __name__ == "__main__":
    print(*for_benchmarks(int(sys.argv[1])), sep="\n")
