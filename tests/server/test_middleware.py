"""What every request passes: ids, keys, counts, log lines, the last catch."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from pagemill.server.parts import ServerLimits
from tests.server.fakes import FakeOcr, Served

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("known", ["mine", "a" * 128, 'x"y\\', "0", "~!@#$%^&*()"])
@pytest.mark.parametrize("path", ["/health", "/nope", "/v1/ocr", "/metrics"])
async def test_an_id_that_came_goes_out_again(known: str, path: str) -> None:
    async with Served().client() as client:
        reply = await client.get(path, headers={"x-request-id": known})
    assert reply.headers.get_list("x-request-id") == [known]


@pytest.mark.parametrize(
    "bad", [b"", b" ", b"a b", b"a\tb", b"a" * 129, b"\xe9", b"\x7f", b"a\x00"]
)
async def test_a_bad_id_is_replaced(bad: bytes) -> None:
    async with Served().client() as client:
        replies = [
            await client.post("/v1/ocr", content=b"x", headers=[(b"x-request-id", bad)])
            for _ in range(2)
        ]
    ids = [reply.headers["x-request-id"] for reply in replies]
    assert all(len(each) == 32 and each.isalnum() for each in ids)
    assert ids[0] != ids[1]
    assert [reply.json()["request_id"] for reply in replies] == ids


KEYS = Served(limits=ServerLimits(api_keys=("one", "zwölf")))
GOOD: list[dict[str, str]] = [
    {"authorization": "Bearer one"}, {"authorization": "bearer one"},
    {"authorization": "TOKEN one"}, {"authorization": "Bearer   one "},
    {"x-api-key": "one"}, {"authorization": "Basic eDp5", "x-api-key": "one"},
]  # fmt: skip
BAD: list[dict[str, str]] = [
    {}, {"authorization": "one"}, {"authorization": "Bearer"}, {"authorization": "Bearer two"},
    {"authorization": "Basic one"}, {"x-api-key": ""}, {"x-api-key": "on"}, {"x-api-key": "one1"},
    {"authorization": "Bearer two", "x-api-key": "one"}, {"cookie": "one"},
]  # fmt: skip


@pytest.mark.parametrize("path", ["/ocr", "/v1/ocr"])
async def test_keys(path: str) -> None:
    async with KEYS.client() as client:
        for headers in GOOD:
            reply = await client.post(path, content=b'{"file":"QUJD"}', headers=headers)
            assert reply.status_code == 200, headers
        for headers in BAD:
            reply = await client.post(path, content=b'{"file":"QUJD"}', headers=headers)
            assert reply.status_code == 401, headers
            assert reply.headers["www-authenticate"] == "Bearer"
        for header in (b"zw\xf6lf", "zwölf".encode(), b"\xff\xfe"):  # never a 500
            reply = await client.post(path, content=b"", headers=[(b"x-api-key", header)])
            assert reply.status_code in (400, 401, 422)


async def test_an_empty_key_in_the_settings_opens_nothing() -> None:
    served = Served(limits=ServerLimits(api_keys=("",)))
    async with served.client() as client:
        for headers in ({}, {"x-api-key": ""}, {"authorization": "Bearer "}):
            assert (await client.post("/v1/ocr", content=b"x", headers=headers)).status_code == 401


async def test_without_keys_any_header_is_fine_and_health_never_asks() -> None:
    async with Served().client() as client:
        headers = {"authorization": "Bearer whatever"}
        assert (await client.post("/v1/ocr", content=b"x", headers=headers)).status_code == 200
    async with KEYS.client() as client:
        for path in ("/health", "/health/live", "/health/ready", "/metrics"):
            assert (await client.get(path)).status_code == 200


async def test_one_log_line_a_request_and_none_for_healthy_probes() -> None:
    async with Served().client() as client:
        with capture_logs() as logs:
            for path in ("/health", "/health/live", "/health/ready", "/metrics"):
                await client.get(path)
            assert logs == []
            await client.post("/v1/ocr", content=b"secret", headers={"x-request-id": "mine"})
    (entry,) = logs
    assert {**entry, "seconds": 0.0} == {
        "event": "request", "log_level": "info", "method": "POST", "path": "/v1/ocr",
        "status": 200, "seconds": 0.0, "request_id": "mine",
    }  # fmt: skip


async def test_a_fault_of_ours_is_logged_with_its_trace() -> None:
    class Broken(FakeOcr):
        async def read_all(self, *_: Any) -> Any:
            raise RuntimeError("secret")

    with capture_logs() as logs:
        async with Served(ocr=Broken()).client() as client:
            reply = await client.post("/v1/ocr", content=b"x")
    failed = [entry for entry in logs if entry["event"] == "request_failed"]
    assert [entry["request_id"] for entry in failed] == [reply.headers["x-request-id"]]
    assert failed[0]["exc_info"]


async def test_other_protocols_pass_by() -> None:
    app = Served().app()
    sent: list[Any] = []
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
