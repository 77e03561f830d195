"""The error tree: every way a request can end without its answer.

Divided by who must act:

    AppError
    ├── BadInput          the caller; retrying cannot help
    ├── Overloaded        the caller, after `retry_after_s`
    ├── WorkerLost        us; the request was accepted, then its workers died
    ├── DeadlineExceeded  the caller; ask again with more time
    └── Defect            us; the client sees a request id and nothing else
"""

from http import HTTPStatus
from typing import ClassVar, Final


class AppError(Exception):
    """Base. `code` is public API: documented, stable, tested."""

    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR
    code: ClassVar[str] = "internal_error"
    exit_code: ClassVar[int] = 70  # EX_SOFTWARE of sysexits.h
    log_level: ClassVar[str] = "error"
    public: ClassVar[bool] = True  # may the client read str(self)?

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        """Keep `message`, a sentence for the client, and when to try again."""
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s


class BadInput(AppError):
    """The request cannot be answered as it is; the message names the fix."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "bad_input"
    exit_code = 65  # EX_DATAERR
    log_level = "info"


class BadOption(BadInput):
    """A field or query parameter has a value outside its range."""

    code = "bad_option"


class EmptyBody(BadInput):
    """There is no document in the request."""

    status = HTTPStatus.BAD_REQUEST
    code = "empty_body"


class BadBase64(BadInput):
    """The document is not valid base64."""

    code = "bad_base64"


class UnsupportedType(BadInput):
    """The bytes are no document type that pagemill reads."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    code = "unsupported_type"


class DamagedInput(BadInput):
    """The type is known, but the bytes are truncated or corrupt."""

    code = "damaged_input"


class EncryptedDocument(BadInput):
    """A password is needed, or the one given is wrong."""

    code = "encrypted_document"


class TooManyBytes(BadInput):
    """The body is larger than `limits.max_bytes`."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code = "too_many_bytes"


class TooManyPixels(BadInput):
    """A page would decode to more than `limits.max_pixels`."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code = "too_many_pixels"


class TooManyPages(BadInput):
    """The document has more pages than `limits.max_pages`."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code = "too_many_pages"


class UrlRefused(BadInput):
    """Fetching this address is not allowed by the settings."""

    code = "url_refused"


class UrlFailed(BadInput):
    """The address was allowed, but gave no document in time."""

    code = "url_failed"


class PoisonInput(BadInput):
    """Reading this input killed or hung two workers; it is refused for a while."""

    code = "poison_input"
    log_level = "warning"


class NotInstalled(BadInput):
    """The option needs a model or runtime that this server does not have."""

    code = "not_installed"
    exit_code = 69  # EX_UNAVAILABLE


class Unauthorized(BadInput):
    """The key is missing or wrong."""

    status = HTTPStatus.UNAUTHORIZED
    code = "unauthorized"
    exit_code = 77  # EX_NOPERM


class NotAcceptable(BadInput):
    """No type that the client accepts can be made."""

    status = HTTPStatus.NOT_ACCEPTABLE
    code = "not_acceptable"


class RateLimited(BadInput):
    """The caller sent more than its share; `retry_after_s` says when to go on."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    code = "rate_limited"
    exit_code = 75  # EX_TEMPFAIL


class Overloaded(AppError):
    """Refused at the door; `retry_after_s` is computed from the backlog."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "overloaded"
    exit_code = 75  # EX_TEMPFAIL
    log_level = "warning"


class NotReady(Overloaded):
    """No worker can take this kind of work yet (or any more)."""

    code = "not_ready"


class ShuttingDown(Overloaded):
    """The server drains; another replica should answer."""

    code = "shutting_down"
    log_level = "info"


class WorkerLost(AppError):
    """Accepted, then worker after worker died of causes outside the input."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "worker_lost"
    exit_code = 75  # EX_TEMPFAIL


class DeadlineExceeded(AppError):
    """The request's deadline passed before its answer was whole."""

    status = HTTPStatus.GATEWAY_TIMEOUT
    code = "deadline_exceeded"
    exit_code = 75  # EX_TEMPFAIL
    log_level = "warning"


class Defect(AppError):
    """A fault of ours. The client sees a request id; the log has the rest."""

    public = False


def first_of(group: BaseExceptionGroup[AppError]) -> AppError:
    """Return the first error of a task group, however deep it is nested."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, AppError)
    return error


def _leaves(root: type[AppError]) -> list[type[AppError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _leaves(child))]


def all_errors() -> dict[str, type[AppError]]:
    """Every error class by its code; `Defect` stands for `internal_error`."""
    return {cls.code: cls for cls in _leaves(AppError)[1:]}


_BY_CODE: Final = all_errors()


def from_code(code: str, message: str) -> AppError:
    """Return the error that `code` names; an unknown code is a `Defect`.

    This is how an error survives crossing a process boundary: code and sentence
    travel, the class is looked up here.
    """
    cls = _BY_CODE.get(code, Defect)
    if cls is Defect:
        return Defect(message if code == Defect.code else f"{code}: {message}")
    return cls(message)
