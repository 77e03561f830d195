"""What a stage is: native work on single items, done in a worker by one thread.

A stage is named by an import path, `package.module:function`; the function takes
the stage's configuration and returns an object with these two methods. That is
all the engine knows of documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pagemill.errors import AppError


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One item: its parameters, and the buffers it may read (read-only views)."""

    payload: bytes
    buffers: tuple[memoryview, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What an item came to: a reply, and bytes that become buffers of their own.

    `buffers` are C-contiguous objects of the buffer protocol (bytes, ndarray); the
    worker copies each into a memfd, so they need not outlive the call.
    """

    payload: bytes
    buffers: tuple[object, ...] = ()


class Stage(Protocol):
    """Native work. Never called by two threads, never by two processes."""

    def run(self, items: Sequence[Input]) -> Sequence[Output | AppError]:
        """Answer every item, in order; an `AppError` fails that item alone.

        More than one item comes only where the worker group's `batch` allows it,
        and then all are of one bucket. An exception that is no `AppError` fails
        each item as a `Defect`.
        """
        ...

    def check(self) -> None:
        """Answer a question whose answer is known; it also warms the model up.

        Raises:
            Defect: the answer is wrong; the worker must not join.

        """
        ...
