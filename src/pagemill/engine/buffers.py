"""Memory that crosses processes: anonymous files, passed as file descriptors.

A buffer is a memfd (an unlinked temporary file where memfd does not exist): a header
of 64 bytes, then data. The header's identity is derived from content, so the same
document gives the same identities in every attempt: see `item_digest`.
"""

import fcntl
import hashlib
import mmap
import os
import resource
import struct
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

MAGIC: Final = b"PGMILL01"
HEADER_BYTES: Final = 64
IDENTITY_BYTES: Final = 16
_HEADER: Final = struct.Struct(f"<8s{IDENTITY_BYTES}sQ32x")
# F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE (linux/fcntl.h): what is mapped can
# neither vanish (SIGBUS) nor change under its reader.
_SEALS: Final = 0x0002 | 0x0004 | 0x0008
_HAS_MEMFD: Final = hasattr(os, "memfd_create")
_DESCRIPTORS: Final = 65_536


class BufferBroken(Exception):
    """A descriptor is no buffer, or lies about its size or seals."""


def raise_descriptor_limit() -> None:
    """Let this process hold many buffers: the usual 1024 are some 200 requests' worth."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def digest_of(*parts: bytes) -> bytes:
    """Return a 16-byte digest of `parts`, each with its length."""
    hasher = hashlib.blake2b(digest_size=IDENTITY_BYTES)
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()


def item_digest(stage: str, payload: bytes, identities: Sequence[bytes]) -> bytes:
    """Return what names an item: its stage, its parameters, what its buffers hold."""
    return digest_of(stage.encode(), payload, *identities)


class _OwnedDescriptor:
    """Owns `fd` until it is closed or handed over (-1); a block's end closes it."""

    __slots__ = ("fd",)

    fd: int

    def close(self) -> None:
        """Close the descriptor, if it is still owned; again is harmless."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the descriptor."""
        self.close()


class Buffer(_OwnedDescriptor):
    """Owns one descriptor; `size` counts the data alone."""

    __slots__ = ("identity", "size")

    def __init__(self, fd: int, *, size: int, identity: bytes) -> None:
        """Take ownership of `fd`, already written and sealed; see `of` and `adopt`."""
        self.fd = fd
        self.size = size
        self.identity = identity

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview, identity: bytes | None = None) -> Self:
        """Return a buffer with a copy of `data`; its identity defaults to its hash."""
        with BufferWriter(identity) as writer:
            writer.write(data)
            fd, size, named = writer.finish()
        return cls(fd, size=size, identity=named)

    @classmethod
    def adopt(cls, fd: int) -> Self:
        """Take ownership of a received descriptor, after a look at what it claims.

        Raises:
            BufferBroken: it is no buffer; `fd` is closed.

        """
        try:
            size, identity = _inspect(fd)
        except (OSError, BufferBroken) as error:
            os.close(fd)
            raise BufferBroken(str(error)) from error
        return cls(fd, size=size, identity=identity)

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Return data by pread: whatever its maker does, this cannot fault."""
        assert offset >= 0
        left = max(0, self.size - offset)
        left = left if length is None else min(left, length)
        pieces = []
        while left > 0:  # one pread gives at most 2 GiB
            piece = os.pread(self.fd, left, HEADER_BYTES + offset)
            if not piece:  # an unlinked file, without seals, was cut short
                break
            pieces.append(piece)
            offset, left = offset + len(piece), left - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def map(self) -> mmap.mmap:
        """Return a read-only mapping of header and data.

        For workers; the front maps only what it wrote itself.
        """
        # Private: before Linux 6.7 what F_SEAL_WRITE seals cannot be mapped shared,
        # not even to read. Nothing writes, so no page is ever copied.
        return mmap.mmap(
            self.fd, HEADER_BYTES + self.size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ
        )

    def __del__(self) -> None:
        """Close what its owner lost: a server that leaks descriptors soon stands still."""
        self.close()


class BufferWriter(_OwnedDescriptor):
    """Fills a new buffer piece by piece; `finish` hands its parts over, `close` drops them."""

    def __init__(self, identity: bytes | None = None) -> None:
        """Start an empty buffer; without an identity, its data is hashed."""
        self._identity = identity
        self._hasher = hashlib.blake2b(digest_size=IDENTITY_BYTES) if identity is None else None
        self.fd = _create()
        self.size = 0
        os.lseek(self.fd, HEADER_BYTES, os.SEEK_SET)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append `data`, C-contiguous bytes of any format."""
        view = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
        if self._hasher is not None:
            self._hasher.update(view)
        while view:
            written = os.write(self.fd, view)
            self.size += written
            view = view[written:]

    def finish(self) -> tuple[int, int, bytes]:
        """Seal the buffer; return its descriptor (now the caller's), size and identity."""
        identity = self._identity or (self._hasher.digest() if self._hasher else b"")
        os.pwrite(self.fd, _HEADER.pack(MAGIC, identity, self.size), 0)
        if _HAS_MEMFD:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
        fd, self.fd = self.fd, -1
        return fd, self.size, identity

    def buffer(self) -> Buffer:
        """Seal the buffer and return it."""
        fd, size, identity = self.finish()
        return Buffer(fd, size=size, identity=identity)


def _create() -> int:
    if _HAS_MEMFD:
        return os.memfd_create("pagemill", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:  # unlinked at once where files can be
        return os.dup(file.fileno())


def _inspect(fd: int) -> tuple[int, bytes]:
    # Seals first: only memory files have them, and reading those cannot block.
    if _HAS_MEMFD and fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
        message = "not sealed"
        raise BufferBroken(message)
    header = os.pread(fd, HEADER_BYTES, 0)
    if len(header) != HEADER_BYTES:
        message = "no header"
        raise BufferBroken(message)
    magic, identity, size = _HEADER.unpack(header)
    if magic != MAGIC or os.fstat(fd).st_size != HEADER_BYTES + size:
        message = "wrong magic or size"
        raise BufferBroken(message)
    return size, identity
