"""Clients that leave, and bodies that come too late."""

import base64
import json
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from pagemill.errors import AppError, BadInput, DeadlineExceeded
from pagemill.server.disconnect import ClientGone, before, while_connected
from pagemill.server.parts import ServerLimits
from tests.descriptors import open_descriptors
from tests.server.driving import Connection, scope_of
from tests.server.fakes import FakeOcr, Served

pytestmark = pytest.mark.anyio
BODY = json.dumps({"file": base64.b64encode(b"document").decode()}).encode()
ROUTES = [("/ocr", b"*/*"), ("/v1/ocr", b"*/*"), ("/v1/ocr", b"application/x-ndjson")]


@pytest.mark.parametrize(("path", "accept"), ROUTES)
async def test_work_ends_with_its_client_and_leaves_nothing(path: str, accept: bytes) -> None:
    served = Served(ocr=FakeOcr(hangs=True))
    app, connection = served.app(), Connection([BODY])
    before_it = open_descriptors()
    with capture_logs() as logs:
        async with anyio.create_task_group() as group:
            group.start_soon(connection.call, app, scope_of(path, headers=[(b"accept", accept)]))
            await anyio.wait_all_tasks_blocked()
            assert served.engine.admitted
            connection.left.set()
    assert served.ocr.cancelled
    assert [entry for entry in logs if entry["log_level"] == "error"] == []
    assert [message.get("status", 499) for message in connection.sent][:1] in ([], [499])
    assert open_descriptors() == before_it


@pytest.mark.parametrize(("path", "accept"), ROUTES)
async def test_a_client_that_leaves_within_its_body(path: str, accept: bytes) -> None:
    served = Served()
    app, connection = served.app(), Connection([BODY[:5]], whole=False)
    connection.left.set()
    before_it = open_descriptors()
    with capture_logs() as logs:
        await connection.call(app, scope_of(path, headers=[(b"accept", accept)]))
    assert served.ocr.contents == []
    assert [entry for entry in logs if entry["log_level"] == "error"] == []
    assert open_descriptors() == before_it


@pytest.mark.parametrize("headers", [[], [(b"content-type", b"multipart/form-data; boundary=b")]])
@pytest.mark.parametrize("path", ["/ocr", "/v1/ocr"])
async def test_a_body_that_trickles_past_its_deadline(path: str, headers: Any) -> None:
    served = Served(limits=ServerLimits(default_timeout_s=0.05))
    connection = Connection([b"--b\r\n"], whole=False)
    app = served.app()
    before_it = open_descriptors()
    await connection.call(app, scope_of(path, headers=headers))
    assert connection.sent[0]["status"] == 504
    assert served.ocr.contents == []
    assert open_descriptors() == before_it


async def test_an_error_and_a_result_pass_through() -> None:
    async def never() -> Any:
        await anyio.sleep_forever()

    async def result() -> int:
        return 5

    async def error() -> int:
        raise BadInput("no")

    async def defect() -> int:
        raise KeyError("secret")

    assert await while_connected(never, result) == 5
    with pytest.raises(BadInput, match="no"):
        await while_connected(never, error)
    with pytest.raises(ExceptionGroup):
        await while_connected(never, defect)


async def test_a_client_that_left_already() -> None:
    async def gone() -> Any:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientGone):
        await while_connected(gone, anyio.sleep_forever)


async def test_before_ends_what_is_late_and_nothing_else() -> None:
    async def error() -> int:
        raise BadInput("no")

    with pytest.raises(DeadlineExceeded):
        await before(anyio.current_time(), anyio.sleep_forever)
    with pytest.raises(AppError, match="no"):
        await before(anyio.current_time() + 5, error)
    with anyio.CancelScope() as outer:
        outer.cancel()
        await before(anyio.current_time() + 5, anyio.sleep_forever)
    assert outer.cancelled_caught
