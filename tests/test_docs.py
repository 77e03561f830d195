"""The reference pages are what the code says, and links between pages lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_generated_pages_are_up_to_date() -> None:
    command = [sys.executable, "scripts/generate_docs.py", "--check"]
    checked = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z]+)", page.read_text())}
    assert named <= targets
