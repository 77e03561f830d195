"""The recipe, on an engine of a few lines: order, bounds, turning, and no leaks."""

from collections.abc import Callable, Iterator

import anyio
import msgspec
import pytest

from pagemill.documents.values import Pictures
from pagemill.engine.buffers import Buffer
from pagemill.engine.task import Context, Result, Task
from pagemill.errors import AppError, BadOption, DamagedInput, Defect, NotInstalled
from pagemill.pipelines.ocr import Ocr, OcrLimits, choose_pages
from pagemill.pipelines.options import OcrOptions
from pagemill.stages import wire
from tests.descriptors import open_descriptors

CONTEXT = Context(request_id="r", deadline_s=1e9)
TILES = (wire.Tile(x=0, y=0, width=64, height=64), wire.Tile(x=0, y=32, width=64, height=64))


class FakeEngine:
    """Answers each stage by a function; remembers the most pages in work at a time."""

    def __init__(self, pages: int = 1, *, upside_down: bool = False) -> None:
        self.pages = pages
        self.upside_down = upside_down
        self.calls: list[str] = []
        self.fail: dict[str, AppError] = {}
        self.cut_buffers: list[int] = []

    async def run(self, task: Task, context: Context) -> Result:
        assert context is CONTEXT
        self.calls.append(task.stage)
        await anyio.lowlevel.checkpoint()
        if task.stage in self.fail:
            raise self.fail[task.stage]
        answer: Callable[[Task], tuple[msgspec.Struct, int]] = getattr(self, f"answer_{task.stage}")
        value, buffers = answer(task)
        return Result(
            payload=msgspec.msgpack.encode(value),
            buffers=tuple(Buffer.of(b"x") for _ in range(buffers)),
            generation=1,
        )

    def answer_open(self, task: Task) -> tuple[msgspec.Struct, int]:
        assert task.buffers
        return wire.Opened(kind="pdf", pages=self.pages), 0

    def answer_read_page(self, task: Task) -> tuple[msgspec.Struct, int]:
        page = msgspec.msgpack.decode(task.payload, type=wire.ReadPage).page
        return wire.PageRead(
            width=100 + page, height=96, det_width=64, det_height=96,
            scaled_width=64, scaled_height=96, tiles=TILES,
        ), 2  # fmt: skip

    def answer_detect(self, _task: Task) -> tuple[msgspec.Struct, int]:
        return wire.Detected(), 1

    def answer_cut(self, task: Task) -> tuple[msgspec.Struct, int]:
        self.cut_buffers.append(len(task.buffers))
        corners = ((0.0, 0.0), (9.0, 0.0), (9.0, 4.0), (0.0, 4.0))
        strips = tuple(
            wire.Strip(polygon=corners, score=0.9, offset=i, width=32, text_width=30, tall=False)
            for i in range(3)
        )
        return wire.Lines(strips=strips), 1

    def answer_recognize(self, task: Task) -> tuple[msgspec.Struct, int]:
        asked = msgspec.msgpack.decode(task.payload, type=wire.Recognize)
        right = asked.flip == self.upside_down
        return wire.Recognized(text=f"line {asked.offset}", confidence=0.9 if right else 0.3), 0

    def answer_line_angle(self, task: Task) -> tuple[msgspec.Struct, int]:
        asked = msgspec.msgpack.decode(task.payload, type=wire.LineAngle)
        return wire.LineAngled(flipped=0.99 if asked.offset == 1 else 0.5), 0

    def answer_draw(self, task: Task) -> tuple[msgspec.Struct, int]:
        assert msgspec.msgpack.decode(task.payload, type=wire.Draw).polygons
        return wire.Drawn(), 2


def ocr(engine: FakeEngine, window: int = 2) -> Ocr:
    return Ocr(engine, OcrLimits(max_pixels=10**6, max_pages=100, window=window))


@pytest.fixture
def document() -> Iterator[Buffer]:
    with Buffer.of(b"a document") as buffer:
        yield buffer


@pytest.mark.anyio
async def test_pages_come_in_order_with_their_lines(document: Buffer) -> None:
    before = open_descriptors()
    read = await ocr(FakeEngine(5)).read_all(document, OcrOptions(), CONTEXT)
    assert [page.width for page in read.pages] == [100, 101, 102, 103, 104]
    assert [line.text for line in read.pages[0].lines] == ["line 0", "line 1", "line 2"]
    assert (read.kind, read.total_pages) == ("pdf", 5)
    assert open_descriptors() == before


