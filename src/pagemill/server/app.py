"""The HTTP application, built from parts that are passed in; holds no state of its own."""

from fastapi import FastAPI, Request
from starlette.responses import Response

from pagemill import __version__
from pagemill.server import errors, health, native, paddlex
from pagemill.server.disconnect import ClientGone
from pagemill.server.middleware import RequestMiddleware
from pagemill.server.parts import ServerParts

DESCRIPTION = "Document AI that stays up and stays right under load."


def build_app(parts: ServerParts) -> FastAPI:
    """Return the application. The engine must be running when requests come."""
    app = FastAPI(title="pagemill", version=__version__, description=DESCRIPTION)
    for contract in (paddlex, native, health):
        app.include_router(contract.build_router(parts))
    errors.register(app)
    app.add_exception_handler(ClientGone, _answer_nobody)
    app.add_middleware(RequestMiddleware, metrics=parts.metrics)
    parts.metrics.watch(parts.engine.snapshot)
    return app


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)  # nginx's code for a client that left
