"""Both contracts: what they answer, what they refuse, and that nothing leaks."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from pagemill import errors
from pagemill.errors import AppError, BadInput, Defect, Overloaded
from pagemill.server.parts import ServerLimits
from tests.descriptors import open_descriptors
from tests.server.fakes import STATE, FakeEngine, FakeOcr, Served

pytestmark = pytest.mark.anyio
DOCUMENT = bytes(range(256)) * 40


def in_json(content: bytes = DOCUMENT, **fields: Any) -> dict[str, Any]:
    return {"file": base64.b64encode(content).decode(), **fields}


async def post(served: Served, path: str, **request: Any) -> httpx.Response:
    async with served.client() as client:
        return await client.post(path, **request)


async def test_the_paddlex_answer_key_by_key() -> None:
    served = Served()
    reply = await post(served, "/ocr", json=in_json(logId="mine", unknown=1, fileType=None))
    assert reply.status_code == 200
    assert reply.headers["x-total-pages"] == "1"
    square, box = [[1, 2], [30, 2], [30, 12], [1, 12]], [1, 2, 30, 12]
    assert reply.json() == {
        "logId": "mine",
        "result": {
            "ocrResults": [
                {
                    "prunedResult": {
                        "model_settings": {
                            "use_doc_preprocessor": False,
                            "use_textline_orientation": False,
                        },
                        "dt_polys": [square, square],
                        "text_det_params": {
                            "limit_side_len": 64,
                            "limit_type": "min",
                            "thresh": 0.3,
                            "max_side_limit": 4000,
                            "box_thresh": 0.5,
                            "unclip_ratio": 1.6,
                        },
                        "text_type": "general",
                        "textline_orientation_angles": [-1, -1],
                        "text_rec_score_thresh": 0.0,
                        "return_word_box": False,
                        "rec_texts": ["TOTAL 10.40"],
                        "rec_scores": [0.98765],
                        "rec_polys": [square],
                        "rec_boxes": [box],
                    }
                }
            ],
            "dataInfo": {"width": 40, "height": 20, "type": "image"},
        },
        "errorCode": 0,
        "errorMsg": "Success",
    }
    assert served.ocr.contents == [DOCUMENT]


async def test_a_pdf_tells_its_pages_and_the_cap_is_passed_on() -> None:
    served = Served(ocr=FakeOcr(kind="pdf", pages=2))
    reply = await post(served, "/ocr", json=in_json(fileType=0))
    size = {"width": 40, "height": 20}
    assert reply.json()["result"]["dataInfo"] == {
        "numPages": 2,
        "pages": [size, size],
        "type": "pdf",
    }
    assert served.ocr.options[0].page_limit == 10


@pytest.mark.parametrize(
    "text",
    [
        "data:image/png;base64," + base64.b64encode(DOCUMENT).decode(),
        base64.encodebytes(DOCUMENT).decode(),
        base64.urlsafe_b64encode(DOCUMENT).decode(),
        base64.b64encode(DOCUMENT).decode().rstrip("="),
    ],
    ids=["data url", "line breaks", "url safe", "no padding"],
)
async def test_base64_as_people_send_it(text: str) -> None:
    served = Served()
    assert (await post(served, "/ocr", json={"file": text})).status_code == 200
    assert served.ocr.contents == [DOCUMENT]


async def test_escaped_slashes_and_chunk_borders_are_read_right() -> None:
    content = bytes([255, 239, 191]) * 1_100_001  # "////..." over several chunks
    text = base64.b64encode(content).decode()
    served = Served()
    for body in (json.dumps({"file": text}), json.dumps({"file": text}).replace("/", "\\/")):
        assert (await post(served, "/ocr", content=body)).status_code == 200
    assert served.ocr.contents == [content, content]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b'{"file": 5}', 422),
        (b"{}", 422),
        (b'{"file": ""}', 422),
        (b'{"file": "not base64!"}', 422),
        (b'{"file": "QUJD", "fileType": 7}', 422),
        (b'{"file": "QUJD", "textDetThresh": 7}', 422),
        (b'{"file": "QUJD", "textDetThresh": NaN}', 422),
        (b'{"file": "QUJD", "useDocUnwarping": true}', 422),
        (b'{"file": "http://127.0.0.1/x.png"}', 422),
        (b'{"file": "\xff\xfe"}', 422),
        (b"[" * 100_000, 422),
    ],
)
async def test_a_bad_body_is_told_in_the_envelope(body: bytes, code: int) -> None:
    before = open_descriptors()
    reply = await post(Served(), "/ocr", content=body)
    answer = reply.json()
    assert (reply.status_code, answer["errorCode"]) == (code, code)
    assert set(answer) == {"logId", "errorCode", "errorMsg"}
    assert open_descriptors() == before


async def test_a_body_over_the_limit_is_refused_by_length_and_by_count() -> None:
    async def chunks() -> Any:
        for _ in range(100):
            yield b"x" * 1000

    served = Served(limits=ServerLimits(max_bytes=1000))
    for path, body in (("/v1/ocr", b"x" * 1001), ("/v1/ocr", chunks()), ("/ocr", b"x" * 99_000)):
        reply = await post(served, path, content=body)
        assert reply.status_code == 413, path
    assert served.ocr.contents == []


async def test_the_native_answer() -> None:
    served = Served()
    headers = {"x-request-id": "mine"}
    reply = await post(served, "/v1/ocr?pages=1-2&words=true", content=DOCUMENT, headers=headers)
    assert reply.headers["x-request-id"] == "mine"
    assert reply.json() == {
        "request_id": "mine",
        "kind": "image",
        "total_pages": 1,
        "pages": [
            {
                "page": 1,
                "width": 40,
                "height": 20,
                "turn": 0,
                "lines": [
                    {
                        "text": "TOTAL 10.40",
                        "confidence": 0.98765,
                        "polygon": [[1.0, 2.0], [30.0, 2.0], [30.0, 12.0], [1.0, 12.0]],
                        "box": [1.0, 2.0, 30.0, 12.0],
                    }
                ],
            }
        ],
    }
    assert served.ocr.options[0].pages == (0, 1)
    assert served.ocr.options[0].words


@pytest.mark.parametrize(
    ("accept", "kind", "text"),
    [
        ("text/plain", "text/plain", "TOTAL 10.40\n"),
        ("text/markdown", "text/markdown", "TOTAL 10.40\n"),
        ("text/*;q=0.5, application/pdf", "text/plain", "TOTAL 10.40\n"),
        ("text/plain;q=0.1, text/markdown", "text/markdown", "TOTAL 10.40\n"),
    ],
)
async def test_the_type_that_the_client_likes_best(accept: str, kind: str, text: str) -> None:
    reply = await post(Served(), "/v1/ocr", content=DOCUMENT, headers={"accept": accept})
    assert reply.headers["content-type"].startswith(kind)
    assert reply.text == text


async def test_no_type_in_common_is_not_acceptable() -> None:
    reply = await post(Served(), "/v1/ocr", content=b"x", headers={"accept": "image/png"})
    assert reply.status_code == 406
    assert reply.json()["error"]["code"] == "not_acceptable"


async def test_several_files_fail_alone() -> None:
    files = [("file", ("a.png", b"good")), ("file", ("b.png", b"bad"))]
    reply = await post(Served(), "/v1/ocr", files=files, data={"words": "true"})
    first, second = reply.json()["documents"]
    assert (first["name"], first["total_pages"]) == ("a.png", 1)
    assert (second["name"], second["error"]["code"]) == ("b.png", "bad_input")


@pytest.mark.parametrize(
    "query",
    [
        "nonsense=1",
        "pages=0",
        "words=maybe",
        "min_confidence=2",
        "min_confidence=nan",
        "det_side_px=1",
        "orientation=up",
        "pages=1&pages=2",
    ],
)
async def test_a_wrong_option_is_named(query: str) -> None:
    reply = await post(Served(), f"/v1/ocr?{query}", content=DOCUMENT)
    assert reply.status_code == 422
    assert reply.json()["error"]["code"] == "bad_option"


async def test_a_form_without_boundary_or_file_is_refused() -> None:
    headers = {"content-type": "multipart/form-data"}
    assert (await post(Served(), "/v1/ocr", content=b"x", headers=headers)).status_code == 422
    headers = {"content-type": "multipart/form-data; boundary=b"}
    reply = await post(Served(), "/v1/ocr", content=b"--b--\r\n", headers=headers)
    assert reply.json()["error"]["code"] == "empty_body"


async def test_pages_stream_and_end_with_done() -> None:
    served = Served(ocr=FakeOcr(kind="pdf", pages=3))
    headers = {"accept": "application/x-ndjson"}
    reply = await post(served, "/v1/ocr", content=DOCUMENT, headers=headers)
    *pages, end = [json.loads(line) for line in reply.text.splitlines()]
    assert [page["page"] for page in pages] == [1, 2, 3]
    assert (end["done"], end["pages"]) == (True, 3)


async def test_an_error_before_the_first_page_has_its_status_and_later_a_line() -> None:
    headers = {"accept": "application/x-ndjson"}
    early = Served(ocr=FakeOcr(kind="pdf", pages=3, error=BadInput("no")))
    assert (await post(early, "/v1/ocr", content=b"x", headers=headers)).status_code == 422
    late = Served(ocr=FakeOcr(kind="pdf", pages=3, error=BadInput("no"), error_at_page=2))
    reply = await post(late, "/v1/ocr", content=b"x", headers=headers)
    assert reply.status_code == 200
    assert json.loads(reply.text.splitlines()[-1])["error"]["code"] == "bad_input"


@pytest.mark.parametrize("path", ["/ocr", "/v1/ocr"])
@pytest.mark.parametrize("code", sorted(errors.all_errors()))
async def test_every_error_has_one_shape_a_contract(path: str, code: str) -> None:
    error = errors.from_code(code, "a sentence")
    before = open_descriptors()
    reply = await post(Served(ocr=FakeOcr(error=error)), path, json=in_json())
    body = reply.json()
    if path == "/ocr":
        assert set(body) == {"logId", "errorCode", "errorMsg"}
        assert body["errorCode"] == reply.status_code
        message = body["errorMsg"]
    else:
        assert set(body["error"]) == {"code", "message", "request_id"}
        assert (body["error"]["code"], reply.status_code) == (code, int(error.status))
        message = body["error"]["message"]
    assert ("a sentence" in message) is error.public
    assert open_descriptors() == before


async def test_an_unknown_fault_is_a_500_with_an_id_and_no_detail() -> None:
    class Broken(FakeOcr):
        async def read_all(self, *_: Any) -> Any:
            raise RuntimeError("secret")

    for path in ("/ocr", "/v1/ocr"):
        reply = await post(Served(ocr=Broken()), path, json=in_json())
        assert reply.status_code == 500
        assert "secret" not in reply.text
        assert reply.headers["x-request-id"] in reply.text
    assert not Defect("secret").public


async def test_overload_is_told_with_retry_after_before_the_body_is_read() -> None:
    served = Served(engine=FakeEngine(refusal=Overloaded("busy", retry_after_s=7)))
    for path in ("/ocr", "/v1/ocr"):
        reply = await post(served, path, json=in_json())
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "7")
    assert served.ocr.contents == []


@pytest.mark.parametrize("value", ["0", "-1", "x", "nan", "inf", "99999"])
async def test_a_wrong_deadline_is_a_bad_option(value: str) -> None:
    headers = {"X-Request-Timeout-Seconds": value}
    reply = await post(Served(), "/v1/ocr", content=b"x", headers=headers)
    assert reply.json()["error"]["code"] == "bad_option"


async def test_a_deadline_covers_a_body_that_trickles() -> None:
    async def trickle() -> Any:
        yield b"x"
        await anyio.sleep_forever()

    headers = {"X-Request-Timeout-Seconds": "0.05"}
    reply = await post(Served(), "/v1/ocr", content=trickle(), headers=headers)
    assert reply.json()["error"]["code"] == "deadline_exceeded"


async def test_keys_are_asked_for_when_there_are_some() -> None:
    served = Served(limits=ServerLimits(api_keys=("one", "two")))
    for headers in ({}, {"authorization": "Bearer no"}, {"x-api-key": "on"}):
        reply = await post(served, "/v1/ocr", content=b"x", headers=headers)
        assert reply.status_code == 401
    for headers in (
        {"authorization": "Bearer two"},
        {"authorization": "token one"},
        {"x-api-key": "one"},
    ):
        reply = await post(served, "/v1/ocr", content=b"x", headers=headers)
        assert reply.status_code == 200
    async with served.client() as client:
        assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("path", ["/ocr", "/v1/ocr"])
async def test_a_client_that_leaves_cancels_its_work(path: str) -> None:
    served = Served(ocr=FakeOcr(hangs=True))
    body = json.dumps(in_json()).encode()
    left = anyio.Event()
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        return

    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": [], "scheme": "http", "server": ("test", 80),
        "client": ("test", 1), "http_version": "1.1", "root_path": "", "asgi": {"version": "3.0"},
    }  # fmt: skip
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(served.app(), scope, receive, send)
            await anyio.wait_all_tasks_blocked()
            left.set()
    assert served.ocr.cancelled


async def test_unknown_paths_and_methods_have_the_native_shape() -> None:
    async with Served().client() as client:
        assert (await client.get("/nope")).json()["error"]["code"] == "not_found"
        assert (await client.get("/v1/ocr")).json()["error"]["code"] == "method_not_allowed"
        assert (await client.get("/ocr")).json()["errorCode"] == 405


@pytest.mark.parametrize(
    ("state", "status", "ready"),
    [
        (STATE, "ok", 200),
        (replace(STATE, missing=("detect",)), "loading", 503),
        (replace(STATE, draining=True), "draining", 503),
    ],
)
async def test_health_tells_the_truth(state: Any, status: str, ready: int) -> None:
    async with Served(engine=FakeEngine(state=state)).client() as client:
        health = await client.get("/health")
        assert health.status_code == 200
        assert health.json()["status"] == status
        assert health.json()["model_loaded"] is not bool(state.missing)
        assert (await client.get("/health/live")).status_code == 200
        answer = await client.get("/health/ready")
        assert answer.status_code == ready
        assert answer.json()["missing"] == list(state.missing)


async def test_metrics_name_what_operators_ask_for() -> None:
    async with Served().client() as client:
        await client.post("/v1/ocr", content=b"x")
        text = (await client.get("/metrics")).text
    names = (
        'requests_total{route="/v1/ocr",status="200"} 1.0', "request_seconds_bucket",
        'queue_items{stage="detect"} 2.0', "predicted_wait_seconds 0.5", "batch_items",
        "worker_restarts", "retries", "quarantined", "shed", "process_resident_bytes",
        "model_load_seconds", "item_run_seconds",
    )  # fmt: skip
    assert [name for name in names if f"pagemill_{name}" not in text] == []


def test_every_code_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
    codes = [cls.code for cls in errors._leaves(AppError)]
    assert [code for code in codes if f"`{code}`" not in page] == []
