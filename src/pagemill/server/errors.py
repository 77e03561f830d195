"""From errors to HTTP: one table for status and headers, one envelope a contract."""

import math
import uuid
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pagemill.errors import AppError, BadInput, Defect
from pagemill.server.answers import json_response

PADDLEX_PATHS: Final = frozenset({"/ocr"})
PADDLEX_SUCCESS: Final = (0, "Success")
_TEMPORARY: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_log = structlog.get_logger()


def register(app: FastAPI) -> None:
    """Answer every error of `app` in the envelope of the contract that was called."""
    app.add_exception_handler(AppError, _answer_app_error)
    app.add_exception_handler(HTTPException, _answer_http_exception)


async def _answer_app_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AppError)
    return error_response(request, error)


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    """Answer what routing refuses: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    detail = f"{request.method} {request.scope['path']}: {error.detail}; /docs lists what there is."
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
    body = _body(request, code=code, message=detail, status=error.status_code)
    return json_response(body, status=error.status_code, headers=dict(error.headers or {}))


def error_response(request: Request, error: AppError) -> Response:
    """Return the answer that tells `error`; faults of ours show a request id alone."""
    status = error.status
    if isinstance(error, BadInput) and _speaks_paddlex(request):
        status = _paddlex_status(error)
    log = getattr(_log, error.log_level)
    log("request_refused", code=error.code, message=error.message, request_id=request_id(request))
    headers = {}
    if status in _TEMPORARY:  # errors that crossed a process lost their seconds
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s or 1)))
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    body = _body(request, code=error.code, message=public_message(error), status=status)
    return json_response(body, status=status, headers=headers)


def public_message(error: AppError) -> str:
    """Return what the client may read."""
    return error.message if error.public else "Internal server error; the log has this request id."


def _paddlex_status(error: BadInput) -> HTTPStatus:
    """PaddleX answers 422 to every document that it cannot read."""
    about_document = error.status in (
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    )
    return HTTPStatus.UNPROCESSABLE_ENTITY if about_document else error.status


def _speaks_paddlex(request: Request) -> bool:
    return request.scope["path"] in PADDLEX_PATHS  # `url` would trust the Host header


def _body(request: Request, *, code: str, message: str, status: int) -> dict[str, Any]:
    if _speaks_paddlex(request):
        return {"logId": log_id(request), "errorCode": int(status), "errorMsg": message}
    return {"error": error_record(code, message, request_id(request))}


def error_record(code: str, message: str, request: str) -> dict[str, str]:
    """Return the native shape of an error."""
    return {"code": code, "message": message, "request_id": request}


def request_id(request: Request) -> str:
    """Return the id that the middleware chose or took over."""
    known: str | None = request.scope.get("state", {}).get("request_id")
    return known or uuid.uuid4().hex


def log_id(request: Request) -> str:
    """Return the id of PaddleX's envelope: the body's `logId`, else the request's."""
    known: str | None = request.scope.get("state", {}).get("log_id")
    return known or request_id(request)


def as_app_error(error: Exception) -> AppError:
    """Return `error` itself, or a defect that hides it from the client."""
    return error if isinstance(error, AppError) else Defect(repr(error))
