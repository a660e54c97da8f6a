"""The client of a model server: concurrent requests with retries, and errors that name the server.

Samplers and scorers of the engine ``openai`` share it.
"""

import asyncio
import itertools
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

import httpx2

from fsdpo_data.core import event_loop
from fsdpo_data.core.errors import FsdpoError, InputError, ItemError, UnavailableError
from fsdpo_data.core.http_client import RETRYABLE_STATUSES, HttpResponse, request, retry_delay
from fsdpo_data.core.input_files import parse_json
from fsdpo_data.core.terminal import strip_control_characters
from fsdpo_data.engines.item_errors import ItemResult
from fsdpo_data.engines.options import ConnectionOptions
from fsdpo_data.engines.registry import engine_error

#: The environment variable with the API key. The key is not stored anywhere else.
API_KEY_VARIABLE = "OPENAI_API_KEY"
CONNECT_TIMEOUT_SECONDS = 10.0  #: Seconds to wait for a connection.
CHECK_TIMEOUT_SECONDS = 60.0  #: Seconds to wait for the list of models.
#: Seconds in which requests fail and no response arrives, after which the client gives up.
IDLE_TIMEOUT_SECONDS = 600.0
MAX_OVERHEAD_BYTES = 2**23  #: Maximum size of a response without its completions.
#: Errors of reading a response that does not follow the API of the server.
PARSE_ERRORS = (ValueError, LookupError, TypeError, AttributeError, OverflowError)
#: Statuses with which a server refuses one request, and not every request: a prompt that is too
#: long or too large, another reason in the prompt, and content that it must not process.
REJECTION_STATUSES = frozenset({400, 413, 422, 451})
INTERNAL_ERROR_STATUS = 500  #: Status of a server that failed at a request.
#: Answers without a result, one after the other, after which a test request is sent.
MAX_ANSWERS_WITHOUT_RESULT = 6
_MAX_QUOTED_CHARS = 300  #: Characters of a response in an error message.

ResultT = TypeVar("ResultT")

log = logging.getLogger(__name__)


class RejectedError(ItemError):
    """A request that the server rejects, with a status of :data:`REJECTION_STATUSES`."""


