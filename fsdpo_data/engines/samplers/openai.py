"""The ``openai`` engine: models behind a server with the OpenAI API, such as vLLM or SGLang.

One request asks for all samples of a prompt, so every result can be saved as soon as it arrives. If
a server returns fewer samples, further requests ask for the remaining ones. Failed requests are
repeated for as long as the server answers any request.
"""

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeGuard

import httpx2

from fsdpo_data.core.errors import FsdpoError, InputError, UnavailableError, suggest_names
from fsdpo_data.core.http_bodies import HttpResponse, request
from fsdpo_data.core.input_files import parse_json
from fsdpo_data.core.retry import RETRYABLE_STATUSES, retry_delay
from fsdpo_data.core.row_files import summarize_list
from fsdpo_data.core.sampling import LENGTH_FINISH_REASONS, Completion, FinishReason, SamplingSpec
from fsdpo_data.core.terminal import strip_control_characters
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.registry import engine_error
from fsdpo_data.engines.samplers.base import PromptResult, StreamingSampler
from fsdpo_data.models.resolve import ResolvedWeights

#: The environment variable with the API key. The key is not stored anywhere else.
API_KEY_VARIABLE = "OPENAI_API_KEY"
CONNECT_TIMEOUT_SECONDS = 10.0  #: Seconds to wait for a connection.
CHECK_TIMEOUT_SECONDS = 60.0  #: Seconds to wait for the list of models.
MAX_OVERHEAD_BYTES = 2**23  #: Maximum size of a response without its completions.
MAX_TOKEN_BYTES = 100  #: Maximum mean size of a token in a response, with its id and escapes.
MAX_TOKEN_COUNT = 2**31  #: Token counts of a server from this number on are unknown.
#: Request fields that only vLLM takes. They replace sampling defaults of the checkpoint.
_VLLM_FIELDS = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "return_token_ids": True}
#: Errors of reading a response that does not follow the OpenAI API.
_PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
_MAX_QUOTED_CHARS = 300  #: Characters of a response in an error message.


