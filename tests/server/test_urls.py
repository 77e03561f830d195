"""Addresses are fetched only where allowed, and never into a private network."""

import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.abc
import httpx
import pytest

from pagemill.errors import AppError, EmptyBody, TooManyBytes, UrlFailed, UrlRefused
from pagemill.server.parts import ServerLimits
from pagemill.server.urls import fetch, is_public
from tests.descriptors import open_descriptors

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


async def numeric(host: str, port: int) -> list[str]:
    """Resolve as the system does, but only what needs no name server."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return [str(address[4][0]) for address in found]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1",
        "017700000001", "0", "0.0.0.0", "127.0.0.1.", "169.254.169.254", "2852039166", "[::1]",
        "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[fe80::1]", "[fec0::1]", "[fd00::1]", "[ff02::1]",
        "[2001:0:5ef5:79fd:0:0:80ff:fffe]", "10.1.2.3", "192.168.0.1", "172.31.255.255", "100.64.0.1",
        "198.18.0.1", "192.0.2.1", "240.0.0.1", "255.255.255.255", "224.0.0.1",
    ],
)  # fmt: skip
async def test_an_address_of_ours_is_refused_however_it_is_written(host: str) -> None:
    reached: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        reached.append(request)
        return ok(request)

    with pytest.raises((UrlRefused, UrlFailed)):
        await fetch(
            f"http://{host}/", OPEN, resolver=numeric, transport=httpx.MockTransport(answer)
        )
    assert reached == []


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "1.0.0.1"])
async def test_public_addresses_are_public(address: str) -> None:
    assert is_public(address)


async def test_the_hosts_own_names_are_resolved_and_refused() -> None:
    for host in ("localhost", "localhost.", "LOCALHOST"):
        with pytest.raises((UrlRefused, UrlFailed)):
            await fetch(f"http://{host}/", OPEN, transport=httpx.MockTransport(ok))


async def test_an_answer_of_the_name_server_that_changes_is_asked_for_once() -> None:
    """Rebinding: public when it is checked, private when it is connected to."""
    answers = iter([[PUBLIC], ["127.0.0.1"]])
    seen: list[str] = []

    async def resolver(_host: str, _port: int) -> list[str]:
        return next(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.host)
        return ok(request)

    transport = httpx.MockTransport(answer)
    with await fetch("http://a.example/", OPEN, resolver=resolver, transport=transport) as buffer:
        assert buffer.read() == b"document"
    assert seen == [PUBLIC]
    assert next(answers) == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("url", "address", "connected", "host", "sni"),
    [
        ("http://a.example/x?y#z", PUBLIC, f"http://{PUBLIC}/x?y", "a.example", "a.example"),
        ("https://A.Example./", PUBLIC, f"https://{PUBLIC}/", "a.example.", "a.example"),
        ("https://münchen.de/", PUBLIC, f"https://{PUBLIC}/", "xn--mnchen-3ya.de", "xn--mnchen-3ya.de"),
        ("https://a.example:444/", "2606::1", "https://[2606::1]:444/", "a.example:444", "a.example"),
        ("https://a.example:443/", PUBLIC, f"https://{PUBLIC}/", "a.example", "a.example"),
    ],
)  # fmt: skip
async def test_host_and_server_name_stay_those_of_the_address(
    url: str, address: str, connected: str, host: str, sni: str
) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return ok(request)

    assert await got(url, answer, addresses=(address,)) == b"document"
    (request,) = seen
    assert str(request.url).partition("#")[0] == connected
    assert request.headers.get_list("host") == [host]
    assert request.extensions["sni_hostname"] == sni


@pytest.mark.parametrize(
    "url",
    [
        "http://", "http:///x", "https://:80/", "http://u@example.com/", "http://u:p@example.com/",
        "http://:p@example.com/", "http://[::1/", "http://a b/", "http://a\x00b/", "http://exa\nmple/",
        "http://example.com:99999/", "http://example.com:-1/", "http://example.com:x/", "http://\u2024/",
        "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "javascript:1", "x", "",
        "http://" + "a" * 70 + ".com/", "http://xn--/",
    ],
)  # fmt: skip
async def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises((UrlRefused, UrlFailed)):
        await fetch(url, OPEN, transport=httpx.MockTransport(ok), resolver=numeric)


@pytest.mark.parametrize(
    "location",
    [
        "http://10.0.0.1/", "//127.0.0.1/", "https://[::1]/", "http://2130706433/", "file:///etc/passwd",
        "http://u:p@example.com/", "http://[/", "http://example.com:99999/", "ftp://example.com/",
    ],
)  # fmt: skip
async def test_a_redirect_passes_the_same_checks(location: str) -> None:
    async def resolver(host: str, port: int) -> list[str]:
        return [PUBLIC] if host == "a.example" else await numeric(host, port)

    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(302, headers={"location": location})

    transport = httpx.MockTransport(answer)
    with pytest.raises((UrlRefused, UrlFailed)):
        await fetch("http://a.example/", OPEN, resolver=resolver, transport=transport)
    assert asked == [PUBLIC]


async def test_a_redirect_carries_no_cookie_along() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if len(seen) > 1:
            return ok(request)
        return httpx.Response(302, headers={"location": "http://b.example/", "set-cookie": "a=b"})

    assert await got("http://a.example/", answer) == b"document"
    assert ["cookie" in request.headers for request in seen] == [False, False]


async def test_a_redirect_into_a_host_off_the_list() -> None:
    limits = ServerLimits(allow_urls=True, url_allow_hosts=("a.example",))
    with pytest.raises(UrlRefused, match="allow_hosts"):
        await got("http://a.example/", redirecting("http://b.example/"), limits=limits)


def failing(error: type[httpx.TransportError]) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error("secret", request=request)

    return answer


@pytest.mark.parametrize(
    "error", [httpx.ConnectError, httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.ReadError]
)
async def test_what_the_network_says_is_not_told(error: type[httpx.TransportError]) -> None:
    with pytest.raises(UrlFailed) as raised:
        await got("http://a.example/", failing(error))
    assert "secret" not in raised.value.message


async def test_names_without_address_and_slow_name_servers() -> None:
    async def unknown(_host: str, _port: int) -> list[str]:
        raise socket.gaierror("unknown")

    async def slow(_host: str, _port: int) -> list[str]:
        await anyio.sleep_forever()
        return []

    quick = ServerLimits(allow_urls=True, url_timeout_s=0.05)
    for resolver, limits, why in ((unknown, OPEN, "resolved"), (slow, quick, "within")):
        with pytest.raises(UrlFailed, match=why):
            await fetch(
                "http://a.example/", limits, resolver=resolver, transport=httpx.MockTransport(ok)
            )
    with pytest.raises(UrlFailed, match="no address"):
        await got("http://a.example/", ok, addresses=())


class Trickle(httpx.AsyncByteStream):
    def __init__(self, chunks: int, *, then_hangs: bool = False) -> None:
        self.chunks, self.then_hangs, self.closed = chunks, then_hangs, False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self.chunks):
            yield b"x" * 100
        if self.then_hangs:
            await anyio.sleep_forever()

    async def aclose(self) -> None:
        self.closed = True


async def test_a_document_that_trickles_or_never_ends() -> None:
    before = open_descriptors()
    quick = ServerLimits(allow_urls=True, url_timeout_s=0.05)
    slow, long = Trickle(2, then_hangs=True), Trickle(1000)
    with pytest.raises(UrlFailed, match="within"):
        await got("http://a.example/", lambda _: httpx.Response(200, stream=slow), limits=quick)
    with pytest.raises(TooManyBytes):
        await got("http://a.example/", lambda _: httpx.Response(200, stream=long))
    assert (slow.closed, long.closed) == (True, True)
    assert open_descriptors() == before


@pytest.mark.parametrize(
    ("status", "headers", "body", "error"),
    [
        (200, {"content-length": "1001"}, b"", TooManyBytes),
        (200, {"content-length": "9" * 5000}, b"", TooManyBytes),
        (200, {"content-length": "\u00b2".encode("latin-1")}, b"", EmptyBody),
        (200, {}, b"", EmptyBody),
        (204, {}, b"", UrlFailed),
        (206, {}, b"x", UrlFailed),
        (304, {}, b"", UrlFailed),
        (302, {}, b"", UrlFailed),
        (401, {}, b"secret", UrlFailed),
        (500, {}, b"secret", UrlFailed),
    ],
)
async def test_answers_that_hold_no_document(
    status: int, headers: dict[str, Any], body: bytes, error: type[AppError]
) -> None:
    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))

    with pytest.raises(error) as raised:
        await got("http://a.example/", answer)
    assert "secret" not in raised.value.message


async def test_over_a_real_socket_to_the_address_that_was_checked() -> None:
    heard: list[bytes] = []

    async def handle(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            heard.append(await stream.receive())
            await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\ndocument")

    async def resolver(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    limits = ServerLimits(allow_urls=True, url_allow_hosts=("a.example",))
    before = open_descriptors()
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, handle)
        url = f"http://a.example:{port}/x"
        with await fetch(url, limits, resolver=resolver) as buffer:
            assert buffer.read() == b"document"
        group.cancel_scope.cancel()
    assert b"\r\nhost: a.example:%d\r\n" % port in heard[0].lower()
    assert open_descriptors() <= before