class _NoResultError(Exception):
    """An answer without a result, such as a status of 500 or a body that reports an error.

    Args:
        message: The status or the error of reading, and the start of the body.
        retry_after: Value of the ``Retry-After`` header; empty if missing.
        is_busy: Whether the server or a proxy refuses requests of any kind for a time.
    """

    def __init__(self, message: str, *, retry_after: str = "", is_busy: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.is_busy = is_busy


class ServerClient:
    """A client of one server, with the key of the environment.

    Args:
        options: The address and the limits of the connection.
        url: The address without the paths of requests.
        hint: The options to check after a rejected request, for error messages.
        saved: What the run keeps if the server does not come back, for error messages.
    """

    def __init__(self, options: ConnectionOptions, url: str, *, hint: str, saved: str) -> None:
        self.url = url
        self._options = options
        self._hint = hint
        self._saved = saved
        self._key = os.environ.get(API_KEY_VARIABLE, "")
        self._last_response_time = 0.0

    def open(self) -> httpx2.AsyncClient:
        """Return an HTTP client, to use as a context manager."""
        return httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx2.Timeout(self._options.timeout, connect=CONNECT_TIMEOUT_SECONDS),
            limits=httpx2.Limits(max_connections=self._options.concurrency),
        )

    async def get(self, client: httpx2.AsyncClient, path: str) -> HttpResponse:
        """Return a response, without retries, so that mistakes are reported at once.

        Raises:
            UnavailableError: if no server answers.
        """
        try:
            return await request(
                client,
                "GET",
                f"{self.url}{path}",
                max_bytes=MAX_OVERHEAD_BYTES,
                timeout=CHECK_TIMEOUT_SECONDS,
            )
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            raise self.unavailable_error(f"no server answers ({_first_line(error)}).") from None

    async def list_models(
        self, client: httpx2.AsyncClient, path: str = "/models"
    ) -> dict[str, dict[str, Any]] | None:
        """Return the models of the server by name; None if it has no list of models.

        Raises:
            InputError: if the server rejects the request.
            UnavailableError: if no server answers, it has another API, it rejects the key, or it is
                busy for ``IDLE_TIMEOUT_SECONDS``.
        """
        response = await self._get_when_ready(client, path)
        if response.status == INTERNAL_ERROR_STATUS:
            log.warning(
                f"{self.url} does not list its models ({response.status}: "
                f"{self._quote(response)}), so the name of the model is not checked, and sampling "
                "defaults of a checkpoint may apply."
            )
        if response.status in (404, INTERNAL_ERROR_STATUS):
            return None
        if response.status != 200:
            raise self.response_error(response)
        try:
            return {str(model["id"]): model for model in parse_json(response.body)["data"]}
        except PARSE_ERRORS:
            raise self.unavailable_error(
                "the server does not follow the OpenAI API. Check the address."
            ) from None

    async def _get_when_ready(self, client: httpx2.AsyncClient, path: str) -> HttpResponse:
        """Return a response, and repeat the request while the server is busy.

        A server that fails at this request, again and again, is not busy.

        Raises:
            UnavailableError: if no server answers, or it is busy for ``IDLE_TIMEOUT_SECONDS``.
        """
        deadline = time.monotonic() + IDLE_TIMEOUT_SECONDS
        for attempt in itertools.count():
            response = await self.get(client, path)
            has_failed = (
                response.status == INTERNAL_ERROR_STATUS
                and attempt + 1 >= MAX_ANSWERS_WITHOUT_RESULT
            )
            if response.status not in RETRYABLE_STATUSES or has_failed:
                break
            if not attempt:
                log.warning(f"{self.url} is busy (status {response.status}): waiting for it")
            retry_after = response.headers.get("Retry-After", "")
            delay = retry_delay(retry_after, attempt, max_seconds=deadline - time.monotonic())
            if delay is None:
                raise self.unavailable_error(
                    f"no list of models in {IDLE_TIMEOUT_SECONDS:g} seconds (the server answered "
                    f"{response.status}: {self._quote(response)}). Try again when the server is "
                    "ready."
                )
            await asyncio.sleep(delay)
        return response

    async def post(
        self,
        client: httpx2.AsyncClient,
        path: str,
        body: Mapping[str, Any],
        *,
        max_bytes: int,
        parse: Callable[[Any, float], ResultT],
        test_body: Mapping[str, Any] | None = None,
    ) -> ResultT:
        """Send a request until it succeeds, or until the server is idle for too long.

        A server may answer all requests but one. After some answers without a result, a short test
        request shows whether the server or the request has failed.

        Args:
            client: The client of :meth:`open`.
            path: Path of the request.
            body: The JSON body.
            max_bytes: Maximum size of the response.
            parse: Returns the result of a JSON response and of the seconds that it took. Errors of
                a response in another form are repeated too.
            test_body: The JSON body of the test request; None without one.

        Raises:
            RejectedError: if the server rejects the request as invalid.
            ItemError: if the server answers the test request, and not this one.
            UnavailableError: if requests failed for ``IDLE_TIMEOUT_SECONDS``, or the key is wrong.
        """
        attempt = 0
        n_answers = 0  # without a result, one after the other
        first_failure_time = math.inf

        async def send(body: Mapping[str, Any], timeout: float) -> ResultT:
            return await self._post_once(
                client, path, body, max_bytes=max_bytes, timeout=timeout, parse=parse
            )

        while True:
            try:
                result = await send(body, self._options.timeout)
            except FsdpoError:
                raise
            except (httpx2.HTTPError, TimeoutError, _NoResultError) as error:
                failure_time = time.monotonic()
                first_failure_time = min(first_failure_time, failure_time)
                idle_since = max(first_failure_time, self._last_response_time)
                seconds_left = IDLE_TIMEOUT_SECONDS - (failure_time - idle_since)
                retry_after = getattr(error, "retry_after", "")
                delay = retry_delay(retry_after, attempt, max_seconds=seconds_left)
                is_answer = isinstance(error, _NoResultError) and not error.is_busy
                n_answers = n_answers + 1 if is_answer else 0
                is_test_due = delay is None or n_answers % MAX_ANSWERS_WITHOUT_RESULT == 0
                if n_answers and is_test_due and test_body and await _succeeds(send, test_body):
                    raise ItemError(
                        f"the server answers other requests, but this one {n_answers} times "
                        f"without a result ({_first_line(error)})"
                    ) from None
                if delay is None:
                    raise self.unavailable_error(
                        f"no response in {IDLE_TIMEOUT_SECONDS:g} seconds "
                        f"({_first_line(error)}). {self._saved}"
                    ) from None
                await asyncio.sleep(delay)
                attempt += 1
            else:
                self._last_response_time = time.monotonic()
                return result

    async def _post_once(
        self,
        client: httpx2.AsyncClient,
        path: str,
        body: Mapping[str, Any],
        *,
        max_bytes: int,
        timeout: float,
        parse: Callable[[Any, float], ResultT],
    ) -> ResultT:
        """Send a request once; the arguments are those of :meth:`post`.

        Raises:
            FsdpoError: if a repetition cannot succeed.
            _NoResultError: if the answer has no result.
            TimeoutError, httpx2.HTTPError: if no answer arrives.
        """
        start_time = time.monotonic()
        response = await request(
            client, "POST", f"{self.url}{path}", max_bytes=max_bytes, timeout=timeout, json=body
        )
        if response.status not in (200, *RETRYABLE_STATUSES):
            raise self.response_error(response)
        if response.status != 200:
            raise _NoResultError(
                f"the server answered {response.status}: {self._quote(response)}",
                retry_after=response.headers.get("Retry-After", ""),
                is_busy=response.status != INTERNAL_ERROR_STATUS,
            )
        try:
            return parse(parse_json(response.body), time.monotonic() - start_time)
        except PARSE_ERRORS as error:
            message = f"the answer has no result, {_first_line(error)}: {self._quote(response)}"
            raise _NoResultError(message) from error

    def send_all(
        self, send: Callable[[httpx2.AsyncClient, int], Awaitable[ResultT]], count: int
    ) -> Iterator[ItemResult[ResultT]]:
        """Yield the index and the result of ``count`` calls of ``send`` as they arrive.

        An error of a single request is its result. After another error, start no request, and raise
        the error after the results that still arrive.
        """
        return event_loop.iterate(lambda: self._send_all(send, count))

    async def _send_all(
        self, send: Callable[[httpx2.AsyncClient, int], Awaitable[ResultT]], count: int
    ) -> AsyncIterator[ItemResult[ResultT]]:
        request_slots = asyncio.Semaphore(self._options.concurrency)
        errors: list[FsdpoError] = []
        async with self.open() as client:

            async def send_one(index: int) -> ItemResult[ResultT] | None:
                async with request_slots:
                    if errors:
                        return None
                    try:
                        return index, await send(client, index)
                    except ItemError as error:
                        return index, error
                    except FsdpoError as error:
                        errors.append(error)
                        return None

            tasks = [asyncio.create_task(send_one(index)) for index in range(count)]
            for task in asyncio.as_completed(tasks):
                result = await task
                if result is not None:
                    yield result
        if errors:
            raise errors[0]

    def response_error(self, response: HttpResponse) -> FsdpoError:
        """Return the error for a status that a retry cannot change. The key is never quoted."""
        if response.status in (401, 403):
            key_state = "is refused" if self._key else "is not set"
            return self.unavailable_error(
                f"the server answered {response.status}: {API_KEY_VARIABLE} {key_state}."
            )
        error_class = RejectedError if response.status in REJECTION_STATUSES else InputError
        return error_class(
            f"the server answered {response.status}: {self._quote(response)}. {self._hint}",
            field="base_url",
            value=self.url,
        )

    def _quote(self, response: HttpResponse) -> str:
        """Return the start of a body in one line, without the key."""
        text = response.body.decode(errors="replace")
        if self._key:
            text = text.replace(self._key, "…")
        return strip_control_characters(" ".join(text.split())[:_MAX_QUOTED_CHARS])

    def unavailable_error(self, message: str) -> UnavailableError:
        """Return the error for a server that cannot be used."""
        return engine_error("openai", f"{self.url}: {message}")


def connect_scorer(options: ConnectionOptions) -> ServerClient:
    """Return a client of the server of a reward model, whose paths do not start with /v1."""
    assert options.base_url is not None
    return ServerClient(
        options,
        options.base_url.rstrip("/").removesuffix("/v1"),
        hint="Check the address and the model.",
        saved="The rewards of finished files are saved; resume the run when the server is back.",
    )


async def _succeeds(
    send: Callable[[Mapping[str, Any], float], Awaitable[Any]], body: Mapping[str, Any]
) -> bool:
    """Return whether a request has a result."""
    try:
        await send(body, CHECK_TIMEOUT_SECONDS)
    except (httpx2.HTTPError, TimeoutError, FsdpoError, _NoResultError):
        return False
    return True


def _first_line(error: Exception) -> str:
    if isinstance(error, _NoResultError):
        return str(error)
    return f"{type(error).__name__}: {error}".splitlines()[0].removesuffix(": ")
