"""JSON answers, encoded once and the same way everywhere."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

_encode: Final = msgspec.json.Encoder().encode


def json_response(
    body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return `body` as JSON."""
    return Response(
        _encode(body), status_code=int(status), headers=headers, media_type="application/json"
    )


def json_line(body: Any) -> bytes:
    """Return `body` as one line of NDJSON."""
    return _encode(body) + b"\n"
