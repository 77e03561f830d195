"""What every request passes: an id, a clock, a log line, and the last catch."""

import re
import time
import uuid
from http import HTTPStatus
from typing import Final

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagemill.server.errors import as_app_error, error_response
from pagemill.server.metrics import Metrics

_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
_QUIET: Final = ("/health", "/metrics")  # asked every few seconds; logged when they fail
_log = structlog.get_logger()


class RequestMiddleware:
    """Pure ASGI: identifies, times, counts and logs requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        """Wrap `app`."""
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        chosen = request.headers.get("x-request-id", "")
        known = chosen if _ID.fullmatch(chosen) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = known
        status = 0
        start_s = time.monotonic()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = known
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:  # noqa: BLE001 - the request edge: it must be answered
            _log.exception("request_failed", request_id=known, path=scope["path"])
            if not status:
                response = error_response(request, as_app_error(error))
                await response(scope, receive, send_with_id)
        finally:
            self._finish(scope, status, time.monotonic() - start_s)

    def _finish(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")
        name = getattr(route, "path", "unknown")
        self._metrics.request_finished(name, status or 499, seconds)  # 499: the client left
        if scope["path"].startswith(_QUIET) and status < HTTPStatus.BAD_REQUEST:
            return
        _log.info(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=status or 499,
            seconds=round(seconds, 4),
            request_id=scope["state"]["request_id"],
        )