class OpenAiSampler(StreamingSampler):
    """A sampler that sends its prompts to a server with the OpenAI API.

    Raises:
        InputError: if the server does not have the model.
        UnavailableError: if no server answers, the server has another API, or it rejects the key.
    """

    def __init__(self, weights: ResolvedWeights, options: SamplerOptions) -> None:
        assert options.server.base_url is not None
        self.model = weights.ref
        self._name = weights.path
        self._options = options
        self._url = options.server.base_url.rstrip("/")
        self._key = os.environ.get(API_KEY_VARIABLE, "")
        self._max_n: int | None = None  # samples per request; None: no limit
        self._last_response_time = 0.0
        self._extra_fields: Mapping[str, Any] = {}
        with asyncio.Runner() as runner:
            runner.run(self._check_server())

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[PromptResult]:
        """Yield ``spec.n`` completions of each prompt as they arrive.

        Raises:
            InputError: if the server rejects a request.
            UnavailableError: if requests failed for ``idle_timeout`` seconds without any response.
        """
        with asyncio.Runner() as runner:
            results = self._stream_results(prompts, spec)

            async def next_result() -> PromptResult | None:
                return await anext(results, None)

            while (result := runner.run(next_result())) is not None:
                yield result

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx2.Timeout(self._options.server.timeout, connect=CONNECT_TIMEOUT_SECONDS),
            limits=httpx2.Limits(max_connections=self._options.server.concurrency),
        )

    async def _check_server(self) -> None:
        """Check address, key and model, so that mistakes are reported at once, without retries."""
        try:
            async with self._client() as client:
                response = await request(
                    client,
                    "GET",
                    f"{self._url}/models",
                    max_bytes=MAX_OVERHEAD_BYTES,
                    timeout=CHECK_TIMEOUT_SECONDS,
                )
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            raise self._unavailable_error(f"no server answers ({_first_line(error)}).") from None
        if response.status in (*RETRYABLE_STATUSES, 404):
            return  # the server is busy or lists no models: the first prompt will show errors
        if response.status != 200:
            raise self._response_error(response)
        try:
            models = {str(model["id"]): model for model in parse_json(response.body)["data"]}
        except _PARSE_ERRORS:
            raise self._unavailable_error(
                "the server does not follow the OpenAI API. Check the address."
            ) from None
        if self._name not in models:
            names = summarize_list(list(models)) or "no model"
            raise InputError(
                f"the server has {names}.{suggest_names(self._name, models)}",
                field="model",
                value=self._name,
            )
        if models[self._name].get("owned_by") == "vllm":
            self._extra_fields = _VLLM_FIELDS

    async def _stream_results(
        self, prompts: Sequence[str], spec: SamplingSpec
    ) -> AsyncIterator[PromptResult]:
        """Yield results as they arrive. After an error, start no request and raise the error."""
        request_slots = asyncio.Semaphore(self._options.server.concurrency)
        errors: list[FsdpoError] = []
        async with self._client() as client:

            async def sample_prompt(index: int) -> PromptResult | None:
                async with request_slots:
                    if errors:
                        return None
                    try:
                        completions = await self._sample_prompt(client, prompts[index], spec)
                    except FsdpoError as error:
                        errors.append(error)
                        return None
                return PromptResult(index, completions)

            tasks = [asyncio.create_task(sample_prompt(index)) for index in range(len(prompts))]
            for task in asyncio.as_completed(tasks):
                result = await task
                if result is not None:
                    yield result
        if errors:
            raise errors[0]

    async def _sample_prompt(
        self, client: httpx2.AsyncClient, prompt: str, spec: SamplingSpec
    ) -> list[Completion]:
        completions: list[Completion] = []
        while (missing := spec.n - len(completions)) > 0:
            body = self._request_body(
                prompt, spec, first_sample=len(completions), sample_count=missing
            )
            completions += await self._request_completions(client, body)
        return completions[: spec.n]

    def _request_body(
        self, prompt: str, spec: SamplingSpec, *, first_sample: int, sample_count: int
    ) -> dict[str, Any]:
        """Return the request for samples from ``first_sample`` on.

        vLLM adds the index of a sample to the seed, as :class:`SamplingSpec` demands.
        """
        body: dict[str, Any] = {
            "model": self._name,
            "n": min(sample_count, self._max_n or sample_count),
            "temperature": spec.temperature,
            "top_p": spec.top_p,
            "max_tokens": spec.max_tokens,
        }
        if self._options.server.api == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        if spec.temperature > 0:
            body["seed"] = spec.prompt_seed(prompt) + first_sample
        if spec.stop:
            body["stop"] = list(spec.stop)
        return {**body, **self._extra_fields}

    async def _request_completions(
        self, client: httpx2.AsyncClient, body: dict[str, Any]
    ) -> list[Completion]:
        """Send a request until it succeeds, or until ``idle_timeout`` has passed."""
        path = "chat/completions" if self._options.server.api == "chat" else "completions"
        attempt = -1
        first_failure_time = math.inf
        while True:
            attempt += 1
            start_time = time.monotonic()
            retry_after = ""
            try:
                response = await request(
                    client,
                    "POST",
                    f"{self._url}/{path}",
                    max_bytes=MAX_OVERHEAD_BYTES + body["n"] * body["max_tokens"] * MAX_TOKEN_BYTES,
                    timeout=self._options.server.timeout,
                    json=body,
                )
                if response.status in (400, 422) and body["n"] > 1:
                    # Some servers accept only one sample per request.
                    body["n"] = 1
                    self._max_n = 1
                    continue
                if response.status not in (200, *RETRYABLE_STATUSES):
                    raise self._response_error(response)
                retry_after = response.headers.get("Retry-After", "")
                if response.status != 200:
                    raise ValueError(f"the server answered {response.status}")
                completions = _parse_completions(
                    parse_json(response.body), time.monotonic() - start_time
                )
            except FsdpoError:
                raise
            except (httpx2.HTTPError, TimeoutError, *_PARSE_ERRORS) as error:
                failure_time = time.monotonic()
                delay = retry_delay(retry_after, attempt)
                first_failure_time = min(first_failure_time, failure_time)
                idle_since = max(first_failure_time, self._last_response_time)
                if failure_time + delay - idle_since > self._options.server.idle_timeout:
                    raise self._unavailable_error(
                        f"no response in {self._options.server.idle_timeout:g} seconds "
                        f"({_first_line(error)}). The samples received so far are saved; "
                        "resume the run when the server is back."
                    ) from None
                await asyncio.sleep(delay)
            else:
                self._last_response_time = time.monotonic()
                return completions

    def _response_error(self, response: HttpResponse) -> FsdpoError:
        """Return the error for a status that a retry cannot change. The key is never quoted."""
        if response.status in (401, 403):
            key_state = "is refused" if self._key else "is not set"
            return self._unavailable_error(
                f"the server answered {response.status}: {API_KEY_VARIABLE} {key_state}."
            )
        text = response.body.decode(errors="replace")
        if self._key:
            text = text.replace(self._key, "…")
        quote = strip_control_characters(" ".join(text.split())[:_MAX_QUOTED_CHARS])
        return InputError(
            f"the server answered {response.status}: {quote}. Check the address (it usually "
            "ends in /v1), `api`, `max_tokens` and the template.",
            field="base_url",
            value=self._url,
        )

    def _unavailable_error(self, message: str) -> UnavailableError:
        return engine_error("openai", f"{self._url}: {message}")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0].removesuffix(": ")


