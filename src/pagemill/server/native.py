"""`POST /v1/ocr`: files or a raw body in; JSON, text, Markdown or a stream of pages out."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pagemill.documents import render
from pagemill.documents.values import Document
from pagemill.engine.task import Context
from pagemill.errors import AppError, BadInput, BadOption, NotAcceptable
from pagemill.pipelines.options import OcrOptions
from pagemill.server.answers import json_line, json_response
from pagemill.server.body import Upload, read_form, spool
from pagemill.server.disconnect import ClientGone, before, while_connected
from pagemill.server.errors import error_record, public_message, request_id
from pagemill.server.openapi import NATIVE_OCR
from pagemill.server.parts import ServerParts
from pagemill.server.requests import authorize, context_of, options_of

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
TEXT: Final = "text/plain"
MARKDOWN: Final = "text/markdown"
_TYPES: Final = (JSON, TEXT, MARKDOWN, NDJSON)
_LAST_LINE_S: Final = 5.0  # for the line that tells of a missed deadline


def build_router(parts: ServerParts) -> APIRouter:
    """Return the native routes."""
    router = APIRouter(tags=["pagemill"])

    @router.post("/v1/ocr", openapi_extra=NATIVE_OCR, summary="Read documents")
    async def read(request: Request) -> Response:
        """Read the text of images and PDFs, with the place of every line."""
        authorize(request, parts.limits.api_keys)
        return _OcrAnswer(request, parts, _accepted(request.headers.get("accept", "")))

    return router


def _accepted(header: str) -> str:
    """Return the type to answer with: the client's favourite among ours.

    Raises:
        NotAcceptable: it accepts none of them.

    """
    ranges: dict[str, tuple[float, int]] = {}
    for place, part in enumerate((header.strip() or "*/*").split(",")):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        ranges.setdefault(name.lower(), (_quality(parameters), -place))
    ranked = []
    for ours in _TYPES:
        names = (ours, ours.split("/")[0] + "/*", "*/*")
        exact = next((name for name in names if name in ranges), None)  # RFC 9110, 12.5.1
        if exact is not None and ranges[exact][0] > 0:
            quality, place = ranges[exact]
            ranked.append((quality, -names.index(exact), place, -_TYPES.index(ours)))
    if not ranked:
        message = f"Accept names none of {', '.join(_TYPES)}."
        raise NotAcceptable(message)
    return _TYPES[-max(ranked)[-1]]


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request that was read whole."""

    uploads: Sequence[Upload]
    options: OcrOptions
    context: Context


class _OcrAnswer(Response):
    """Does the work while it answers, so that pages can stream as they are ready.

    Everything happens in one task: admission, body, reading, answer.
    """

    def __init__(self, request: Request, parts: ServerParts, accepted: str) -> None:
        self._request = request
        self._parts = parts
        self._accepted = accepted
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = self._parts
        context = context_of(self._request, parts.limits)
        with ExitStack() as held:
            admitted = held.enter_context(parts.engine.admit(context, pipeline="ocr"))
            asked = await before(context.deadline_s, lambda: self._read(admitted, held))
            if self._accepted == NDJSON:
                with suppress(ClientGone):  # the answer may have begun
                    await while_connected(receive, lambda: self._stream(asked, send))
                return
            response = await while_connected(receive, lambda: self._whole(asked))
            await response(scope, receive, send)

    async def _read(self, context: Context, held: ExitStack) -> _Asked:
        request, limit = self._request, self._parts.limits.max_bytes
        fields = _unique(request.query_params.multi_items())
        if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            form = await read_form(request, limit, held)
            uploads: Sequence[Upload] = form.files
            both = fields.keys() & form.fields.keys()
            if both:
                message = f"`{min(both)}` is given in the address and in the form."
                raise BadOption(message)
            fields |= form.fields
        else:
            options_of(fields, self._parts.options)  # refused before the body is read
            uploads = [Upload(name="body", content=await spool(request, limit, held))]
        options = options_of(fields, self._parts.options)
        return _Asked(uploads=uploads, options=options, context=context)

    async def _whole(self, asked: _Asked) -> Response:
        identity = request_id(self._request)
        if len(asked.uploads) > 1:
            return await self._several(asked, identity)
        document = await self._document(asked, asked.uploads[0])
        if self._accepted == JSON:
            return json_response({"request_id": identity, **render.document_record(document)})
        return Response(_RENDER[self._accepted](document), media_type=self._accepted)

    async def _several(self, asked: _Asked, identity: str) -> Response:
        """Answer several files; one that cannot be read fails alone."""
        if self._accepted != JSON:
            message = f"Several files are answered as {JSON} only; send one, or accept that."
            raise NotAcceptable(message)
        records: list[dict[str, Any]] = []
        for upload in asked.uploads:
            try:
                document = await self._document(asked, upload)
            except BadInput as error:
                told = error_record(error.code, public_message(error), identity)
                records.append({"name": upload.name, "error": told})
            else:
                records.append({"name": upload.name, **render.document_record(document)})
        return json_response({"request_id": identity, "documents": records})

    async def _document(self, asked: _Asked, upload: Upload) -> Document:
        return await self._parts.ocr.read_all(upload.content, asked.options, asked.context)

    async def _stream(self, asked: _Asked, send: Send) -> None:
        # A client that takes nothing would hold its request for ever: the deadline is
        # of the engine's work, and a little later the connection ends as well.
        with anyio.CancelScope(deadline=asked.context.deadline_s + _LAST_LINE_S):
            async with aclosing(self._lines(asked)) as lines:
                first = await anext(lines)  # until here an error has a status of its own
                headers = [(b"content-type", NDJSON.encode() + b"; charset=utf-8")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await _send_line(send, first)
                try:
                    async for line in lines:
                        await _send_line(send, line)
                except AppError as error:
                    told = error_record(
                        error.code, public_message(error), request_id(self._request)
                    )
                    await _send_line(send, json_line({"error": told}))
            await send({"type": "http.response.body", "body": b""})

    async def _lines(self, asked: _Asked) -> AsyncGenerator[bytes, None]:
        if len(asked.uploads) > 1:
            message = f"{NDJSON} streams the pages of one file; send one."
            raise BadOption(message)
        reading = self._parts.ocr.reading(asked.uploads[0].content, asked.options, asked.context)
        async with reading as document:
            count = 0
            async for page in document.pages:
                count += 1
                yield json_line(render.page_record(page))
        end = {"done": True, "kind": document.kind, "total_pages": document.total_pages}
        yield json_line({**end, "pages": count, "request_id": request_id(self._request)})


async def _send_line(send: Send, line: bytes) -> None:
    await send({"type": "http.response.body", "body": line, "more_body": True})


_RENDER: Final[Mapping[str, Callable[[Document], str]]] = {
    TEXT: render.to_text,
    MARKDOWN: render.to_markdown,
}


def _unique(items: Sequence[tuple[str, str]]) -> dict[str, str]:
    fields = dict(items)
    if len(fields) != len(items):
        raise BadOption("An option is given twice in the address.")
    return fields
