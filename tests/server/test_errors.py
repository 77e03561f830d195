"""Every refusal, in the envelope of the contract that was called."""

from typing import Any

import httpx
import pytest

from pagemill import errors
from pagemill.errors import AppError, Overloaded
from tests.descriptors import open_descriptors
from tests.server.driving import Connection, scope_of
from tests.server.fakes import FakeEngine, FakeOcr, Served

pytestmark = pytest.mark.anyio
CODES = sorted(errors.all_errors())
BODY = b'{"file": "QUJD", "logId": "mine"}'


async def post(served: Served, path: str, **request: Any) -> httpx.Response:
    async with served.client() as client:
        return await client.post(path, **request)


def told(path: str, reply: httpx.Response) -> tuple[str, str]:
    """Return (message, id) of an error, its shape checked."""
    assert reply.headers["content-type"] == "application/json"
    body = reply.json()
    if path == "/ocr":
        assert list(body) == ["logId", "errorCode", "errorMsg"]
        assert body["errorCode"] == reply.status_code
        return body["errorMsg"], body["logId"]
    assert list(body) == ["error"]
    assert list(body["error"]) == ["code", "message", "request_id"]
    return body["error"]["message"], body["error"]["request_id"]


@pytest.mark.parametrize("path", ["/ocr", "/v1/ocr"])
@pytest.mark.parametrize("code", CODES)
async def test_errors_at_the_door_have_the_shape_of_errors_at_work(path: str, code: str) -> None:
    error = errors.from_code(code, "a sentence")
    before = open_descriptors()
    at_door = await post(Served(engine=FakeEngine(refusal=error)), path, content=BODY)
    at_work = await post(Served(ocr=FakeOcr(error=error)), path, content=BODY)
    for reply in (at_door, at_work):
        message, _ = told(path, reply)
        assert ("a sentence" in message) is error.public
    assert at_door.status_code == at_work.status_code
    assert told(path, at_work)[1] == ("mine" if path == "/ocr" else at_work.headers["x-request-id"])
    assert open_descriptors() == before


@pytest.mark.parametrize("path", ["/ocr", "/v1/ocr"])
@pytest.mark.parametrize("code", CODES)
async def test_whoever_shall_come_back_is_told_when(path: str, code: str) -> None:
    error = errors.from_code(code, "a sentence")
    reply = await post(Served(ocr=FakeOcr(error=error)), path, content=BODY)
    temporary = reply.status_code in (429, 503)
    assert ("retry-after" in reply.headers) is temporary
    if temporary:
        assert int(reply.headers["retry-after"]) >= 1


@pytest.mark.parametrize(("seconds", "header"), [(0.2, "1"), (1.2, "2"), (7.0, "7"), (-1.0, "1")])
async def test_retry_after_is_rounded_up_to_whole_seconds(seconds: float, header: str) -> None:
    engine = FakeEngine(refusal=Overloaded("busy", retry_after_s=seconds))
    reply = await post(Served(engine=engine), "/v1/ocr", content=b"x")
    assert reply.headers["retry-after"] == header


@pytest.mark.parametrize("code", CODES)
async def test_paddlex_clients_get_422_for_every_document_that_cannot_be_read(code: str) -> None:
    error = errors.from_code(code, "a sentence")
    reply = await post(Served(ocr=FakeOcr(error=error)), "/ocr", content=BODY)
    expected = 422 if error.status in (400, 415, 422) else int(error.status)
    assert reply.status_code == expected


async def test_a_defect_that_names_itself_does_not_leak() -> None:
    class Broken(FakeOcr):
        async def read_all(self, *_: Any) -> Any:
            raise AppError("secret") from ValueError("also secret")

    for path in ("/ocr", "/v1/ocr"):
        for error in (errors.Defect("secret"), errors.from_code("nonsense", "secret")):
            reply = await post(Served(ocr=FakeOcr(error=error)), path, content=BODY)
            assert reply.status_code == 500
            assert "secret" not in reply.text


@pytest.mark.parametrize("path", ["/ocr", "/v1/ocr"])
async def test_a_host_header_of_rubbish_changes_nothing(path: str) -> None:
    connection = Connection([b""])
    scope = scope_of(path, headers=[(b"host", b"[")])
    await connection.call(Served().app(), scope)
    assert connection.sent[0]["status"] in (400, 422)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_a_wrong_method_is_told_which_is_right(method: str) -> None:
    async with Served().client() as client:
        for path in ("/ocr", "/v1/ocr"):
            reply = await client.request(method, path)
            told(path, reply)
            assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
