"""What all contracts read from a request: who calls, until when, with which options."""

import hmac
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import anyio
from fastapi import Request

from pagemill.engine.task import Context
from pagemill.errors import BadOption, Unauthorized
from pagemill.pipelines.options import OcrOptions, parse_pages
from pagemill.server.errors import request_id
from pagemill.server.parts import ServerLimits

TIMEOUT_HEADER: Final = "x-request-timeout-seconds"


def context_of(request: Request, limits: ServerLimits) -> Context:
    """Return the request's context: its deadline counts from now.

    Raises:
        BadOption: the timeout header is no number in range.

    """
    asked = request.headers.get(TIMEOUT_HEADER)
    timeout_s = limits.default_timeout_s if asked is None else _timeout_s(asked, limits)
    return Context(request_id=request_id(request), deadline_s=anyio.current_time() + timeout_s)


def _timeout_s(text: str, limits: ServerLimits) -> float:
    message = (
        f"X-Request-Timeout-Seconds is {text[:20]!r}; "
        f"it must be above 0 and at most {limits.max_timeout_s:g}."
    )
    try:
        timeout_s = float(text)
    except ValueError as error:
        raise BadOption(message) from error
    if not 0 < timeout_s <= limits.max_timeout_s:
        raise BadOption(message)
    return timeout_s


def authorize(request: Request, keys: tuple[str, ...]) -> None:
    """Let the request pass when it sends one of `keys`, or when there are none.

    Raises:
        Unauthorized: it does not; the comparison takes the same time whatever was sent.

    """
    if not keys:
        return
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    sent = value.strip() if scheme.lower() in ("bearer", "token") else ""
    sent = sent or request.headers.get("x-api-key", "")
    matches = [hmac.compare_digest(sent.encode(), key.encode()) for key in keys]
    if not sent or not any(matches):  # an empty key opens nothing
        raise Unauthorized("Send a valid key as `Authorization: Bearer KEY` or `X-Api-Key`.")


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        with suppress(ValueError):
            if low <= (value := float(text)) <= high:
                return value
        message = f"a number from {low:g} to {high:g}"
        raise ValueError(message)

    return parse


def _boolean(text: str) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in known:
        message = "true or false"
        raise ValueError(message)
    return known[text.lower()]


def _choice(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            message = " or ".join(names)
            raise ValueError(message)
        return text

    return parse


def _side(text: str) -> int:
    value = _number(32, 4000)(text)
    if not value.is_integer():
        message = "a whole number"
        raise ValueError(message)
    return int(value)


_OPTIONS: Final[Mapping[str, Callable[[str], Any]]] = {
    "pages": parse_pages,
    "password": str,
    "orientation": _choice("auto", "off", "model"),
    "line_angle": _boolean,
    "words": _boolean,
    "min_confidence": _number(0, 1),
    "det_side_px": _side,
    "det_side_type": _choice("min", "max"),
    "det_threshold": _number(0, 1),
    "det_box_threshold": _number(0, 1),
    "det_unclip_ratio": _number(0.5, 10),
}


def options_of(fields: Mapping[str, str], defaults: OcrOptions) -> OcrOptions:
    """Return `defaults` with what `fields` choose.

    Raises:
        BadOption: an unknown name, or a value outside its range.

    """
    chosen: dict[str, Any] = {}
    for name, text in fields.items():
        parse = _OPTIONS.get(name)
        if parse is None:
            message = f"There is no option `{name[:40]}`; there are {', '.join(_OPTIONS)}."
            raise BadOption(message)
        try:
            chosen[name] = parse(text)
        except ValueError as error:
            message = f"`{name}` is {text[:40]!r}; it must be {error}."
            raise BadOption(message) from error
    return replace(defaults, **chosen)
