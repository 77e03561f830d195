"""`POST /ocr`: the PaddleX serving contract, for the clients that speak it."""

import json
import mmap
import re
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from pagemill.engine.buffers import HEADER_BYTES, Buffer
from pagemill.engine.task import Context
from pagemill.errors import BadInput, BadOption, NotInstalled, UrlRefused
from pagemill.pipelines.options import OcrOptions
from pagemill.server.answers import json_response
from pagemill.server.body import OVERHEAD_BYTES, decode_base64, spool
from pagemill.server.disconnect import before, while_connected
from pagemill.server.errors import PADDLEX_SUCCESS, log_id
from pagemill.server.openapi import PADDLEX_OCR
from pagemill.server.paddlex_result import ocr_result
from pagemill.server.parts import ServerLimits, ServerParts
from pagemill.server.requests import authorize, context_of
from pagemill.server.urls import fetch

# As it stands in JSON; PHP writes "http:\/\/".
_URL: Final = re.compile(rb'"\s*https?:(\\?/){2}', re.IGNORECASE)
_LONGEST_URL: Final = 8192


class OcrRequest(msgspec.Struct, rename="camel", kw_only=True):
    """The contract's fields; unknown ones are ignored, null means the default."""

    file: msgspec.Raw
    file_type: Literal[0, 1] | None = None
    use_doc_orientation_classify: bool | None = None
    use_doc_unwarping: bool | None = None
    use_textline_orientation: bool | None = None
    text_det_limit_side_len: int | None = None
    text_det_limit_type: Literal["min", "max"] | None = None
    text_det_thresh: float | None = None
    text_det_box_thresh: float | None = None
    text_det_unclip_ratio: float | None = None
    text_rec_score_thresh: float | None = None
    return_word_box: bool | None = None
    visualize: bool | None = None
    log_id: str | None = None


class _LogId(msgspec.Struct, rename="camel"):
    log_id: str | None = None


# Not strict: pydantic, and so PaddleX, takes "true" and 960.0 for true and 960.
_decode: Final = msgspec.json.Decoder(OcrRequest, strict=False).decode
_decode_log_id: Final = msgspec.json.Decoder(_LogId).decode
# What a field may be, from least to most.
_RANGES: Final = (
    ("text_det_limit_side_len", 1, 4000),
    ("text_det_thresh", 0, 1),
    ("text_det_box_thresh", 0, 1),
    ("text_det_unclip_ratio", 0.1, 10),
    ("text_rec_score_thresh", 0, 1),
)


def build_router(parts: ServerParts) -> APIRouter:
    """Return the contract's routes."""
    router = APIRouter(tags=["PaddleX contract"])

    @router.post("/ocr", openapi_extra=PADDLEX_OCR, summary="Read a document")
    async def read(request: Request) -> Response:
        """Read a document as PaddleX's pipeline OCR does: same fields, same envelope."""
        authorize(request, parts.limits.api_keys)
        context = context_of(request, parts.limits)
        with ExitStack() as held:
            admitted = held.enter_context(parts.engine.admit(context, pipeline="ocr"))

            async def read_body() -> tuple[OcrRequest, Buffer]:
                return await _read_body(request, parts.limits, held)

            asked, document = await before(context.deadline_s, read_body)
            options = _options(asked, parts)

            async def work() -> Response:
                return await _answer(request, parts, document, options, admitted)

            return await while_connected(request.receive, work)

    return router


async def _answer(
    request: Request,
    parts: ServerParts,
    document: Buffer,
    options: OcrOptions,
    context: Context,
) -> Response:
    read = await parts.ocr.read_all(document, options, context)
    code, message = PADDLEX_SUCCESS
    body = {
        "logId": log_id(request),
        "result": ocr_result(read, options),
        "errorCode": code,
        "errorMsg": message,
    }
    return json_response(body, headers={"X-Total-Pages": str(read.total_pages)})


