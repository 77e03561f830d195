"""Every file of the corpus is read, or refused as its manifest says."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pagemill.engine.stage import Input, Stage
from pagemill.errors import AppError, BadInput
from pagemill.stages import open as open_stage
from pagemill.stages import read_page
from pagemill.stages.wire import Open, Opened, ReadPage

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "dev"
MOST_PAGES = 5  # of one document: the whole corpus is read in seconds

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"there is no corpus at {CORPUS}")


def entries() -> list[Any]:
    manifest = CORPUS / "manifest.jsonl"
    return (
        [json.loads(line) for line in manifest.read_text().splitlines()]
        if manifest.exists()
        else []
    )


@pytest.fixture(scope="module")
def stages() -> tuple[Stage, Stage]:
    return open_stage.load({}), read_page.load({})


def outcome(stages: tuple[Stage, Stage], content: bytes) -> AppError | None:
    opening, reading = stages
    view = memoryview(content)
    asked = msgspec.msgpack.encode(Open(max_pixels=100_000_000, max_pages=1000))
    [answer] = opening.run([Input(payload=asked, buffers=(view,))])
    if isinstance(answer, AppError):
        return answer
    pages = msgspec.msgpack.decode(answer.payload, type=Opened).pages
    for page in range(min(pages, MOST_PAGES)):
        asked = msgspec.msgpack.encode(ReadPage(page=page, max_pixels=100_000_000))
        [read] = reading.run([Input(payload=asked, buffers=(view,))])
        if isinstance(read, AppError):
            return read
    return None


@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry["id"]) for entry in entries()])
def test_a_file_gets_what_the_manifest_expects(entry: Any, stages: tuple[Stage, Stage]) -> None:
    error = outcome(stages, (CORPUS / entry["file"]).read_bytes())
    if entry["expect"] == "4xx":
        assert isinstance(error, BadInput)
    elif entry["expect"].endswith("_or_4xx"):
        assert error is None or isinstance(error, BadInput)
    else:
        assert error is None
