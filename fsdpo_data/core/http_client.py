"""HTTP requests: bounded responses, and the one rule for repeating a request.

A server may send without end, or one byte per minute, so each body has a limit of bytes and of
time.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fsdpo_data.core import event_loop
from fsdpo_data.core.errors import UnavailableError

if TYPE_CHECKING:
    import httpx2

#: HTTP statuses of temporary failures: timeouts, rate limits and server errors.
RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
MAX_DELAY_SECONDS = 60.0  #: Longest delay, even if a server requests a longer one.
MAX_ATTEMPTS = 6  #: Maximum number of attempts of :func:`call_with_retries`.

ResultT = TypeVar("ResultT")


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
        body = await _read_body(response, url, max_bytes)
        return HttpResponse(response.status_code, response.headers, body)


async def _read_body(response: "httpx2.Response", url: str, max_bytes: int) -> bytes:
    """Return the body of a response; an UnavailableError if it is too large."""
    body = bytearray()
    async for block in response.aiter_bytes():
        body += block
        if len(body) > max_bytes:
            raise UnavailableError(
                f"{url}: the response exceeds {max_bytes:,} bytes, so it is not what was "
                "requested. Check the address and the server."
            )
    return bytes(body)


def download(url: str, *, max_bytes: int, timeout: float) -> bytes:
    """Return the content of an address, after redirects and temporary failures.

    Args:
        url: Address.
        max_bytes: Maximum size of the content.
        timeout: Maximum number of seconds between two blocks, and in total ten times as many.

    Raises:
        UnavailableError: if the content is too large.
        TimeoutError: if the response takes too long.
        httpx2.HTTPError: if the connection fails, or the server refuses.
    """

    def download_once() -> bytes:
        return event_loop.call(lambda: _get_content(url, max_bytes, timeout))

    return call_with_retries(download_once)


async def _get_content(url: str, max_bytes: int, timeout: float) -> bytes:
    """Return the content of an address after one request."""
    import httpx2

    try:
        async with (
            asyncio.timeout(10 * timeout),
            httpx2.AsyncClient(timeout=timeout, follow_redirects=True) as client,
            client.stream("GET", url) as response,
        ):
            response.raise_for_status()
            return await _read_body(response, url, max_bytes)
    except TimeoutError:
        seconds = 10 * timeout
        raise TimeoutError(f"the response takes more than {seconds:g} seconds") from None


def call_with_retries(function: Callable[..., ResultT], *args: Any, **kwargs: Any) -> ResultT:
    """Call a function that sends a request, and repeat the call while the server is too busy.

    The errors of httpx and of the Hub's client have the ``response`` of the server. An error
    without a response is not repeated: without a network, attempts only delay the message.
    """
    attempt = 0
    while True:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            response = getattr(error, "response", None)
            if response is None or response.status_code not in RETRYABLE_STATUSES:
                raise
            retry_after = response.headers.get("Retry-After", "")
            delay = retry_delay(retry_after, attempt, max_attempts=MAX_ATTEMPTS)
            if delay is None:
                raise
            time.sleep(delay)
            attempt += 1


def retry_delay(
    retry_after: str, attempt: int, *, max_attempts: float = math.inf, max_seconds: float = math.inf
) -> float | None:
    """Return the seconds to wait after a failed attempt; None to give up.

    The ``Retry-After`` header has priority, in seconds or as a date (RFC 9110, 10.2.3). Without it,
    the delay doubles with every attempt. Random jitter removes up to half of the delay, so that
    clients do not all return at the same time.

    Args:
        retry_after: Value of the ``Retry-After`` header; empty if missing.
        attempt: Number of the failed attempt, from 0.
        max_attempts: Maximum number of attempts.
        max_seconds: Maximum delay of this caller; a longer one means to give up.
    """
    if attempt + 1 >= max_attempts:
        return None
    seconds = 2.0 ** min(attempt, 10) * random.uniform(0.5, 1)
    with suppress(ValueError):
        requested_seconds = float(retry_after)
        if not math.isnan(requested_seconds):
            seconds = requested_seconds
    with suppress(ValueError, TypeError):
        seconds = (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
    seconds = min(max(seconds, 0.0), MAX_DELAY_SECONDS)
    return seconds if seconds <= max_seconds else None
