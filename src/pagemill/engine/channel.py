"""Frames and descriptors over one private stream socket.

A frame is a length and a count of descriptors (two little-endian u32), then msgpack.
The descriptors travel as ancillary data of the first byte.
"""

import array
import os
import socket
import struct
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import anyio
import msgspec

from pagemill.engine.messages import FDS_LIMIT, FRAME_LIMIT_BYTES, Down, Up

_HEAD: Final = struct.Struct("<II")
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(FDS_LIMIT * array.array("i").itemsize)
Received = TypeVar("Received")
encode: Final = msgspec.msgpack.Encoder().encode


class ChannelBroken(Exception):
    """The other side sent no frame of ours; the connection is of no more use."""


class ChannelClosed(ChannelBroken):
    """The other side is gone."""


class FrameTooLarge(ValueError):
    """A message fits no frame; nothing was sent, and the channel is as good as before."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a private connection: the front's and the worker's."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def _frame(message: Down | Up, fds: Sequence[int]) -> bytes:
    body = encode(message)
    if len(body) > FRAME_LIMIT_BYTES or len(fds) > FDS_LIMIT:
        text = f"{len(body)} bytes and {len(fds)} descriptors"
        raise FrameTooLarge(text)
    return _HEAD.pack(len(body), len(fds)) + body


def _rights(fds: Sequence[int]) -> list[tuple[int, int, "array.array[int]"]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []


class _Assembler(Generic[Received]):
    """Puts pieces of a stream together into frames; owns descriptors until then."""

    def __init__(self, kind: object) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._data = bytearray()
        self._fds: list[int] = []

    @property
    def wanted_bytes(self) -> int:
        """How many bytes to ask for next; never past the end of this frame."""
        if len(self._data) < _HEAD.size:
            return _HEAD.size - len(self._data)
        length: int = _HEAD.unpack_from(self._data)[0]
        return _HEAD.size + length - len(self._data)

    def add(self, sock: socket.socket) -> tuple[Received, list[int]] | None:
        """Read once from `sock`; return a frame when it is whole.

        Raises:
            BlockingIOError: nothing to read now.
            ChannelBroken: what came is no frame; all descriptors are closed.

        """
        data, ancillary, flags, _ = sock.recvmsg(
            min(self.wanted_bytes, 1 << 20), _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                self._fds.extend(fds)
        try:
            return self._accept(data, flags)
        except ChannelBroken:
            self.close()
            raise

    def _accept(self, data: bytes, flags: int) -> tuple[Received, list[int]] | None:
        if flags & socket.MSG_CTRUNC or len(self._fds) > FDS_LIMIT:
            message = "too many descriptors, for a frame or for this process"
            raise ChannelBroken(message)
        if not data:
            message = "the other side is gone"
            raise ChannelClosed(message)
        self._data += data
        if len(self._data) < _HEAD.size:
            return None
        length, count = _HEAD.unpack_from(self._data)
        if length > FRAME_LIMIT_BYTES or count > FDS_LIMIT:
            message = f"a frame of {length} bytes and {count} descriptors"
            raise ChannelBroken(message)
        if self.wanted_bytes:
            return None
        if count != len(self._fds):
            message = f"{len(self._fds)} descriptors came, {count} were announced"
            raise ChannelBroken(message)
        try:
            frame: Received = self._decode(memoryview(self._data)[_HEAD.size :])
        except (msgspec.DecodeError, RecursionError) as error:
            raise ChannelBroken(str(error)) from error
        fds, self._fds, self._data = self._fds, [], bytearray()
        return frame, fds

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


class BlockingChannel:
    """The worker's end."""

    def __init__(self, sock: socket.socket) -> None:
        """Use `sock`, blocking; the channel owns it."""
        self._sock = sock
        self._frames: _Assembler[Down] = _Assembler(Down)

    def send(self, message: Up, fds: Sequence[int] = ()) -> None:
        """Send one frame; `fds` stay the caller's.

        Raises:
            FrameTooLarge: it fits no frame.

        """
        frame = memoryview(_frame(message, fds))
        sent = self._sock.sendmsg([frame], _rights(fds))
        self._sock.sendall(frame[sent:])

    def receive(self) -> tuple[Down, list[int]]:
        """Return the next frame and its descriptors, now the caller's.

        Raises:
            ChannelBroken: no frame, or `ChannelClosed` at the end.

        """
        while True:
            received = self._frames.add(self._sock)
            if received is not None:
                return received


class AsyncChannel:
    """The front's end."""

    def __init__(self, sock: socket.socket) -> None:
        """Use `sock`; the channel owns it and makes it non-blocking."""
        sock.settimeout(0)
        self._sock = sock
        self._frames: _Assembler[Up] = _Assembler(Up)

    async def send(self, message: Down, fds: Sequence[int] = ()) -> None:
        """Send one frame; `fds` stay the caller's.

        Raises:
            ChannelClosed: the worker is gone.
            FrameTooLarge: it fits no frame.

        """
        frame = memoryview(_frame(message, fds))
        rights = _rights(fds)
        while frame:
            try:
                sent = self._sock.sendmsg([frame], rights)
            except BlockingIOError:
                await anyio.wait_writable(self._sock)
            except (BrokenPipeError, ConnectionResetError) as error:
                raise ChannelClosed(str(error)) from error
            else:
                frame, rights = frame[sent:], []

    async def receive(self) -> tuple[Up, list[int]]:
        """Return the next frame and its descriptors, now the caller's.

        Raises:
            ChannelBroken: no frame, or `ChannelClosed` when the worker is gone.

        """
        while True:
            try:
                received = self._frames.add(self._sock)
            except BlockingIOError:
                await anyio.wait_readable(self._sock)
            except ConnectionResetError as error:
                raise ChannelClosed(str(error)) from error
            else:
                if received is not None:
                    return received

    def close(self) -> None:
        """Close the socket and what was received in part."""
        self._frames.close()
        if self._sock.fileno() >= 0:
            anyio.notify_closing(self._sock)
        self._sock.close()
