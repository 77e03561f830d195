"""`POST /ocr`, beside what PaddleX's own server answers."""

import base64
import json
import random
from dataclasses import replace
from typing import Any

import httpx
import pytest

from pagemill.documents.values import Kind, Line, Page, Pictures, Word
from pagemill.pipelines.options import OcrOptions
from pagemill.server.paddlex_result import data_info, pruned_result
from pagemill.server.parts import ServerLimits
from tests.descriptors import open_descriptors
from tests.server.fakes import LINE, SQUARE, FakeOcr, Served

pytestmark = pytest.mark.anyio


async def post(served: Served, body: Any, **request: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with served.client() as client:
        return await client.post("/ocr", content=content, **request)


def asked(**fields: Any) -> dict[str, Any]:
    return {"file": base64.b64encode(b"document").decode(), **fields}


GOLDEN = (
    b'{"logId":"mine","result":{"ocrResults":[{"prunedResult":{'
    b'"model_settings":{"use_doc_preprocessor":false,"use_textline_orientation":true},'
    b'"dt_polys":[[[1,2],[30,2],[30,12],[1,12]],[[1,2],[30,2],[30,12],[1,12]]],'
    b'"text_det_params":{"limit_side_len":960,"limit_type":"max","thresh":0.2,'
    b'"max_side_limit":4000,"box_thresh":0.4,"unclip_ratio":2.0},'
    b'"text_type":"general","textline_orientation_angles":[-1,-1],'
    b'"text_rec_score_thresh":0.1,"return_word_box":false,'
    b'"rec_texts":["TOTAL 10.40"],"rec_scores":[0.98765],'
    b'"rec_polys":[[[1,2],[30,2],[30,12],[1,12]]],"rec_boxes":[[1,2,30,12]]}}],'
    b'"dataInfo":{"width":40,"height":20,"type":"image"}},"errorCode":0,"errorMsg":"Success"}'
)


async def test_the_bytes_of_an_answer() -> None:
    fields = asked(
        logId="mine", useTextlineOrientation=True, textDetLimitSideLen=960,
        textDetLimitType="max", textDetThresh=0.2, textDetBoxThresh=0.4,
        textDetUnclipRatio=2.0, textRecScoreThresh=0.1,
    )  # fmt: skip
    reply = await post(Served(), fields)
    assert reply.content == GOLDEN
    assert reply.headers["content-type"] == "application/json"


async def test_keys_stand_in_the_order_of_the_contract() -> None:
    word = Word(text="TOTAL", confidence=0.9, polygon=SQUARE)
    line = replace(LINE, words=(word,))
    page = Page(index=0, width=40, height=20, turn=0, lines=(line,), regions=(SQUARE,))
    result = pruned_result(page, OcrOptions(words=True))
    assert list(result) == [
        "model_settings", "dt_polys", "text_det_params", "text_type",
        "textline_orientation_angles", "text_rec_score_thresh", "return_word_box", "rec_texts",
        "rec_scores", "rec_polys", "rec_boxes", "text_word", "text_word_boxes",
    ]  # fmt: skip
    assert result["text_word"] == [["TOTAL"]]
    assert result["text_word_boxes"] == [[[1, 2, 30, 12]]]


async def test_a_blank_page_has_empty_lists_and_no_angles() -> None:
    page = Page(index=0, width=40, height=20, turn=0, lines=(), regions=())
    result = pruned_result(page, OcrOptions())
    assert "textline_orientation_angles" not in result
    assert [result[key] for key in ("dt_polys", "rec_texts", "rec_scores", "rec_polys")] == [[]] * 4
    assert result["rec_boxes"] == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("image", '{"width":40,"height":20,"type":"image"}'),
        ("pdf", '{"numPages":2,"pages":[{"width":40,"height":20},{"width":40,"height":20}],"type":"pdf"}'),
        ("tiff", '{"numPages":2,"pages":[{"width":40,"height":20},{"width":40,"height":20}],"type":"tiff"}'),
    ],
)  # fmt: skip
async def test_data_info_by_kind(kind: Kind, expected: str) -> None:
    served = Served(ocr=FakeOcr(kind=kind, pages=1 if kind == "image" else 2))
    reply = await post(served, asked())
    assert b'"dataInfo":' + expected.encode() + b"}," in reply.content


async def test_an_image_without_a_page_is_no_fault() -> None:
    reply = await post(Served(ocr=FakeOcr(pages=0)), asked())
    assert reply.json()["result"] == {"ocrResults": [], "dataInfo": {"type": "image"}}
    assert data_info is not None


