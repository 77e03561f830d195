"""Addresses are fetched only where allowed, and never into a private network."""

from collections.abc import Callable

import httpx
import pytest

from pagemill.errors import AppError, TooManyBytes, UrlFailed, UrlRefused
from pagemill.server.parts import ServerLimits
from pagemill.server.urls import fetch, is_public

pytestmark = pytest.mark.anyio
PUBLIC = "93.184.216.34"
OPEN = ServerLimits(allow_urls=True, max_bytes=1000)


async def got(
    url: str,
    answer: Callable[[httpx.Request], httpx.Response],
    *,
    addresses: tuple[str, ...] = (PUBLIC,),
    limits: ServerLimits = OPEN,
) -> bytes:
    async def resolver(_host: str, _port: int) -> list[str]:
        return list(addresses)

    transport = httpx.MockTransport(answer)
    with await fetch(url, limits, resolver=resolver, transport=transport) as buffer:
        return buffer.read()


def ok(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, stream=httpx.ByteStream(b"document"))


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return ok(request)

    assert await got("https://example.com:8443/a.png?b=c", answer) == b"document"
    (request,) = seen
    assert request.url == f"https://{PUBLIC}:8443/a.png?b=c"
    assert request.headers["host"] == "example.com:8443"
    assert request.extensions["sni_hostname"] == "example.com"


async def test_addresses_are_refused_unless_allowed() -> None:
    with pytest.raises(UrlRefused, match=r"fetch\.allow_urls"):
        await got("http://example.com/", ok, limits=ServerLimits())


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0",
        "100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1",
        "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1%eth0", "nonsense",
    ],
)  # fmt: skip
async def test_private_addresses_are_refused_whatever_they_are_wrapped_in(address: str) -> None:
    assert not is_public(address)
    with pytest.raises(UrlRefused, match="private"):
        await got("http://example.com/", ok, addresses=(PUBLIC, address))


def redirecting(target: str, times: int = 1) -> Callable[[httpx.Request], httpx.Response]:
    left = times

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal left
        left -= 1
        if left < 0:
            return ok(request)
        return httpx.Response(302, headers={"location": target})

    return answer


async def test_redirects_are_followed_and_bounded() -> None:
    assert await got("http://example.com/", redirecting("/next", 3)) == b"document"
    with pytest.raises(UrlFailed, match="redirects"):
        await got("http://example.com/", redirecting("/next", 4))


async def test_a_redirect_into_a_private_network_is_refused() -> None:
    async def resolver(host: str, _port: int) -> list[str]:
        return ["127.0.0.1"] if host == "inside" else [PUBLIC]

    transport = httpx.MockTransport(redirecting("http://inside/"))
    with pytest.raises(UrlRefused, match="private"):
        await fetch("http://example.com/", OPEN, resolver=resolver, transport=transport)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("http://user:password@example.com/", UrlRefused),
        ("ftp://example.com/", UrlRefused),
        ("http://", UrlRefused),
    ],
)
async def test_odd_addresses_are_refused(url: str, error: type[AppError]) -> None:
    with pytest.raises(error):
        await got(url, ok)


async def test_only_listed_hosts_when_there_is_a_list() -> None:
    limits = ServerLimits(allow_urls=True, url_allow_hosts=("files.local",))
    inside = ("10.0.0.5",)
    assert await got("http://Files.local./x", ok, addresses=inside, limits=limits) == b"document"
    with pytest.raises(UrlRefused, match="allow_hosts"):
        await got("http://example.com/", ok, limits=limits)


async def test_what_is_too_large_or_missing_is_told() -> None:
    with pytest.raises(TooManyBytes):
        await got(
            "http://example.com/",
            lambda _: httpx.Response(200, stream=httpx.ByteStream(b"x" * 1001)),
        )
    with pytest.raises(UrlFailed, match="404"):
        await got("http://example.com/", lambda _: httpx.Response(404))
