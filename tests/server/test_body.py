"""Bodies: base64 in every dress, forms, limits; and nothing of them is left behind."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagemill.errors import BadBase64, EmptyBody, TooManyBytes
from pagemill.server import body
from pagemill.server.parts import ServerLimits
from tests.descriptors import open_descriptors
from tests.server.fakes import Served

pytestmark = pytest.mark.anyio
MIB = 1 << 20


async def post(served: Served, path: str, **request: Any) -> httpx.Response:
    async with served.client() as client:
        return await client.post(path, **request)


async def decoded(text: bytes, limit: int = 100 * MIB) -> bytes:
    with await body.decode_base64(memoryview(text), limit) as buffer:
        return buffer.read()


# --- base64 ---


@pytest.mark.parametrize("size", [MIB * 3 // 4 + extra for extra in range(-4, 5)])
@pytest.mark.parametrize("shift", range(4))
async def test_documents_around_a_chunk_border(size: int, shift: int) -> None:
    content = bytes(range(251)) * (size // 251 + 1)
    text = b" " * shift + base64.b64encode(content[:size])
    assert await decoded(text) == content[:size]
    assert await decoded(text.rstrip(b"=")) == content[:size]
    assert await decoded(text + b"\n" * MIB) == content[:size]


@pytest.mark.parametrize("escape", [rb"\/", rb"\n", rb"\r\n", rb"\u002f", rb"\u002F"])
@pytest.mark.parametrize("shift", range(-7, 2))
async def test_an_escape_across_a_chunk_border(escape: bytes, shift: int) -> None:
    plain = json.loads(b'"' + escape + b'"').strip().encode()
    head, tail = b"A" * (MIB + shift), b"A" * (8 + (-(MIB + shift + len(plain))) % 4)
    expected = base64.b64decode(head + plain + tail)
    assert await decoded(head + escape + tail) == expected


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(content=st.binary(min_size=1, max_size=60), chunk=st.integers(7, 24), data=st.data())
def test_any_document_in_any_dress(content: bytes, chunk: int, data: st.DataObject) -> None:
    text = base64.b64encode(content).decode()
    if data.draw(st.booleans()):
        text = text.rstrip("=")
    if data.draw(st.booleans()):
        text = text.replace("+", "-").replace("/", "_")
    for _ in range(data.draw(st.integers(0, 5))):
        place = data.draw(st.integers(0, len(text)))
        text = text[:place] + data.draw(st.sampled_from(["\n", "\r\n", " ", "\t"])) + text[place:]
    raw = json.dumps(text).replace("/", "\\/").encode()[1:-1]
    original, body.CHUNK_BYTES = body.CHUNK_BYTES, chunk  # type: ignore[misc]
    try:
        assert anyio.run(decoded, raw) == content
    finally:
        body.CHUNK_BYTES = original  # type: ignore[misc]


@pytest.mark.parametrize(
    "text",
    [
        b"not base64!", b"A", b"AAAAA", b"=", b"====", b"QQ==QUJD", b"Q=UJ",
        b"\xff\xfe\xfd", b"data:,hello", b"data:image/png,QUJD", b"QU\\\\JD", b"QU\\", b"QU\\x",
        b"\\ud800", b"\\u00e9", b"QU\\u0000JD", "é".encode(), b"QU\x00JD",
        b"A" * MIB + b"=" + b"A" * 7, b"A" * (MIB + 1), b"data:;base64,!",
    ],
)  # fmt: skip
async def test_what_is_no_base64_is_refused(text: bytes) -> None:
    before = open_descriptors()
    with pytest.raises(BadBase64):
        await decoded(text)
    assert open_descriptors() == before


@pytest.mark.parametrize("text", [b"", b" \n", b"\\n\\r", b"data:image/png;base64,"])
async def test_nothing_is_an_empty_body(text: bytes) -> None:
    before = open_descriptors()
    with pytest.raises(EmptyBody):
        await decoded(text)
    assert open_descriptors() == before


async def test_a_document_of_just_the_limit_passes_and_one_byte_more_does_not() -> None:
    text = base64.b64encode(b"x" * 3000)
    assert len(await decoded(text, 3000)) == 3000
    with pytest.raises(TooManyBytes):
        await decoded(text, 2999)


async def test_a_refused_body_leaves_no_descriptor() -> None:
    served = Served(limits=ServerLimits(max_bytes=3000))
    before = open_descriptors()
    for text in ("QUJD", "!", "", base64.b64encode(b"x" * 4000).decode(), "http://x/", "\ud800"):
        await post(served, "/ocr", content=json.dumps({"file": text}))
    assert open_descriptors() == before


# --- limits ---


@pytest.mark.parametrize("path", ["/ocr", "/v1/ocr"])
@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "gzip, identity"])
async def test_compressed_bodies_are_refused(path: str, encoding: str) -> None:
    served = Served()
    reply = await post(served, path, content=b"x", headers={"content-encoding": encoding})
    assert reply.status_code in (415, 422)
    assert served.ocr.contents == []


@pytest.mark.parametrize("length", ["\u00b2", "9" * 5000, "-1", "x"])
async def test_a_content_length_of_rubbish_is_no_fault_of_ours(length: str) -> None:
    headers = [(b"content-length", length.encode("latin-1"))]
    reply = await post(Served(), "/v1/ocr", content=b"x", headers=headers)
    assert reply.status_code in (200, 413)


async def test_the_front_never_reads_on_after_the_limit() -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 1000

    boundary = {"content-type": "multipart/form-data; boundary=b"}
    served = Served(limits=ServerLimits(max_bytes=10_000))
    before = open_descriptors()
    for path, headers in (("/ocr", {}), ("/v1/ocr", {}), ("/v1/ocr", boundary)):
        taken = 0
        reply = await post(served, path, content=endless(), headers=headers)
        assert reply.status_code in (413, 422)
        assert taken < 100
    assert open_descriptors() == before


# --- forms ---


def form(*parts: tuple[str, bytes], boundary: str = "b", end: bool = True) -> dict[str, Any]:
    pieces = [
        b"--" + boundary.encode() + b"\r\nContent-Disposition: form-data; " + name.encode()
        + b"\r\n\r\n" + content + b"\r\n"
        for name, content in parts
    ]  # fmt: skip
    closing = b"--" + boundary.encode() + b"--\r\n" if end else b""
    headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
    return {"content": b"".join(pieces) + closing, "headers": headers}


FILE = ('name="file"; filename="a.png"', b"good")


async def test_a_form_in_any_case_with_its_options() -> None:
    served = Served()
    request = form(FILE, ('name="words"', b"true"))
    request["headers"]["content-type"] = "Multipart/Form-Data; boundary=b"
    assert (await post(served, "/v1/ocr", **request)).status_code == 200
    assert served.ocr.contents == [b"good"]
    assert served.ocr.options[0].words


def typed(content: bytes, parameters: str) -> dict[str, Any]:
    return {"content": content, "headers": {"content-type": f"multipart/form-data{parameters}"}}


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (typed(b"garbage", "; boundary=b"), "bad_input"),
        (typed(b"--b\r\nrubbish\r\n\r\nx", "; boundary=b"), "bad_input"),
        (typed(b"x", ""), "bad_input"),
        (typed(b"x", "; boundary="), "bad_input"),
        (typed(b"x", "; boundary=" + "b" * 3000), "bad_input"),
        (form(('filename="a.png"', b"x")), "bad_input"),
        (form(FILE, end=False), "bad_input"),
        (form(('name="file"; filename="a.png"', b"")), "empty_body"),
        (form(('name="file"; filename=""', b"")), "empty_body"),
        (form(('name="file"', b"text")), "empty_body"),
        (form(FILE, ('name="words"', b"true"), ('name="words"', b"false")), "bad_option"),
        (form(FILE, ('name="words"', b"maybe")), "bad_option"),
        (form(FILE, ('name="nonsense"', b"1")), "bad_option"),
        (form(FILE, ('name="password"', b"x" * 70_000)), "bad_input"),
        (form(FILE, *[(f'name="f{i}"', b"x") for i in range(200)]), "bad_input"),
        (form(*[FILE] * 200), "bad_input"),
    ],
)  # fmt: skip
async def test_a_bad_form_is_refused_with_a_reason(request_: dict[str, Any], code: str) -> None:
    before = open_descriptors()
    reply = await post(Served(), "/v1/ocr", **request_)
    assert 400 <= reply.status_code < 500, reply.text
    assert reply.json()["error"]["code"] == code
    assert open_descriptors() == before


async def test_a_form_may_end_without_a_line_break() -> None:
    request = form(FILE)
    request["content"] = request["content"].rstrip()
    assert (await post(Served(), "/v1/ocr", **request)).status_code == 200


async def test_an_option_said_twice_alike_is_fine_but_not_in_the_address_too() -> None:
    request = form(FILE, ('name="words"', b"true"), ('name="words"', b"true"))
    assert (await post(Served(), "/v1/ocr", **request)).status_code == 200
    reply = await post(Served(), "/v1/ocr?words=true", **request)
    assert reply.json()["error"]["code"] == "bad_option"


async def test_an_empty_file_among_others_fails_alone() -> None:
    request = form(FILE, ('name="file"; filename="b.png"', b""), FILE)
    documents = (await post(Served(), "/v1/ocr", **request)).json()["documents"]
    assert [each.get("error", {}).get("code") for each in documents] == [None, "empty_body", None]


async def test_a_large_file_of_a_form_arrives_whole_and_leaves_nothing() -> None:
    content = bytes(range(256)) * 20_000
    served = Served()
    before = open_descriptors()
    assert (await post(served, "/v1/ocr", files={"file": content})).status_code == 200
    assert served.ocr.contents == [content]
    assert open_descriptors() == before


async def test_a_large_form_cut_by_the_limit_leaves_nothing() -> None:
    served = Served(limits=ServerLimits(max_bytes=3 * MIB))

    async def chunks() -> AsyncIterator[bytes]:
        yield form(FILE)["content"][:-10]
        for _ in range(5):
            yield b"x" * MIB

    before = open_descriptors()
    reply = await post(served, "/v1/ocr", content=chunks(), headers=form()["headers"])
    assert reply.status_code == 413
    assert open_descriptors() == before


async def test_names_of_files_are_only_told_back_and_never_long() -> None:
    name = "../" * 200
    request = form((f'name="file"; filename="{name}"', b"good"), FILE)
    documents = (await post(Served(), "/v1/ocr", **request)).json()["documents"]
    assert [each["name"] for each in documents] == [name[:255], "a.png"]