@pytest.mark.parametrize("field", ["logId", "logID", "x"])
async def test_the_log_id_is_taken_over_or_made(field: str) -> None:
    for value in ("mine", "", None):
        reply = await post(Served(), asked(**{field: value}), headers={"x-request-id": "of-http"})
        expected = "mine" if field == "logId" and value else "of-http"
        assert reply.json()["logId"] == expected
    assert len((await post(Served(), asked())).json()["logId"]) >= 16


@pytest.mark.parametrize(
    "body",
    [b'{"logId":"mine","fileType":9,"file":""}', b'{"logId":"mine"}', b'{"logId":"mine","file":1}'],
)
async def test_a_refusal_has_the_log_id_too(body: bytes) -> None:
    reply = await post(Served(), body)
    assert (reply.status_code, reply.json()["logId"]) == (422, "mine")


@pytest.mark.parametrize("name", [
    "fileType", "useDocOrientationClassify", "useDocUnwarping", "useTextlineOrientation",
    "textDetLimitSideLen", "textDetLimitType", "textDetThresh", "textDetBoxThresh",
    "textDetUnclipRatio", "textRecScoreThresh", "returnWordBox", "visualize", "logId",
])  # fmt: skip
async def test_null_is_the_default_and_rubbish_is_named(name: str) -> None:
    served = Served()
    assert (await post(served, asked(**{name: None}))).status_code == 200
    assert (await post(served, asked())).status_code == 200
    assert served.ocr.options[0] == served.ocr.options[1]
    reply = await post(Served(), asked(**{name: {"a": []}}))
    assert reply.status_code == 422
    (fault,) = json.loads(reply.json()["errorMsg"])
    assert list(fault) == ["type", "loc", "msg"]
    assert fault["loc"] == f"body.{name}"


async def test_unknown_fields_are_ignored_whatever_they_hold() -> None:
    reply = await post(Served(), asked(algorithm="x", nested={"a": [1, {"b": None}]}))
    assert reply.status_code == 200


async def test_values_as_pydantic_takes_them() -> None:
    served = Served()
    fields = asked(returnWordBox="true", textDetLimitSideLen=960.0, textDetThresh="0.2")
    assert (await post(served, fields)).status_code == 200
    (options,) = served.ocr.options
    assert (options.words, options.det_side_px, options.det_threshold) == (True, 960, 0.2)


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({"returnWordBox": True}, {"words": True}),
        ({"useTextlineOrientation": True}, {"line_angle": True}),
        ({"useDocOrientationClassify": True}, {"orientation": "model"}),
        ({"useDocOrientationClassify": False}, {}),
        ({"useDocUnwarping": False}, {}),
        ({"textRecScoreThresh": 0.7}, {"min_confidence": 0.7}),
        ({"textDetLimitSideLen": 64, "textDetLimitType": "min"}, {"det_side_px": 64, "det_side_type": "min"}),
        ({"visualize": True}, {"pictures": True}),
        ({"visualize": False}, {}),
    ],
)  # fmt: skip
async def test_fields_become_options(fields: dict[str, Any], changed: dict[str, Any]) -> None:
    served = Served()
    assert (await post(served, asked(**fields))).status_code == 200
    plain = OcrOptions(min_confidence=0.0, page_limit=10)
    assert served.ocr.options == [replace(plain, **changed)]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("textDetLimitSideLen", (0, -1, 4001, 10**30)),
        ("textDetLimitType", ("mean", "", 5)),
        ("textDetThresh", (-0.1, 1.1, "x")),
        ("textDetBoxThresh", (-0.1, 1.1, "nan")),
        ("textDetUnclipRatio", (0, 11, "inf")),
        ("textRecScoreThresh", (-0.1, 1.1, "nan")),
        ("fileType", (2, -1, "pdf")),
        ("useDocUnwarping", (True,)),
        ("file", (None, 1, [], {})),
    ],
)
async def test_values_out_of_range(field: str, values: tuple[Any, ...]) -> None:
    for value in values:
        served = Served()
        reply = await post(served, asked(**{field: value}))
        assert (reply.status_code, served.ocr.contents) == (422, []), value
        assert field in reply.json()["errorMsg"]


