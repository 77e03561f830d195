"""Stage `read_page` gives a page and the detector's view of it."""

import random

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from pagemill.engine.stage import Input, Stage
from pagemill.errors import AppError, BadInput, Defect, EncryptedDocument
from pagemill.stages import open as open_stage
from pagemill.stages.open import Document, open_document
from pagemill.stages.read_page import PADDING, load
from pagemill.stages.sniff import Type
from pagemill.stages.wire import Open, PageRead, ReadPage
from tests.stages import documents

Read = tuple[PageRead, NDArray[np.uint8], NDArray[np.uint8]]


def try_read(
    stage: Stage, content: bytes, page: int = 0, password: str | None = None
) -> Read | AppError:
    asked = ReadPage(page=page, password=password, max_pixels=10_000_000)
    view = memoryview(content).toreadonly()
    [answer] = stage.run([Input(payload=msgspec.msgpack.encode(asked), buffers=(view,))])
    if isinstance(answer, AppError):
        return answer
    pixels, detector = answer.buffers
    assert isinstance(pixels, np.ndarray)
    assert isinstance(detector, np.ndarray)
    return msgspec.msgpack.decode(answer.payload, type=PageRead), pixels, detector


def read(stage: Stage, content: bytes, page: int = 0, password: str | None = None) -> Read:
    answer = try_read(stage, content, page, password)
    assert not isinstance(answer, AppError)
    return answer


def test_a_small_page_stands_unscaled_at_the_top_left_of_white() -> None:
    page = documents.corners(50, 40)
    reply, pixels, detector = read(load({}), documents.png(page))
    assert (reply.width, reply.height, reply.det_width, reply.det_height) == (50, 40, 64, 64)
    assert np.array_equal(pixels, page)
    assert np.array_equal(detector[:40, :50], page)
    assert (detector[40:] == PADDING).all()
    assert (detector[:, 50:] == PADDING).all()


def test_a_large_page_is_kept_whole_and_scaled_for_the_detector() -> None:
    reply, pixels, detector = read(
        load({}), documents.png(documents.text_page("Large", (2560, 1000)))
    )
    assert pixels.shape == (1000, 2560, 3)
    assert detector.shape == (reply.det_height, reply.det_width, 3) == (512, 1280, 3)
    assert (reply.scaled_width, reply.scaled_height, len(reply.tiles)) == (1280, 500, 2)
    assert pixels.flags.c_contiguous
    assert detector.flags.c_contiguous


def test_every_type_is_read() -> None:
    stage = load({})
    for name, content in documents.one_of_each().items():
        reply, pixels, _ = read(stage, content, password="secret")
        assert pixels.shape == (reply.height, reply.width, 3), name


def test_pages_of_two_documents_of_equal_length_are_never_mixed_up() -> None:
    stage = load({})
    red = documents.pdf(["1 0 0 rg 0 0 20 20 re f", "1 0 0 rg 0 0 20 20 re f"])
    blue = red.replace(b"1 0 0 rg", b"0 0 1 rg")
    assert len(red) == len(blue)
    for content, colour in ((red, [255, 0, 0]), (blue, [0, 0, 255])) * 2:
        for page in (0, 1):
            assert read(stage, content, page)[1][5, 5].tolist() == colour


def test_an_open_document_is_no_way_around_its_password() -> None:
    stage = load({})
    content = documents.locked_pdf("secret")
    read(stage, content, password="secret")
    assert isinstance(try_read(stage, content), EncryptedDocument)
    assert isinstance(try_read(stage, content, password="wrong"), EncryptedDocument)
    read(stage, content, password="secret")


def test_the_next_page_comes_from_the_document_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def counted(content: bytes, kind: Type, *, password: str | None, max_pixels: int) -> Document:
        opened.append(kind)
        return open_document(content, kind, password=password, max_pixels=max_pixels)

    monkeypatch.setattr("pagemill.stages.read_page.open_document", counted)
    stage = load({})
    content = documents.pdf(["", "", ""])
    for page in (0, 2, 1):
        read(stage, content, page)
    assert len(opened) == 1
    assert isinstance(try_read(stage, content, 3), BadInput)  # a failed document is not kept
    read(stage, content, 0)
    assert len(opened) == 2


def test_frames_come_right_in_any_order() -> None:
    stage = load({})
    pages = [np.full((20, 30, 3), value, np.uint8) for value in (10, 100, 200)]
    content = documents.frames(pages, "TIFF", compression="tiff_lzw")
    for page in (1, 0, 2, 1):
        assert np.array_equal(read(stage, content, page)[1], pages[page])


def test_a_question_out_of_the_contract_is_our_defect() -> None:
    [answer] = load({}).run([Input(payload=b"?", buffers=(memoryview(b""),))])
    assert isinstance(answer, Defect)


def test_it_checks_itself() -> None:
    load({}).check()


def mutated(content: bytes, rng: random.Random) -> bytes:
    broken = bytearray(content)
    if rng.random() < 0.2:
        return bytes(broken[: rng.randrange(1, len(broken))])
    reach = len(broken) if rng.random() < 0.5 else min(400, len(broken))
    for _ in range(rng.choice((1, 2, 4, 16))):
        broken[rng.randrange(reach)] = rng.choice((0, 127, 128, 255, rng.randrange(256)))
    return bytes(broken)


@pytest.mark.parametrize("name", documents.one_of_each())
def test_mutated_documents_are_read_or_refused_and_alike_each_time(name: str) -> None:
    content = documents.one_of_each()[name]
    rng = random.Random(name)
    request = msgspec.msgpack.encode(Open(password="secret", max_pixels=10_000_000, max_pages=50))
    for _ in range(60):
        broken = mutated(content, rng)
        [opened] = open_stage.load({}).run([Input(payload=request, buffers=(memoryview(broken),))])
        first, second = (try_read(load({}), broken, password="secret") for _ in range(2))
        for answer in (opened, first, second):
            assert not isinstance(answer, AppError) or isinstance(answer, BadInput)
        if isinstance(first, tuple) and isinstance(second, tuple):
            assert np.array_equal(first[1], second[1])
        else:
            assert (type(first), str(first)) == (type(second), str(second))
