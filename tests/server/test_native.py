"""`POST /v1/ocr`: options, types of answer, streams, deadlines."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import httpx
import pytest
from structlog.testing import capture_logs

from pagemill.documents.values import Page, Word
from pagemill.errors import DeadlineExceeded, Defect, WorkerLost
from pagemill.pipelines.options import OcrOptions
from pagemill.server import native
from pagemill.server.parts import ServerLimits
from tests.descriptors import open_descriptors
from tests.server.driving import Connection, Message, scope_of
from tests.server.fakes import LINE, SQUARE, FakeOcr, FakeReading, Served

pytestmark = pytest.mark.anyio
NDJSON = {"accept": "application/x-ndjson"}


async def post(served: Served, query: str = "", **request: Any) -> httpx.Response:
    request.setdefault("content", b"document")
    async with served.client() as client:
        return await client.post(f"/v1/ocr{query}", **request)


async def test_the_bytes_of_an_answer() -> None:
    class Words(FakeOcr):
        async def _pages(self) -> Any:
            word = Word(text="TOTAL", confidence=0.5, polygon=SQUARE)
            line = replace(LINE, words=(word,))
            yield Page(index=0, width=40, height=20, turn=90, lines=(line,), regions=(SQUARE,))

    reply = await post(Served(ocr=Words()), headers={"x-request-id": "mine"})
    polygon = b"[[1.0,2.0],[30.0,2.0],[30.0,12.0],[1.0,12.0]]"
    assert reply.content == (
        b'{"request_id":"mine","kind":"image","total_pages":1,"pages":[{"page":1,"width":40,'
        b'"height":20,"turn":90,"lines":[{"text":"TOTAL 10.40","confidence":0.98765,"polygon":'
        + polygon + b',"box":[1.0,2.0,30.0,12.0],"words":[{"text":"TOTAL","confidence":0.5,'
        b'"polygon":' + polygon + b"}]}]}]}"
    )  # fmt: skip


# --- options ---


@pytest.mark.parametrize(
    ("query", "changed"),
    [
        ("", {}),
        ("?pages=3,1-2", {"pages": (0, 1, 2)}),
        ("?password=p%26%C3%A9", {"password": "p&é"}),
        ("?orientation=off", {"orientation": "off"}),
        ("?line_angle=TRUE&words=1", {"line_angle": True, "words": True}),
        ("?words=0", {}),
        ("?min_confidence=0", {"min_confidence": 0.0}),
        ("?det_side_px=32&det_side_type=min", {"det_side_px": 32, "det_side_type": "min"}),
        ("?det_side_px=4e3", {"det_side_px": 4000}),
        ("?det_threshold=1&det_box_threshold=0", {"det_threshold": 1.0, "det_box_threshold": 0.0}),
        ("?det_unclip_ratio=0.5", {"det_unclip_ratio": 0.5}),
    ],
)
async def test_options_in_the_address(query: str, changed: dict[str, Any]) -> None:
    served = Served()
    assert (await post(served, query)).status_code == 200
    assert served.ocr.options == [replace(OcrOptions(), **changed)]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pages", ("", "0", "1-", "2-1", "1-99999999", "a", "1,,2", "-1")),
        ("orientation", ("", "AUTO", "90")),
        ("line_angle", ("", "yes", "2")),
        ("words", ("maybe",)),
        ("min_confidence", ("-0.1", "1.1", "nan", "inf", "x", "")),
        ("det_side_px", ("31", "4001", "64.5", "x", "9" * 5000, "nan", "inf")),
        ("det_side_type", ("mean",)),
        ("det_threshold", ("-1", "2")),
        ("det_box_threshold", ("-1", "2")),
        ("det_unclip_ratio", ("0.4", "10.1")),
        ("picture", ("1",)),
        ("page_limit", ("1",)),
    ],
)
async def test_a_wrong_option_is_named_in_one_short_sentence(
    name: str, values: tuple[str, ...]
) -> None:
    for value in values:
        served = Served()
        error = (await post(served, f"?{name}={value}")).json()["error"]
        assert error["code"] == "bad_option"
        assert name in error["message"]
        assert len(error["message"]) < 300
        assert "could not convert" not in error["message"]
        assert served.ocr.contents == []


async def test_a_wrong_option_is_told_before_the_body_is_read() -> None:
    connection = Connection([], whole=False)
    await connection.call(Served().app(), scope_of("/v1/ocr", query=b"words=maybe"))
    assert (connection.sent[0]["status"], connection.taken) == (422, 0)


# --- types ---


@pytest.mark.parametrize(
    ("accept", "answer"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/json, text/plain, */*", "application/json"),  # axios
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "application/json"),
        ("TEXT/PLAIN", "text/plain"),
        ("text/plain; charset=utf-8", "text/plain"),
        ("text/markdown ; q=1.0", "text/markdown"),
        ("application/x-ndjson, application/json", "application/x-ndjson"),
        ("application/json, application/x-ndjson", "application/json"),
        ("*/*, text/plain", "text/plain"),
        ("application/json;q=0, */*;q=0.1", "text/plain"),
        ("application/*", "application/json"),
        ("application/*;q=0.2, application/x-ndjson;q=0.3", "application/x-ndjson"),
        ("image/png, text/*;q=0.1", "text/plain"),
        ("image/png", None),
        ("application/json;q=0", None),
        ("application/json;q=x", None),
        ("application/json;q=nan", None),
        (",;,", None),
    ],
)
async def test_the_type_is_the_clients_choice(accept: str, answer: str | None) -> None:
    reply = await post(Served(), headers={"accept": accept})
    if answer is None:
        assert (reply.status_code, reply.json()["error"]["code"]) == (406, "not_acceptable")
    else:
        assert reply.headers["content-type"].split(";")[0] == answer


@pytest.mark.parametrize("accept", ["text/plain", "text/markdown", "application/x-ndjson"])
async def test_several_files_are_answered_as_json_only(accept: str) -> None:
    files = [("file", ("a.png", b"a")), ("file", ("b.png", b"b"))]
    served = Served()
    async with served.client() as client:
        reply = await client.post("/v1/ocr", files=files, headers={"accept": accept})
    assert 400 <= reply.status_code < 500
    assert served.ocr.contents == []


# --- streams ---


async def test_each_page_leaves_before_the_next_is_read() -> None:
    events: list[str] = []

    class Pages(FakeOcr):
        async def _pages(self) -> Any:
            async for page in super()._pages():
                events.append(f"read {page.index}")
                yield page

    async def on_send(message: Message) -> None:
        if message.get("body"):
            events.append("sent " + str(json.loads(message["body"]).get("page", "end")))

    connection = Connection([b"x"], on_send=on_send)
    scope = scope_of("/v1/ocr", headers=[(b"accept", b"application/x-ndjson")])
    await connection.call(Served(ocr=Pages(kind="pdf", pages=2)).app(), scope)
    assert events == ["read 0", "sent 1", "read 1", "sent 2", "sent end"]
    assert connection.sent[-1] == {"type": "http.response.body", "body": b""}


@pytest.mark.parametrize("error", [WorkerLost("lost"), Defect("secret"), DeadlineExceeded("late")])
async def test_an_error_is_a_status_before_the_first_page_and_the_last_line_after(
    error: Any,
) -> None:
    before = open_descriptors()
    early = await post(Served(ocr=FakeOcr(pages=2, error=error)), headers=NDJSON)
    assert (early.status_code, early.json()["error"]["code"]) == (int(error.status), error.code)
    late = await post(Served(ocr=FakeOcr(pages=2, error=error, error_at_page=1)), headers=NDJSON)
    page, last = map(json.loads, late.text.splitlines())
    assert (late.status_code, page["page"], list(last)) == (200, 1, ["error"])
    assert last["error"]["code"] == error.code
    assert last["error"]["request_id"] == late.headers["x-request-id"]
    assert ("secret" in late.text) is False
    assert open_descriptors() == before


async def test_a_stream_that_breaks_by_a_fault_of_ours_is_seen_to_be_cut() -> None:
    class Broken(FakeOcr):
        async def _pages(self) -> Any:
            async for page in super()._pages():
                yield page
                raise RuntimeError("secret")

    connection = Connection([b"x"])
    scope = scope_of("/v1/ocr", headers=[(b"accept", b"application/x-ndjson")])
    await connection.call(Served(ocr=Broken()).app(), scope)
    assert connection.sent[-1]["more_body"]
    assert b"secret" not in b"".join(message.get("body", b"") for message in connection.sent)


class Careful(FakeOcr):
    """Notes whether its pages were closed in the task that asked for them."""

    closed = ""

    @asynccontextmanager
    async def reading(self, *asked: Any) -> AsyncIterator[FakeReading]:
        mine = anyio.get_current_task().id
        try:
            async with super().reading(*asked) as reading:
                yield reading
        finally:
            same = anyio.get_current_task().id == mine
            self.closed = "in its task" if same else "in another task"


async def test_a_client_that_leaves_mid_stream_is_no_fault_and_leaves_nothing() -> None:
    ocr = Careful(kind="pdf", pages=3)
    connection = Connection([b"x"])

    async def on_send(message: Message) -> None:
        if message.get("body"):
            connection.left.set()
            await anyio.sleep_forever()  # as uvicorn does when its buffer is full

    connection.on_send = on_send
    before = open_descriptors()
    scope = scope_of("/v1/ocr", headers=[(b"accept", b"application/x-ndjson")])
    with capture_logs() as logs:
        await connection.call(Served(ocr=ocr).app(), scope)
    assert ocr.closed == "in its task"
    assert [entry for entry in logs if entry["log_level"] == "error"] == []
    assert open_descriptors() == before


async def test_a_client_that_takes_nothing_is_cut_off_after_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "_LAST_LINE_S", 0.0)
    ocr = Careful(kind="pdf", pages=3)

    async def on_send(message: Message) -> None:
        if message.get("body"):
            await anyio.sleep_forever()

    connection = Connection([b"x"], on_send=on_send)
    headers = [(b"accept", b"application/x-ndjson"), (b"x-request-timeout-seconds", b"0.05")]
    await connection.call(Served(ocr=ocr).app(), scope_of("/v1/ocr", headers=headers))
    assert ocr.closed == "in its task"
    assert connection.sent[-1]["more_body"]


# --- deadlines ---


@pytest.mark.parametrize(
    ("header", "seconds"), [(None, 120), ("5", 5), ("0.5", 0.5), ("1800", 1800)]
)
async def test_the_deadline_counts_from_the_arrival(header: str | None, seconds: float) -> None:
    served = Served()
    headers = {} if header is None else {"X-Request-Timeout-Seconds": header}
    start_s = anyio.current_time()
    await post(served, headers=headers)
    (context,) = served.engine.admitted
    assert 0 <= context.deadline_s - start_s - seconds < 5


async def test_a_deadline_above_the_servers_is_refused_with_both_figures() -> None:
    served = Served(limits=ServerLimits(max_timeout_s=60))
    reply = await post(served, headers={"X-Request-Timeout-Seconds": "61"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "bad_option")
    assert "60" in reply.json()["error"]["message"]
    assert served.engine.admitted == []
