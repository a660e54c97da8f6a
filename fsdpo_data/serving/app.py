"""The HTTP application: routes, the token, limits on sizes, and errors as JSON."""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import uuid4

import orjson
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.serving.requests import PoolingRequest, parse_pooling, parse_step_rewards
from fsdpo_data.serving.served_model import ServedModel

BODY_TIMEOUT_SECONDS = 30.0  #: Seconds in which the body of a request must arrive.
RETRY_AFTER_SECONDS = 1  #: Seconds after which a client repeats a request that found no place.

_logger = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The limits of a server."""

    max_body_bytes: int  #: Maximum size of a body.
    max_requests: int  #: Maximum number of requests that wait for rewards or get them.


class _RequestError(Exception):
    """A request that the server answers with an error.

    Args:
        status: HTTP status.
        message: The expectation and the next step.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class PrmApp:
    """The application of one reward model.

    Args:
        model: The loaded model.
        limits: The limits of the server.
        token: The token that clients send as ``Authorization: Bearer TOKEN``; empty for none.
    """

    def __init__(self, model: ServedModel, limits: ServerLimits, token: str = "") -> None:
        self._model = model
        self._limits = limits
        self._token = token.encode()
        self._n_requests = 0
        self._threads: CapacityLimiter | None = None

    def make_app(self) -> Starlette:
        """Return the application with its routes."""
        return Starlette(
            routes=[
                Route("/health", self._get_health, methods=["GET"]),
                Route("/v1/models", self._answer(self._get_models), methods=["GET"]),
                Route("/step_rewards", self._answer(self._post_step_rewards), methods=["POST"]),
                Route("/pooling", self._answer(self._post_pooling), methods=["POST"]),
            ]
        )

    async def _get_health(self, _request: Request) -> Response:
        """Answer without a token, for load balancers; the model is loaded."""
        return _json_response({"status": "ok"})

    async def _get_models(self, _request: Request) -> Any:
        return {"object": "list", "data": [self._model.describe()]}

    async def _post_step_rewards(self, request: Request) -> Any:
        body = await self._read_body(request)
        solution = parse_step_rewards(body, self._model.ref.name)
        item = self._model.make_input(solution.question, solution.prompt, solution.steps)
        rewards = await self._run(lambda: self._model.score(item))
        return {"model": self._model.ref.name, "rewards": rewards}

    async def _post_pooling(self, request: Request) -> Any:
        body = await self._read_body(request)
        pooling = parse_pooling(body, self._model.ref.name)
        return await self._run(lambda: self._classify(pooling))

    def _classify(self, pooling: PoolingRequest) -> dict[str, Any]:
        """Return the answer to a pooling request, in vLLM's form."""
        inputs = [
            self._model.make_token_input(text, add_special_tokens=pooling.add_special_tokens)
            for text in pooling.texts
        ]
        logits = self._model.classify(inputs)
        if pooling.use_activation:
            logits = [
                [activate_classes(token_logits, self._model.activation) for token_logits in text]
                for text in logits
            ]
        n_tokens = sum(len(token_input.input_ids) for token_input in inputs)
        return {
            "id": f"pool-{uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": self._model.ref.name,
            "data": [
                {"index": index, "object": "pooling", "data": text}
                for index, text in enumerate(logits)
            ],
            "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
        }

    def _answer(self, handle: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Return a handler that checks the token, and answers with JSON, also after errors."""

        async def answer(request: Request) -> Response:
            try:
                self._check_token(request)
                return _json_response(await handle(request))
            except _RequestError as error:
                return _error_response(error.status, error.message)
            except InputError as error:
                return _error_response(400, str(error))
            except ClientDisconnect:  # the client is gone, and reads no answer
                return Response(status_code=400)
            except FsdpoError as error:
                _logger.error("%s", error)
                return _error_response(500, str(error))
            except Exception:
                _logger.exception("%s %s failed", request.method, request.url.path)
                return _error_response(500, "an internal error; the log of the server has it.")

        return answer

    def _check_token(self, request: Request) -> None:
        if not self._token:
            return
        expected = b"Bearer " + self._token
        header = request.headers.get("authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(header, expected):
            raise _RequestError(401, "send the token of the server: Authorization: Bearer TOKEN.")

    async def _read_body(self, request: Request) -> bytes:
        """Return the body of a request.

        Raises:
            _RequestError: if the body is too large or too slow.
        """
        max_bytes = self._limits.max_body_bytes
        too_large = _RequestError(413, f"the body exceeds {max_bytes:,} bytes. Send less text.")
        declared = request.headers.get("content-length", "0")
        if not declared.isdecimal() or len(declared) > 18 or int(declared) > max_bytes:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
                async for block in request.stream():
                    body += block
                    if len(body) > max_bytes:
                        raise too_large
        except TimeoutError:
            raise _RequestError(
                408, f"the body took more than {BODY_TIMEOUT_SECONDS:g} seconds. Send it again."
            ) from None
        return bytes(body)

    async def _run(self, compute: Callable[[], ResultT]) -> ResultT:
        """Run a function in a thread, where requests of several clients wait for one batch.

        Raises:
            _RequestError: if too many requests wait already.
        """
        if self._n_requests >= self._limits.max_requests:
            raise _RequestError(503, "too many requests wait. Send it again later.")
        # Every request has a thread, so that all of them can wait for the same batch.
        self._threads = self._threads or CapacityLimiter(self._limits.max_requests)
        self._n_requests += 1
        try:
            return await run_sync(compute, limiter=self._threads)
        finally:
            self._n_requests -= 1


def activate_classes(logits: Sequence[float], activation: str) -> list[float]:
    """Return the values of the classes of a token, as vLLM computes them.

    Args:
        logits: One logit per class.
        activation: The activation of the PRM format. ``sigmoid`` treats each class alone,
            ``value`` returns the logits, and all others return the softmax.
    """
    if activation == "value":
        return list(logits)
    if activation == "sigmoid":
        return [0.5 * (1 + math.tanh(logit / 2)) for logit in logits]
    largest = max(logits)
    weights = [math.exp(logit - largest) for logit in logits]
    total = sum(weights)
    return [weight / total for weight in weights]


def _json_response(value: Any, status: int = 200) -> Response:
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if status == 503 else None
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


def _error_response(status: int, message: str) -> Response:
    """Return an error in the form of the OpenAI API."""
    return _json_response({"error": {"message": message, "code": status}}, status)