class _ChoiceText(NamedTuple):
    """The text of one choice of a response."""

    reasoning: str  #: The thinking, if the server separates it from the text.
    text: str  #: The text of the completion.


def _parse_completions(response: Mapping[str, Any], seconds: float) -> list[Completion]:
    """Return the completions of a response. ``seconds`` are divided among them.

    Raises:
        ValueError: if the response has no choice, or an unfinished one.
        KeyError, TypeError, AttributeError: if the response does not follow the OpenAI API.
    """
    choices = sorted(response["choices"], key=lambda choice: int(choice["index"]))
    if not choices:
        raise ValueError("no choices")
    texts = [_parse_text(choice) for choice in choices]
    usage = response.get("usage") or {}
    token_counts = _count_tokens(choices, texts, usage)
    thinking_tokens = _count_thinking_tokens(usage)
    if len(choices) > 1:
        thinking_tokens = None  # the count covers all choices
    completions = []
    for choice, choice_text, n_tokens in zip(choices, texts, token_counts, strict=True):
        if choice["finish_reason"] in (None, "abort", "error"):
            raise ValueError("a choice is not finished")
        is_truncated = choice["finish_reason"] in LENGTH_FINISH_REASONS
        finish_reason: FinishReason = "length" if is_truncated else "stop"
        # vLLM and SGLang name the string or the token id that ended the completion.
        stop = choice.get("stop_reason") or choice.get("matched_stop")
        completion = Completion(
            text=choice_text.text,
            finish_reason=finish_reason,
            n_tokens=n_tokens,
            seconds=seconds / len(choices),
            stop_string=stop if isinstance(stop, str) else None,
            reasoning=choice_text.reasoning,
            thinking_tokens=thinking_tokens,
        )
        completions.append(completion)
    return completions


def _parse_text(choice: Mapping[str, Any]) -> _ChoiceText:
    message = choice.get("message")
    # `+ ""` raises TypeError for a value that is not a string.
    if message is None:
        return _ChoiceText(reasoning="", text=choice["text"] + "")
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    return _ChoiceText(reasoning=reasoning + "", text=(message["content"] or "") + "")


def _count_thinking_tokens(usage: Mapping[str, Any]) -> int | None:
    details = usage.get("completion_tokens_details") or {}
    count = details.get("reasoning_tokens")
    return count if _is_token_count(count) else None


def _is_token_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < MAX_TOKEN_COUNT


def _count_tokens(
    choices: Sequence[Mapping[str, Any]], texts: Sequence[_ChoiceText], usage: Mapping[str, Any]
) -> list[int] | list[None]:
    """Return the tokens of each choice; None if the server does not report tokens.

    Servers that report only the total get an estimate: the total is divided by text length.
    """
    token_ids = [choice.get("token_ids") for choice in choices]
    if all(isinstance(ids, list) for ids in token_ids):
        return [len(ids) for ids in token_ids if ids is not None]
    total = usage.get("completion_tokens")
    if not _is_token_count(total):
        return [None] * len(texts)
    lengths = (len(choice.reasoning) + len(choice.text) + 1 for choice in texts)
    ends = list(accumulate(lengths, initial=0))
    return [total * end // ends[-1] - total * start // ends[-1] for start, end in pairwise(ends)]
