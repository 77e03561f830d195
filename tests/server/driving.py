"""Drive the application by hand: every message of ASGI, in the order that a test wants."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
from fastapi import FastAPI

Message = MutableMapping[str, Any]


def scope_of(path: str, *, query: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> Any:
    return {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": query, "headers": list(headers), "scheme": "http",
        "server": ("test", 80), "client": ("test", 1), "http_version": "1.1", "root_path": "",
        "asgi": {"version": "3.0"},
    }  # fmt: skip


@dataclass
class Connection:
    """A client that sends `chunks`, then waits; `leave` closes the connection."""

    chunks: Sequence[bytes]
    whole: bool = True
    left: anyio.Event = field(default_factory=anyio.Event)
    sent: list[Message] = field(default_factory=list)
    on_send: Callable[[Message], Awaitable[None]] | None = None
    taken: int = 0

    async def receive(self) -> Message:
        if self.taken < len(self.chunks):
            self.taken += 1
            more = not self.whole or self.taken < len(self.chunks)
            return {
                "type": "http.request",
                "body": self.chunks[self.taken - 1],
                "more_body": more,
            }
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if self.on_send is not None:
            await self.on_send(message)

    async def call(self, app: FastAPI, scope: Any) -> None:
        with anyio.fail_after(10):
            await app(scope, self.receive, self.send)
