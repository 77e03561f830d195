"""Request bodies into buffers: counted, never whole in the front's memory."""

import binascii
import re
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Final

import anyio
import msgspec
from starlette.datastructures import FormData, UploadFile
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
_LONGEST_ESCAPE: Final = len(r"\u0000")
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
    if announced_bytes(request.headers) > limit:
        raise too_many_bytes(limit)


def announced_bytes(headers: Mapping[str, str]) -> int:
    """Return Content-Length, or 0 when it is missing or no number."""
    text = headers.get("content-length", "")
    # The first 18 digits of more are larger than any limit, and quick to parse.
    return int(text[:18]) if text.isascii() and text.isdigit() else 0


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
    parser = _FormParser(
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


class _FormParser(MultiPartParser):
    """Starlette's, which takes a form that was cut short for a whole one."""

    ended = False

    def on_end(self) -> None:
        """Note the last boundary."""
        self.ended = True

    async def parse(self) -> FormData:
        """Return the form, if it has an end."""
        self.stream = self._until_end(self.stream)
        return await super().parse()

    async def _until_end(self, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async for chunk in stream:
            yield chunk
        if not self.ended:
            raise MultiPartException("it ends before its last boundary")


async def _upload(name: str, value: UploadFile, held: ExitStack) -> Upload:
    with BufferWriter() as writer:
        while chunk := await value.read(CHUNK_BYTES):
            writer.write(chunk)
        content = held.enter_context(writer.buffer())  # an empty one fails alone, when opened
    return Upload(name=(value.filename or name)[:255], content=content)


async def decode_base64(
    text: memoryview, limit: int, forget: Callable[[], None] = lambda: None
) -> Buffer:
    """Return the bytes that `text` stands for; the caller closes the buffer.

    Args:
        text: what stands between the quotes of a JSON string, escapes included.
            Besides plain base64: a `data:` URL, white space, the URL-safe alphabet,
            missing padding.
        limit: the most bytes to return.
        forget: called after each chunk; may give back the memory of what was read.

    Raises:
        BadBase64: it is none.
        TooManyBytes: more than `limit` bytes.
        EmptyBody: no bytes.

    """
    prefix = _DATA_URL.match(bytes(text[:300]))
    rest = b""
    with (
        closing(_unescaped(text, prefix.end() if prefix else 0)) as chunks,
        BufferWriter() as writer,
    ):
        for chunk in chunks:
            clean = rest + chunk.translate(_URL_SAFE, _SPACE)
            # Whole quads only; the last one, with its padding, at the end.
            whole = max(0, (len(clean) - 1) // 4 * 4)
            rest = clean[whole:]
            writer.write(_decoded(clean[:whole], is_last=False))
            if writer.size > limit:
                raise too_many_bytes(limit)
            forget()
            await anyio.lowlevel.checkpoint()
        writer.write(_decoded(rest + b"=" * (-len(rest) % 4), is_last=True))
        if writer.size > limit:
            raise too_many_bytes(limit)
        if not writer.size:
            raise EmptyBody("`file` is empty; it must hold a document in base64.")
        return writer.buffer()


def _unescaped(text: memoryview, position: int) -> Generator[bytes, None, None]:
    """Yield a JSON string's bytes from `position` on, in chunks; some clients escape `/` or line ends.

    No chunk ends within an escape. Backslashes themselves may be torn apart: base64
    has none, so what is left of them is refused either way.
    """
    while position < len(text):
        chunk = bytes(text[position : position + CHUNK_BYTES])
        if position + len(chunk) < len(text):
            cut = chunk.rfind(b"\\", max(1, len(chunk) - _LONGEST_ESCAPE + 1))
            chunk = chunk[:cut] if cut > 0 else chunk
        position += len(chunk)
        yield _without_escapes(chunk) if b"\\" in chunk else chunk


def _without_escapes(chunk: bytes) -> bytes:
    try:
        return msgspec.json.decode(b'"' + chunk + b'"', type=str).encode()
    except (msgspec.DecodeError, UnicodeError) as error:
        message = "`file` is not valid base64; it holds escapes that base64 has no use for."
        raise BadBase64(message) from error


def _decoded(text: bytes, *, is_last: bool) -> bytes:
    if not is_last and text.endswith(b"="):
        raise BadBase64("`file` is not valid base64 (data after its padding).")
    try:
        return binascii.a2b_base64(text, strict_mode=True) if text else b""
    except binascii.Error as error:
        message = f"`file` is not valid base64 ({error}); encode the document's bytes."
        raise BadBase64(message) from error