async def _read_body(
    request: Request, limits: ServerLimits, held: ExitStack
) -> tuple[OcrRequest, Buffer]:
    """Return the fields and the document; `held` closes what was spooled.

    The body lies in a memfd of ours and is mapped only while it is taken apart, so
    the front's memory does not grow with it.
    """
    with ExitStack() as spooled:
        # A sixteenth more: lines of 76 characters, their ends escaped, or PHP's "\/".
        limit = limits.max_bytes * 4 // 3 * 17 // 16 + OVERHEAD_BYTES
        body = await spool(request, limit, spooled)
        mapped = spooled.enter_context(body.map())
        mapped.madvise(mmap.MADV_SEQUENTIAL)
        view = spooled.enter_context(memoryview(mapped)[HEADER_BYTES:])
        asked = _parsed(request, view)
        raw = spooled.enter_context(memoryview(asked.file))
        asked.file = msgspec.Raw(b"null")  # it must not hold the map

        def forget() -> None:  # pages come back from the memfd if they are read again
            mapped.madvise(mmap.MADV_DONTNEED)

        forget()
        document = await _document(raw, limits, forget)
    held.callback(document.close)
    return asked, document


def _parsed(request: Request, view: memoryview) -> OcrRequest:
    """Return the fields.

    Raises:
        BadInput: no JSON, or fields of wrong types; the message is a JSON list of
            `{type, loc, msg}`, as the contract has it.

    """
    state = request.scope["state"]
    try:
        asked = _decode(view)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            state["log_id"] = _decode_log_id(view).log_id
        text, _, path = str(error).partition(" - at `$")
        fault = {
            "type": "validation" if isinstance(error, msgspec.ValidationError) else "json_invalid",
            "loc": "body" + path.rstrip("`"),
            "msg": text,
        }
        raise BadInput(json.dumps([fault])) from error
    state["log_id"] = asked.log_id
    return asked


async def _document(raw: memoryview, limits: ServerLimits, forget: Callable[[], None]) -> Buffer:
    """Return the document that `file` holds or points to."""
    if bytes(raw[:1]) != b'"':
        fault = {"type": "string_type", "loc": "body.file", "msg": "Expected a string"}
        raise BadInput(json.dumps([fault]))
    if _URL.match(bytes(raw[:100])):
        if len(raw) > _LONGEST_URL:
            message = f"The address in `file` is longer than {_LONGEST_URL} bytes."
            raise BadOption(message)
        return await fetch(_address(raw), limits)
    with raw[1:-1] as text:
        return await decode_base64(text, limits.max_bytes, forget)


def _address(raw: memoryview) -> str:
    try:
        return msgspec.json.decode(raw, type=str).strip()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UrlRefused("`file` is no valid address.") from error


def _options(asked: OcrRequest, parts: ServerParts) -> OcrOptions:
    """Return what the fields choose.

    Raises:
        BadOption: a number is out of range.
        NotInstalled: a model is asked for that this server does not have.

    """
    for name, least, most in _RANGES:
        value = getattr(asked, name)
        if value is not None and not least <= value <= most:
            camel = msgspec.structs.fields(OcrRequest)
            wire = next(field.encode_name for field in camel if field.name == name)
            message = f"`{wire}` is {value:g}; it must be from {least:g} to {most:g}."
            raise BadOption(message)
    if asked.use_doc_unwarping:
        raise NotInstalled("useDocUnwarping needs a model that is not installed; leave it out.")
    chosen: dict[str, Any] = {
        "det_side_px": asked.text_det_limit_side_len,
        "det_side_type": asked.text_det_limit_type,
        "det_threshold": asked.text_det_thresh,
        "det_box_threshold": asked.text_det_box_thresh,
        "det_unclip_ratio": asked.text_det_unclip_ratio,
        "min_confidence": asked.text_rec_score_thresh or 0.0,
        "words": asked.return_word_box,
        "line_angle": asked.use_textline_orientation,
        "orientation": "model" if asked.use_doc_orientation_classify else None,
        "page_limit": parts.limits.paddlex_max_pages,
        "pictures": parts.limits.paddlex_visualize if asked.visualize is None else asked.visualize,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    return replace(parts.options, **given)
