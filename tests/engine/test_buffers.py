"""A buffer is what it says, cannot change, and leaves no descriptor behind."""

import mmap
import os
import tempfile
from pathlib import Path

import pytest

from pagemill.engine import buffers
from pagemill.engine.buffers import HEADER_BYTES, Buffer, BufferBroken, BufferWriter, item_digest
from tests.descriptors import open_descriptors


def test_what_goes_in_comes_out_whole_or_in_part() -> None:
    with Buffer.of(b"0123456789") as buffer:
        assert buffer.size == 10
        assert buffer.read() == b"0123456789"
        assert buffer.read(3, 4) == b"3456"
        assert buffer.read(8, 100) == b"89"
        assert buffer.read(100) == b""


def test_the_same_bytes_have_the_same_identity_however_they_come() -> None:
    with Buffer.of(b"abcdef") as whole, BufferWriter() as writer:
        writer.write(b"abc")
        writer.write(b"")
        writer.write(memoryview(b"def"))
        with writer.buffer() as pieces:
            assert pieces.identity == whole.identity
            assert pieces.read() == whole.read()
    with Buffer.of(b"abcdeg") as other:
        assert other.identity != whole.identity


def test_an_empty_buffer_is_a_buffer() -> None:
    with Buffer.of(b"") as buffer:
        assert buffer.read() == b""
        with Buffer.adopt(os.dup(buffer.fd)) as again:
            assert (again.size, again.identity) == (0, buffer.identity)


def test_a_received_descriptor_keeps_its_identity() -> None:
    with Buffer.of(b"data", b"i" * 16) as buffer, Buffer.adopt(os.dup(buffer.fd)) as again:
        assert again.identity == b"i" * 16
        with again.map() as mapped:
            assert mapped[HEADER_BYTES:] == b"data"


def test_a_finished_buffer_cannot_change_or_shrink() -> None:
    with Buffer.of(b"data") as buffer:
        with pytest.raises(PermissionError):
            os.pwrite(buffer.fd, b"x", HEADER_BYTES)
        with pytest.raises(PermissionError):
            os.ftruncate(buffer.fd, 1)
        with pytest.raises(PermissionError):
            mmap.mmap(buffer.fd, 0, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def forged(data: bytes, *, seal: bool = True) -> int:
    fd = os.memfd_create("forged", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    if seal:
        import fcntl

        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0x2 | 0x4 | 0x8)
    return fd


def header(size: int) -> bytes:
    return b"PGMILL01" + b"i" * 16 + size.to_bytes(8, "little") + bytes(32)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        b"NOTOURS!" + header(4)[8:] + b"data",
        header(5) + b"data",
        header(3) + b"data",
    ],
)
def test_what_lies_about_itself_is_refused_and_closed(data: bytes) -> None:
    before = open_descriptors()
    with pytest.raises(BufferBroken):
        Buffer.adopt(forged(data))
    assert open_descriptors() == before


def test_what_could_still_shrink_is_refused() -> None:
    with pytest.raises(BufferBroken, match="sealed"):
        Buffer.adopt(forged(header(4) + b"data", seal=False))


def test_a_descriptor_that_is_no_file_is_refused() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with pytest.raises(BufferBroken):
        Buffer.adopt(reader)


def test_closing_twice_closes_once() -> None:
    before = open_descriptors()
    buffer = Buffer.of(b"x")
    buffer.close()
    buffer.close()
    assert open_descriptors() == before


def test_a_writer_that_fails_half_way_leaves_nothing() -> None:
    before = open_descriptors()
    with pytest.raises(RuntimeError), BufferWriter() as writer:
        writer.write(b"half")
        raise RuntimeError
    assert open_descriptors() == before


def test_without_memfd_an_unlinked_file_serves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(buffers, "_HAS_MEMFD", False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Buffer.of(b"data") as buffer, Buffer.adopt(os.dup(buffer.fd)) as again:
        assert again.read() == b"data"
    assert list(tmp_path.iterdir()) == []


def test_a_digest_names_stage_parameters_and_content() -> None:
    digests = {
        item_digest("stage", b"payload", [b"a" * 16]),
        item_digest("stage2", b"payload", [b"a" * 16]),
        item_digest("stage", b"payload2", [b"a" * 16]),
        item_digest("stage", b"payload", [b"b" * 16]),
        item_digest("stage", b"payload", []),
        item_digest("stagep", b"ayload", [b"a" * 16]),
    }
    assert len(digests) == 6


def test_a_buffer_that_its_owner_lost_is_closed() -> None:
    before = open_descriptors()
    Buffer.of(b"lost")
    assert open_descriptors() == before


def test_a_mapping_is_private() -> None:
    # Before Linux 6.7 what F_SEAL_WRITE seals cannot be mapped shared.
    with Buffer.of(b"data") as buffer, buffer.map():
        lines = Path("/proc/self/maps").read_text().splitlines()
    assert [line.split()[1] for line in lines if "memfd:pagemill" in line] == ["r--p"]
