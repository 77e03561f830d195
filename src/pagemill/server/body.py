"""Request bodies into buffers: counted, never whole in the front's memory."""

import binascii
import re
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import anyio
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from pagemill.engine.buffers import Buffer, BufferWriter
from pagemill.errors import BadBase64, BadInput, BadOption, EmptyBody, TooManyBytes
from pagemill.server.disconnect import ClientGone

CHUNK_BYTES: Final = 1 << 20
OVERHEAD_BYTES: Final = 64 * 1024  # what JSON or multipart may add to its documents
_MAX_FILES: Final = 100
_MAX_FIELDS: Final = 100
_SPACE: Final = b" \t\r\n"
_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_DATA_URL: Final = re.compile(rb"data:[^,]{0,200};base64,", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """One file of a request; `name` is for the answer alone, never a path."""

    name: str
    content: Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A multipart body: its files, and its other fields."""

    files: list[Upload] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)


def too_many_bytes(limit: int) -> TooManyBytes:
    """Return the refusal of a body above `limit` bytes."""
    return TooManyBytes(f"The body is larger than limits.max_bytes allows ({limit} bytes).")


def refuse_long(request: Request, limit: int) -> None:
    """Refuse by its announced length, before a byte is read.

    Raises:
        TooManyBytes: Content-Length is above `limit`.

    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise too_many_bytes(limit)


async def limited(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    """Yield the body's chunks, up to `limit` bytes.

    Raises:
        TooManyBytes: there are more.
        ClientGone: the client left before the end.

    """
    refuse_long(request, limit)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise BadInput("Compressed bodies are not read; send it without Content-Encoding.")
    count = 0
    try:
        async for chunk in request.stream():
            count += len(chunk)
            if count > limit:
                raise too_many_bytes(limit)
            yield chunk
    except ClientDisconnect as error:
        raise ClientGone from error


async def spool(request: Request, limit: int, held: ExitStack) -> Buffer:
    """Return the raw body; `held` closes it.

    Raises:
        TooManyBytes, EmptyBody, ClientGone: see `limited`.

    """
    with BufferWriter() as writer:
        async for chunk in limited(request, limit):
            writer.write(chunk)
        if not writer.size:
            raise EmptyBody("The body is empty; send a document in it.")
        return held.enter_context(writer.buffer())


async def read_form(request: Request, limit: int, held: ExitStack) -> Form:
    """Return the files and fields of a multipart body; `held` closes the files.

    Raises:
        BadInput: it is no multipart body.
        TooManyBytes, EmptyBody, ClientGone: as `spool`.

    """
    parser = MultiPartParser(
        request.headers,
        limited(request, limit + OVERHEAD_BYTES),
        max_files=_MAX_FILES,
        max_fields=_MAX_FIELDS,
        max_part_size=OVERHEAD_BYTES,
    )
    try:
        parsed = await parser.parse()
    except (MultiPartException, KeyError) as error:  # KeyError: no boundary was named
        reason = getattr(error, "message", "its boundary is missing")
        raise BadInput(f"The multipart body cannot be read: {reason}") from error
    form = Form()
    try:
        for name, value in parsed.multi_items():
            if isinstance(value, UploadFile):
                form.files.append(await _upload(name, value, held))
            elif form.fields.setdefault(name, value) != value:
                raise BadOption(f"`{name}` is given twice, with different values.")
    finally:
        await parsed.close()
    if not form.files:
        raise EmptyBody("The form holds no file; send one in the field `file`.")
    return form


async def _upload(name: str, value: UploadFile, held: ExitStack) -> Upload:
    with BufferWriter() as writer:
        while chunk := await value.read(CHUNK_BYTES):
            writer.write(chunk)
        content = held.enter_context(writer.buffer())  # an empty one fails alone, when opened
    return Upload(name=(value.filename or name)[:255], content=content)


async def decode_base64(text: memoryview, limit: int) -> Buffer:
    """Return the bytes that `text` stands for; the caller closes the buffer.

    Accepts a `data:` URL's prefix, white space, the URL-safe alphabet and missing
    padding.

    Raises:
        BadBase64: it is none.
        TooManyBytes: more than `limit` bytes.
        EmptyBody: no bytes.

    """
    prefix = _DATA_URL.match(bytes(text[:300]))
    position = prefix.end() if prefix else 0
    rest = b""
    with BufferWriter() as writer:
        while position < len(text):
            chunk = bytes(text[position : position + CHUNK_BYTES])
            position += len(chunk)
            clean = rest + chunk.translate(_URL_SAFE, _SPACE)
            # Whole quads only, and the last one, with its padding, at the end.
            whole = (len(clean) - 1) // 4 * 4 if position < len(text) else len(clean)
            rest = clean[whole:]
            writer.write(_decoded(clean[:whole], last=position >= len(text)))
            if writer.size > limit:
                raise too_many_bytes(limit)
            await anyio.lowlevel.checkpoint()
        if not writer.size:
            raise EmptyBody("`file` is empty; it must hold a document in base64.")
        return writer.buffer()


def _decoded(text: bytes, *, last: bool) -> bytes:
    if last:
        text += b"=" * (-len(text) % 4)
    try:
        return binascii.a2b_base64(text, strict_mode=True) if text else b""
    except binascii.Error as error:
        message = f"`file` is not valid base64 ({error}); encode the document's bytes."
        raise BadBase64(message) from error
