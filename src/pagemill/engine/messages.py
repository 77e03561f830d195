"""The frames that cross the process boundary; msgspec structs, never pickle.

Down: `Setup` once, then `Batch` after `Batch`, `Leave` at the end.
Up: `Joined` or `Refused` once, then one `BatchDone` a batch.
"""

from typing import Any, Final

import msgspec

FRAME_LIMIT_BYTES: Final = 32 * 1024 * 1024
FDS_LIMIT: Final = 200  # SCM_MAX_FD is 253


class StageSetup(msgspec.Struct, frozen=True, kw_only=True):
    """A stage to load: its name, import path and configuration (JSON types)."""

    name: str
    load: str
    config: dict[str, Any] = {}


class Setup(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What the worker is to be. `cores` are CPU numbers it binds itself to."""

    worker: str
    generation: int
    stages: tuple[StageSetup, ...]
    cores: tuple[int, ...] = ()


class Joined(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The stages are loaded and gave their known answers."""

    generation: int
    load_s: float
    rss_bytes: int
    facts: dict[str, str] = {}


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A stage did not load or answered wrongly; the worker exits."""

    stage: str
    code: str
    message: str


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item. `buffers` index the fds of the frame; `nonce` is this attempt's."""

    nonce: int
    payload: bytes
    buffers: tuple[int, ...] = ()


class Batch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Items of one stage; `together` says that they may run as one batch."""

    sequence: int
    stage: str
    items: tuple[Item, ...]
    together: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One item's reply; `buffers` index the fds of the frame.

    `digest` is `buffers.item_digest` over what the worker really read.
    """

    nonce: int
    digest: bytes
    payload: bytes
    buffers: tuple[int, ...] = ()


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One item's error, by its code (`errors.from_code`)."""

    nonce: int
    digest: bytes
    code: str
    message: str


class BatchDone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All items of a batch, in order, with the seconds that each took."""

    sequence: int
    replies: tuple[Answer | Failure, ...]
    seconds: tuple[float, ...]
    rss_bytes: int


class Leave(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """No more batches: exit with status 0."""


Down = Setup | Batch | Leave
Up = Joined | Refused | BatchDone
