"""Bounded reading of HTTP responses: a server may send without end, or one byte per minute."""

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from fsdpo_data.core.errors import UnavailableError

if TYPE_CHECKING:
    import httpx2


class HttpResponse(NamedTuple):
    """A complete response of a server."""

    status: int  #: HTTP status.
    headers: "httpx2.Headers"  #: The headers.
    body: bytes  #: The body, without compression.


async def request(
    client: "httpx2.AsyncClient",
    method: str,
    url: str,
    *,
    max_bytes: int,
    timeout: float,
    **arguments: Any,
) -> HttpResponse:
    """Send a request, and read the response.

    Args:
        client: The client.
        method: HTTP method.
        url: Address.
        max_bytes: Maximum size of the body.
        timeout: Maximum number of seconds until the response is complete.
        arguments: Further arguments of the client, such as ``json``.

    Raises:
        UnavailableError: if the body is too large.
        TimeoutError: if the response takes too long.
        httpx2.HTTPError: if the connection fails.
    """
    async with asyncio.timeout(timeout), client.stream(method, url, **arguments) as response:
        body = bytearray()
        async for block in response.aiter_bytes():
            body += block
            _check_size(url, len(body), max_bytes)
        return HttpResponse(response.status_code, response.headers, bytes(body))


def download(url: str, *, max_bytes: int, timeout: float) -> HttpResponse:
    """Get an address, and follow its redirects.

    Args:
        url: Address.
        max_bytes: Maximum size of the body.
        timeout: Maximum number of seconds between two blocks, and in total ten times as many.

    Raises:
        UnavailableError: if the body is too large.
        TimeoutError: if the response takes too long.
        httpx2.HTTPError: if the connection fails.
    """
    import httpx2

    deadline = time.monotonic() + 10 * timeout
    with httpx2.stream("GET", url, timeout=timeout, follow_redirects=True) as response:
        body = bytearray()
        for block in response.iter_bytes():
            body += block
            _check_size(url, len(body), max_bytes)
            if time.monotonic() > deadline:
                raise TimeoutError(f"the response takes more than {10 * timeout:g} seconds")
        return HttpResponse(response.status_code, response.headers, bytes(body))


def _check_size(url: str, size: int, max_bytes: int) -> None:
    """Raise an UnavailableError for a body that is too large."""
    if size > max_bytes:
        raise UnavailableError(
            f"{url}: the response exceeds {max_bytes:,} bytes, so it is not what was requested. "
            "Check the address and the server."
        )
