"""Documents from addresses: only where the settings allow, never into our own network.

A name is resolved once, every address checked, and the connection made to the very
address that was checked, so that DNS cannot change its answer in between. Redirects
go through the same check.
"""

import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import httpx

from pagemill.engine.buffers import Buffer, BufferWriter
from pagemill.errors import EmptyBody, UrlFailed, UrlRefused
from pagemill.server.body import announced_bytes, too_many_bytes
from pagemill.server.parts import ServerLimits

MAX_REDIRECTS: Final = 3
_LAST_PORT: Final = 65535
_NETWORKS_WITHIN: Final = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "::/96",  # IPv4-compatible (RFC 4291): the last 32 bits
        "64:ff9b::/96",  # translated (RFC 6052): likewise
    )
)
_LOCAL: Final = (
    ipaddress.IPv6Network("64:ff9b:1::/48"),  # translated, for local use (RFC 8215)
    ipaddress.IPv6Network("fec0::/10"),  # site-local (RFC 3879)
)
Resolve = Callable[[str, int], Awaitable[list[str]]]


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of `host`.

    Raises:
        OSError: there are none.

    """
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[4][0]) for address in found]


async def fetch(
    url: str,
    limits: ServerLimits,
    *,
    resolver: Resolve = resolve,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Buffer:
    """Return what is at `url`; the caller closes it.

    Raises:
        UrlRefused: the settings do not allow it, or it leads into a private network.
        UrlFailed: no document came in time.
        TooManyBytes: it is larger than the limit.

    """
    if not limits.allow_urls:
        message = "`file` is an address; send the document itself, or set fetch.allow_urls."
        raise UrlRefused(message)
    client = httpx.AsyncClient(
        transport=transport, trust_env=False, timeout=limits.url_timeout_s, follow_redirects=False
    )
    try:
        with anyio.fail_after(limits.url_timeout_s):
            async with client:
                return await _follow(client, url, limits, resolver)
    except TimeoutError as error:
        message = f"The address gave no document within {limits.url_timeout_s:g} s."
        raise UrlFailed(message) from error
    except httpx.HTTPError as error:
        message = f"The address cannot be fetched ({type(error).__name__})."
        raise UrlFailed(message) from error


async def _follow(
    client: httpx.AsyncClient, url: str, limits: ServerLimits, resolver: Resolve
) -> Buffer:
    target = _parsed(url)
    for _ in range(MAX_REDIRECTS + 1):
        address = await _checked_address(target, limits, resolver)
        pinned = target.copy_with(host=address)
        request = client.build_request(
            "GET",
            pinned,
            headers={"Host": target.netloc.decode(), "Accept-Encoding": "identity"},
            extensions={"sni_hostname": target.raw_host.decode("ascii").rstrip(".")},
        )
        response = await client.send(request, stream=True)
        try:
            if not response.has_redirect_location:
                return await _content(response, limits)
            target = _parsed(response.headers["location"], base=target)
        finally:
            await response.aclose()
            client.cookies.clear()  # two names may share an address
    message = f"The address redirects more than {MAX_REDIRECTS} times."
    raise UrlFailed(message)


def _parsed(url: str, *, base: httpx.URL | None = None) -> httpx.URL:
    try:
        target = httpx.URL(url) if base is None else base.join(url)
        host, port = target.host, target.port  # the host is decoded only now
    except (httpx.InvalidURL, UnicodeError) as error:
        message = "`file` is no valid address."
        raise UrlRefused(message) from error
    if target.scheme not in ("http", "https") or not host or not 0 < (port or 80) <= _LAST_PORT:
        message = "Only http and https addresses are fetched."
        raise UrlRefused(message)
    if target.userinfo:
        message = "Addresses with a user or password are not fetched."
        raise UrlRefused(message)
    return target


async def _checked_address(target: httpx.URL, limits: ServerLimits, resolver: Resolve) -> str:
    """Return an address to connect to, all of the host's being public."""
    host = target.host.rstrip(".").lower()
    trusted = host in {name.lower() for name in limits.url_allow_hosts}
    if limits.url_allow_hosts and not trusted:
        message = f"{host} is not in fetch.allow_hosts."
        raise UrlRefused(message)
    port = target.port or {"http": 80, "https": 443}[target.scheme]
    try:
        addresses = await resolver(host, port)
    except (OSError, UnicodeError) as error:
        message = f"The host {host} cannot be resolved."
        raise UrlFailed(message) from error
    if not addresses:
        message = f"The host {host} has no address."
        raise UrlFailed(message)
    if not trusted and not all(is_public(address) for address in addresses):
        message = f"{host} leads into a private network; name it in fetch.allow_hosts to allow it."
        raise UrlRefused(message)
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether `address` belongs to the public internet, whatever it is wrapped in."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo and parsed.teredo[1])
        if inner:
            return is_public(str(inner))
        if any(parsed in network for network in _NETWORKS_WITHIN):
            return is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
        if any(parsed in network for network in _LOCAL):
            return False
    return parsed.is_global and not parsed.is_multicast


async def _content(response: httpx.Response, limits: ServerLimits) -> Buffer:
    if response.status_code != httpx.codes.OK:
        message = f"The address answered with status {response.status_code}."
        raise UrlFailed(message)
    if announced_bytes(response.headers) > limits.max_bytes:
        raise too_many_bytes(limits.max_bytes)
    with BufferWriter() as writer:
        async for chunk in response.aiter_raw():
            if writer.size + len(chunk) > limits.max_bytes:
                raise too_many_bytes(limits.max_bytes)
            writer.write(chunk)
        if not writer.size:
            message = "The address gave an empty document."
            raise EmptyBody(message)
        return writer.buffer()
