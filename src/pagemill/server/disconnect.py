"""Work that ends when its client leaves, or its deadline passes."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from starlette.types import Receive

from pagemill.errors import AppError, DeadlineExceeded, first_of

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed the connection; nobody reads the answer."""


async def while_connected(receive: Receive, work: Callable[[], Awaitable[T]]) -> T:
    """Return what `work` returns; cancel it when the client leaves.

    Args:
        receive: of a request whose body was read to its end.
        work: what the client waits for.

    Raises:
        ClientGone: it left.
        AppError: of `work`.

    """
    gone = False
    outcome: list[T] = []
    failed: list[AppError] = []

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        group.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            outcome.append(await work())
            group.cancel_scope.cancel()
    except* AppError as errors:
        failed.append(first_of(errors))
    if failed:
        raise failed[0]
    if gone and not outcome:
        raise ClientGone
    return outcome[0]


async def before(deadline_s: float, work: Callable[[], Awaitable[T]]) -> T:
    """Return what `work` returns, if it does before `deadline_s` (of `anyio.current_time`).

    Raises:
        DeadlineExceeded: it did not; it was cancelled.

    """
    with anyio.CancelScope(deadline=deadline_s):
        return await work()
    message = "The deadline passed while the request was read; send it faster or give more time."
    raise DeadlineExceeded(message)
