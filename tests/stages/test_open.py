"""Stage `open` says what a document is, or why it cannot be read."""

import msgspec
import pytest

from pagemill.engine.stage import Input, Output
from pagemill.errors import (
    AppError,
    DamagedInput,
    Defect,
    EmptyBody,
    EncryptedDocument,
    TooManyPages,
    TooManyPixels,
    UnsupportedType,
)
from pagemill.stages.open import load
from pagemill.stages.wire import Open, Opened
from tests.stages import documents


def ask(content: bytes, **options: object) -> Opened | AppError:
    request = {"max_pixels": 100_000, "max_pages": 10} | options
    payload = msgspec.msgpack.encode(msgspec.convert(request, Open))
    view = memoryview(content).toreadonly()
    [answer] = load({}).run([Input(payload=payload, buffers=(view,))])
    if isinstance(answer, AppError):
        return answer
    assert answer.buffers == ()
    return msgspec.msgpack.decode(answer.payload, type=Opened)


def test_every_type_is_opened() -> None:
    expected = {
        "gif": ("tiff", 2),
        "tiff": ("tiff", 2),
        "pdf": ("pdf", 1),
        "pdf_locked": ("pdf", 1),
    }
    for name, content in documents.one_of_each().items():
        opened = ask(content, password="secret")
        kind, pages = expected.get(name, ("image", 1))
        assert opened == msgspec.convert({"kind": kind, "pages": pages}, Opened), name


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", EmptyBody),
        (b"hello", UnsupportedType),
        (documents.png(documents.corners())[:30], DamagedInput),
        (b"%PDF-1.7 and nothing else", DamagedInput),
        (documents.png(documents.corners(1000, 1000)), TooManyPixels),
        (documents.frames([documents.corners(1000, 1000)] * 2, "TIFF"), TooManyPixels),
        (documents.pdf([""] * 11), TooManyPages),
        (documents.frames([documents.text_page(str(i)) for i in range(11)], "GIF"), TooManyPages),
        (documents.locked_pdf("secret"), EncryptedDocument),
    ],
)
def test_each_refusal_has_its_own_error(content: bytes, error: type[AppError]) -> None:
    assert type(ask(content)) is error


def test_a_refused_item_does_not_touch_its_neighbours() -> None:
    payload = msgspec.msgpack.encode(Open(max_pixels=100_000, max_pages=10))
    items = [
        Input(payload=payload, buffers=(memoryview(content),))
        for content in (b"", documents.pdf(), b"?")
    ]
    first, second, third = load({}).run(items)
    assert isinstance(first, EmptyBody)
    assert isinstance(second, Output)
    assert isinstance(third, UnsupportedType)


def test_a_question_out_of_the_contract_is_our_defect() -> None:
    [answer] = load({}).run([Input(payload=b"?", buffers=(memoryview(b""),))])
    assert isinstance(answer, Defect)


def test_it_checks_itself() -> None:
    load({}).check()