async def test_pictures_only_when_asked_for_or_by_setting() -> None:
    class Draws(FakeOcr):
        async def _pages(self) -> Any:
            async for page in super()._pages():
                drawn = Pictures(outlined=b"outlined", plain=b"plain")
                yield replace(page, pictures=drawn if self.options[-1].pictures else None)

    for setting, given, drawn in (
        (False, None, False), (True, None, True), (True, False, False), (False, True, True),
    ):  # fmt: skip
        served = Served(ocr=Draws(), limits=ServerLimits(paddlex_visualize=setting))
        (page,) = (await post(served, asked(visualize=given))).json()["result"]["ocrResults"]
        assert list(page) == ["prunedResult", *(["ocrImage", "inputImage"] if drawn else [])]
        if drawn:
            assert base64.b64decode(page["inputImage"]) == b"plain"


@pytest.mark.parametrize("limit", [None, 3])
async def test_the_page_cap_is_a_setting(limit: int | None) -> None:
    served = Served(ocr=FakeOcr(kind="pdf", pages=4), limits=ServerLimits(paddlex_max_pages=limit))
    reply = await post(served, asked())
    assert served.ocr.options[0].page_limit == limit
    assert reply.headers["x-total-pages"] == "4"


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b"null", b"1", b'"x"', b"[1]", b"{}", b'{"file"}', b'{"file":"QUJD"',
        b'{"file":"QUJD"}{}', b'{"file":"QUJD",}', b"{'file':'QUJD'}", b"\xff\xfe{", b"\xef\xbb\xbf{}",
        b'{"file":"QUJD","textDetThresh":NaN}', b'{"file":"QUJD","textDetThresh":Infinity}',
        b'{"file":"QUJD","textDetThresh":1e999}', b'{"file":"QUJD","textDetLimitSideLen":1e400}',
        b'{"file":"QUJD","logId":"\xff"}', b'{"file":"QUJD","logId":"\\ud800"}',
        b'{"file":"\xff"}', b'{"file":"\\ud800"}', b'{"file":"QU\nJD"}',
        b'{"file":"QUJD","x":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"file":' + b'{"file":' * 100_000, b'{"file":"http://\xff/"}',
        b'{"file":"http:\\/\\/127.0.0.1\\/x"}', b'{"file":"http:\\/\\/\\ud800"}',
        b'{"file":"http://' + b"a" * 9000 + b'"}', b'{"file":"HTTPS://127.0.0.1"}',
        b'{"file":" http://127.0.0.1"}', b'{"file":"ftp://127.0.0.1/x"}', b'{"file":"#"}',
        b'{"file":"file:///etc/passwd"}',
    ],
)  # fmt: skip
async def test_a_body_of_rubbish(body: bytes) -> None:
    served = Served()
    before = open_descriptors()
    reply = await post(served, body)
    assert (reply.status_code, served.ocr.contents) == (422, [])
    assert list(reply.json()) == ["logId", "errorCode", "errorMsg"]
    assert open_descriptors() == before


async def test_an_address_with_escaped_slashes_is_an_address() -> None:
    reply = await post(Served(), b'{"file":"http:\\/\\/example.com\\/x"}')
    assert "fetch.allow_urls" in reply.json()["errorMsg"]


async def test_of_a_key_given_twice_the_last_counts() -> None:
    served = Served()
    body = b'{"file":"QUJD","logId":"a","file":"WFla","logId":"b"}'
    reply = await post(served, body)
    assert (served.ocr.contents, reply.json()["logId"]) == ([b"XYZ"], "b")


async def test_the_type_of_the_body_is_not_asked() -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=x"):
        reply = await post(Served(), asked(), headers={"content-type": kind})
        assert reply.status_code == 200


async def test_text_beyond_ascii_goes_out_as_it_is() -> None:
    line = Line(text="合計 ¥\u2028", confidence=1.0, polygon=SQUARE)
    page = Page(index=0, width=1, height=1, turn=0, lines=(line,), regions=())
    assert pruned_result(page, OcrOptions())["rec_texts"] == ["合計 ¥\u2028"]


@pytest.mark.parametrize(
    ("plain", "escaped"), [(b"\n", rb"\r\n"), (b"\n", rb"\n"), (b"\n", b""), (b"/", rb"\/")]
)
async def test_a_document_of_just_the_limit_is_read_in_any_dress(
    plain: bytes, escaped: bytes
) -> None:
    content = random.Random(0).randbytes(3_000_000)
    lines = base64.encodebytes(content) if plain == b"\n" else base64.b64encode(content)
    served = Served(limits=ServerLimits(max_bytes=len(content)))
    reply = await post(served, b'{"file":"' + lines.replace(plain, escaped) + b'"}')
    assert reply.status_code == 200
    assert served.ocr.contents == [content]