@pytest.mark.anyio
async def test_each_tile_is_searched_and_its_map_handed_on(document: Buffer) -> None:
    engine = FakeEngine()
    await ocr(engine).read_all(document, OcrOptions(), CONTEXT)
    assert engine.calls.count("detect") == 2
    assert engine.cut_buffers == [3]


@pytest.mark.anyio
async def test_an_upside_down_page_is_read_turned_from_its_end(document: Buffer) -> None:
    read = await ocr(FakeEngine(upside_down=True)).read_all(document, OcrOptions(), CONTEXT)
    (page,) = read.pages
    assert page.turn == 180
    assert [line.text for line in page.lines] == ["line 2", "line 1", "line 0"]
    assert page.lines[0].polygon[0] == (9.0, 4.0)


@pytest.mark.anyio
async def test_a_page_is_left_as_it_is_when_told_so(document: Buffer) -> None:
    options = OcrOptions(orientation="off", min_confidence=0.0)
    read = await ocr(FakeEngine(upside_down=True)).read_all(document, options, CONTEXT)
    assert read.pages[0].turn == 0
    assert {line.confidence for line in read.pages[0].lines} == {0.3}


@pytest.mark.anyio
async def test_lines_below_the_confidence_are_dropped_but_their_regions_stay(
    document: Buffer,
) -> None:
    options = OcrOptions(min_confidence=0.95)
    read = await ocr(FakeEngine()).read_all(document, options, CONTEXT)
    assert read.pages[0].lines == ()
    assert len(read.pages[0].regions) == 3


@pytest.mark.anyio
@pytest.mark.parametrize("stage", ["open", "read_page", "detect", "cut", "recognize"])
async def test_a_stage_that_fails_ends_the_document_with_its_error(
    stage: str, document: Buffer
) -> None:
    engine = FakeEngine(3)
    engine.fail[stage] = DamagedInput("broken")
    before = open_descriptors()
    with pytest.raises(DamagedInput, match="broken"):
        await ocr(engine).read_all(document, OcrOptions(), CONTEXT)
    assert open_descriptors() == before


@pytest.mark.anyio
async def test_an_answer_out_of_contract_is_a_defect(document: Buffer) -> None:
    class Lying(FakeEngine):
        def answer_detect(self, _task: Task) -> tuple[msgspec.Struct, int]:
            return wire.Detected(), 0

    before = open_descriptors()
    with pytest.raises(Defect, match="0 buffers"):
        await ocr(Lying()).read_all(document, OcrOptions(), CONTEXT)
    assert open_descriptors() == before


@pytest.mark.anyio
async def test_no_more_than_a_window_of_pages_is_in_work(document: Buffer) -> None:
    engine = FakeEngine(50)
    async with ocr(engine, window=2).reading(document, OcrOptions(), CONTEXT) as reading:
        await anyio.wait_all_tasks_blocked()
        assert engine.calls.count("read_page") == 2
        await reading.pages.receive()
        await anyio.wait_all_tasks_blocked()
        assert engine.calls.count("read_page") == 3


@pytest.mark.anyio
async def test_lines_that_stand_on_their_heads_are_turned_each(document: Buffer) -> None:
    options = OcrOptions(line_angle=True, min_confidence=0.0)
    read = await ocr(FakeEngine()).read_all(document, options, CONTEXT)
    (page,) = read.pages
    assert page.turn == 0
    assert [line.confidence for line in page.lines] == [0.9, 0.3, 0.9]
    assert page.lines[1].polygon[0] == (9.0, 4.0)


@pytest.mark.anyio
async def test_pictures_are_made_when_asked_for(document: Buffer) -> None:
    before = open_descriptors()
    read = await ocr(FakeEngine()).read_all(document, OcrOptions(pictures=True), CONTEXT)
    assert read.pages[0].pictures == Pictures(outlined=b"x", plain=b"x")
    assert open_descriptors() == before


@pytest.mark.anyio
async def test_a_model_that_is_not_there_is_told(document: Buffer) -> None:
    with pytest.raises(NotInstalled, match="orientation"):
        await ocr(FakeEngine()).read_all(document, OcrOptions(orientation="model"), CONTEXT)


def test_pages_past_the_limit_are_dropped_silently() -> None:
    assert list(choose_pages(20, OcrOptions(page_limit=3))) == [0, 1, 2]


def test_a_page_that_is_not_there_is_a_bad_option() -> None:
    with pytest.raises(BadOption, match="Page 6 was asked for, but the document has 5"):
        choose_pages(5, OcrOptions(pages=(0, 5)))
