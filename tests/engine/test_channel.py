"""Frames arrive whole with their descriptors; anything else breaks the channel, leaking nothing."""

import array
import os
import socket
import struct
from collections.abc import Iterator

import anyio
import pytest

from pagemill.engine.channel import (
    AsyncChannel,
    BlockingChannel,
    ChannelBroken,
    ChannelClosed,
    FrameTooLarge,
    encode,
    pair,
)
from pagemill.engine.messages import FRAME_LIMIT_BYTES, Batch, BatchDone, Item, Leave, Refused
from tests.descriptors import open_descriptors

BATCH = Batch(sequence=1, stage="s", items=(Item(nonce=1, payload=b"p", buffers=(0,)),))
DONE = BatchDone(sequence=1, replies=(), seconds=(), rss_bytes=0)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    front, worker = pair()
    with front, worker:
        yield front, worker


@pytest.mark.blocks
@pytest.mark.anyio
async def test_a_frame_arrives_with_its_descriptors(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    front, worker = AsyncChannel(ends[0]), BlockingChannel(ends[1])
    reader, writer = os.pipe()
    await front.send(BATCH, [writer])
    message, (received,) = worker.receive()
    assert message == BATCH
    os.write(received, b"through")
    assert os.read(reader, 7) == b"through"
    assert not os.get_inheritable(received)
    for fd in (reader, writer, received):
        os.close(fd)


@pytest.mark.blocks
@pytest.mark.anyio
async def test_frames_do_not_run_into_each_other(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    front, worker = AsyncChannel(ends[0]), BlockingChannel(ends[1])
    for number in range(3):
        reader, writer = os.pipe()
        worker.send(BatchDone(sequence=number, replies=(), seconds=(), rss_bytes=0), [reader])
        os.close(reader)
        os.close(writer)
    for number in range(3):
        message, fds = await front.receive()
        assert isinstance(message, BatchDone)
        assert (message.sequence, len(fds)) == (number, 1)
        os.close(fds[0])


@pytest.mark.anyio
async def test_a_frame_larger_than_the_socket_crosses_both_ways(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    front, worker = AsyncChannel(ends[0]), BlockingChannel(ends[1])
    big = Batch(sequence=1, stage="s", items=(Item(nonce=1, payload=bytes(3_000_000)),))
    answer = Refused(stage="s", code="c", message="m" * 3_000_000)

    def work() -> None:
        assert worker.receive() == (big, [])
        worker.send(answer)

    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, work)
        await front.send(big)
        assert await front.receive() == (answer, [])


def send_raw(sock: socket.socket, data: bytes, fds: list[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([data], rights)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 64,
        struct.pack("<II", FRAME_LIMIT_BYTES + 1, 0),
        struct.pack("<II", 1, 10_000),
        struct.pack("<II", 3, 1) + b"abc",
        struct.pack("<II", len(encode(DONE)), 2) + encode(DONE),
        struct.pack("<II", len(encode(DONE)), 0) + encode(DONE),
        struct.pack("<II", len(encode(Leave())), 1) + encode(Leave()),
    ],
    ids=[
        "noise",
        "too long",
        "too many fds",
        "no msgpack",
        "fds missing",
        "fds extra",
        "wrong way",
    ],
)
async def test_what_is_no_frame_breaks_the_channel(
    data: bytes, ends: tuple[socket.socket, socket.socket]
) -> None:
    before = open_descriptors()
    front = AsyncChannel(ends[0])
    reader, writer = os.pipe()
    send_raw(ends[1], data, [reader])
    os.close(reader)
    os.close(writer)
    with pytest.raises(ChannelBroken):
        await front.receive()
    assert open_descriptors() == before


@pytest.mark.anyio
async def test_the_end_of_the_other_side_is_told(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    front = AsyncChannel(ends[0])
    ends[1].close()
    with pytest.raises(ChannelClosed):
        await front.receive()
    with pytest.raises(ChannelClosed):
        await front.send(Leave())


@pytest.mark.anyio
async def test_an_end_in_the_middle_of_a_frame_leaks_nothing(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    before = open_descriptors()
    front = AsyncChannel(ends[0])
    reader, writer = os.pipe()
    send_raw(ends[1], struct.pack("<II", 100, 1) + b"half", [reader])
    os.close(reader)
    os.close(writer)
    ends[1].close()
    with pytest.raises(ChannelClosed):
        await front.receive()
    assert open_descriptors() == before - 1  # the worker's end


@pytest.mark.anyio
async def test_descriptors_without_end_break_the_channel_before_a_frame_does(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    before = open_descriptors()
    front = AsyncChannel(ends[0])
    reader, writer = os.pipe()
    send_raw(ends[1], struct.pack("<II", 100, 200), [reader] * 200)
    send_raw(ends[1], b"x", [reader])
    os.close(reader)
    os.close(writer)
    with pytest.raises(ChannelBroken, match="too many"):
        await front.receive()
    assert open_descriptors() == before


@pytest.mark.anyio
async def test_a_deeply_nested_frame_breaks_the_channel(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    front = AsyncChannel(ends[0])
    field = b"\xa4type\xa6Joined\xa4more"  # an unknown field, skipped level by level
    send_raw(ends[1], struct.pack("<II", 20_000 + 1 + len(field), 0), [])
    send_raw(ends[1], b"\x82" + field + b"\x91" * 20_000, [])
    with pytest.raises(ChannelBroken):
        await front.receive()


@pytest.mark.blocks
@pytest.mark.anyio
async def test_a_message_too_large_for_a_frame_is_not_sent(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    front, worker = AsyncChannel(ends[0]), BlockingChannel(ends[1])
    with pytest.raises(FrameTooLarge):
        await front.send(Batch(sequence=1, stage="s" * (FRAME_LIMIT_BYTES + 1), items=()))
    await front.send(Leave())
    assert worker.receive() == (Leave(), [])
