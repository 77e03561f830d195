"""`pagemill serve`: listen, serve, and end well."""

import contextlib
import errno
import signal
import socket
from collections.abc import Iterator
from typing import Final

import anyio
import structlog
import uvicorn

from pagemill import __version__, logs
from pagemill.assembly import Parts, running
from pagemill.errors import BadOption
from pagemill.server.app import build_app
from pagemill.settings import ServerSettings, Settings

DEFAULT_PORT: Final = 8080
TRIES: Final = 20
_log = structlog.get_logger()


def serve(settings: Settings) -> None:
    """Serve until told to stop; returns when every accepted request has ended.

    Raises:
        BadOption: the address or port cannot be listened on.

    """
    logs.configure(settings.log)
    listener = listen(settings.server)
    with contextlib.closing(listener):
        anyio.run(_serve, settings, listener)


def listen(settings: ServerSettings) -> socket.socket:
    """Return a listening socket; without a port asked for, the next free one.

    Raises:
        BadOption: nothing there can be listened on.

    """
    asked = settings.port
    ports = range(DEFAULT_PORT, DEFAULT_PORT + TRIES) if asked is None else (asked,)
    for port in ports:
        try:
            return _bind(settings.host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and asked is None:
                continue
            message = (
                f"Cannot listen on {settings.host} port {port}: {error.strerror}. "
                "Choose another with --port."
            )
            raise BadOption(message) from error
    message = f"Ports {ports[0]} to {ports[-1]} are all taken; choose one with --port."
    raise BadOption(message)


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the engine drains before it stops."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(settings: Settings, listener: socket.socket) -> None:
    async with running(settings) as parts:
        config = uvicorn.Config(
            build_app(parts.server),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        server = _Server(config)
        host, port = listener.getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        _log.info("listening", url=url, version=__version__, workers=parts.workers)
        async with anyio.create_task_group() as group:
            group.start_soon(_stop_on_signal, server, parts, settings.server.drain_s)
            await server.serve(sockets=[listener])
            group.cancel_scope.cancel()
    _log.info("stopped")


async def _stop_on_signal(server: uvicorn.Server, parts: Parts, drain_s: float) -> None:
    """First signal: refuse new work, let accepted work end. Second: stop now."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        number = await anext(signals)
        _log.info("draining", signal=number.name, grace_s=drain_s)
        async with anyio.create_task_group() as group:
            group.start_soon(_drain, server, parts, drain_s)
            await anext(signals)
            server.force_exit = server.should_exit = True
            group.cancel_scope.cancel()


async def _drain(server: uvicorn.Server, parts: Parts, drain_s: float) -> None:
    await parts.engine.drain(drain_s)
    server.should_exit = True
