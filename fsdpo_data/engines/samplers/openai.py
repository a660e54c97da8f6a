"""Models behind a server of OpenAI's protocol: vLLM, SGLang, llama.cpp, hosted ones.

A request asks for all samples of a prompt, so whatever arrives is whole, and soon on disk; a server
that gives fewer is asked for the rest. A request that fails is made again for as long as the server
answers anybody at all.
"""

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import httpx2

from fsdpo_data.core.errors import FsdpoError, InputError, UnavailableError, suggest_names
from fsdpo_data.core.retry import RETRYABLE_STATUSES, retry_delay
from fsdpo_data.core.sampling import LENGTH_FINISH_REASONS, Completion, FinishReason, SamplingSpec
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.registry import engine_error
from fsdpo_data.engines.samplers import PromptResult, StreamingSampler
from fsdpo_data.models.resolve import ResolvedWeights

#: The environment variable of the key: it stands nowhere else, least of all in a file.
API_KEY_VARIABLE = "OPENAI_API_KEY"
CONNECT_TIMEOUT_SECONDS = 10.0  #: Seconds until a connection stands.
#: What vLLM takes besides. Where a checkpoint has sampling defaults of its own, it would add them.
_VLLM = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "return_token_ids": True}
#: What an answer that is not of the protocol raises when it is read.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)


class OpenAiSampler(StreamingSampler):
    """Samples from a server; see the module.

    Raises:
        InputError: if it has no such model.
        Unavailable: if nothing answers there, it is no such server, or it refuses the key.
    """

    def __init__(self, weights: ResolvedWeights, options: SamplerOptions) -> None:
        assert options.base_url is not None
        self.model = weights.ref
        self._name, self._options = weights.path, options
        self._url = options.base_url.rstrip("/")
        self._key = os.environ.get(API_KEY_VARIABLE, "")
        self._most: int | None = None  # samples of one request; None for all
        self._heard = 0.0  # when an answer last came
        self._more: Mapping[str, Any] = {}
        with asyncio.Runner() as runner:
            runner.run(self._check_server())

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[PromptResult]:
        """Yield ``spec.n`` completions of each prompt as they arrive.

        Raises:
            InputError: if the server refuses what is asked of it.
            Unavailable: if it has not answered anybody for ``idle_timeout`` seconds.
        """
        with asyncio.Runner() as runner:
            finished = self._complete(prompts, spec)

            async def following() -> PromptResult | None:
                return await anext(finished, None)

            while (found := runner.run(following())) is not None:
                yield found

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx2.Timeout(self._options.timeout, connect=CONNECT_TIMEOUT_SECONDS),
            limits=httpx2.Limits(max_connections=self._options.concurrency),
        )

    async def _check_server(self) -> None:
        """Check address, key and model, so that a mistake is told at once and not after retries."""
        try:
            async with self._client() as client:
                answer = await client.get(f"{self._url}/models")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._unusable(f"nothing answers there ({_first_line(error)}).") from None
        if answer.status_code in (*RETRYABLE_STATUSES, 404):
            return  # busy, or without a list: what it says of the first prompt counts
        if answer.status_code != 200:
            raise self._response_error(answer)
        try:
            known = {str(each["id"]): each for each in answer.json()["data"]}
        except _UNREADABLE:
            raise self._unusable("what answers there is not of OpenAI's protocol.") from None
        if self._name not in known:
            raise InputError(
                f"the server has {', '.join(known) or 'none'}.{suggest_names(self._name, known)}",
                field="model",
                value=self._name,
            )
        if known[self._name].get("owned_by") == "vllm":
            self._more = _VLLM

    async def _complete(
        self, prompts: Sequence[str], spec: SamplingSpec
    ) -> AsyncIterator[PromptResult]:
        free = asyncio.Semaphore(self._options.concurrency)
        lost: list[FsdpoError] = []
        async with self._client() as client:

            async def complete(place: int) -> tuple[int, list[Completion] | None]:
                async with free:
                    if not lost:  # of a server that is lost nothing more is asked
                        try:
                            return place, await self._samples(client, prompts[place], spec)
                        except FsdpoError as error:
                            lost.append(error)
                return place, None

            tasks = [asyncio.create_task(complete(place)) for place in range(len(prompts))]
            for task in asyncio.as_completed(tasks):
                place, completions = await task
                if completions is not None:
                    yield place, completions
        if lost:
            raise lost[0]

    async def _samples(
        self, client: httpx2.AsyncClient, prompt: str, spec: SamplingSpec
    ) -> list[Completion]:
        found: list[Completion] = []
        while (left := spec.n - len(found)) > 0:
            found += await self._ask(client, self._body(prompt, spec, len(found), left))
        return found[: spec.n]

    def _body(self, prompt: str, spec: SamplingSpec, first: int, left: int) -> dict[str, Any]:
        """Return the request of samples ``first`` and on; vLLM gives sample i the seed ``+ i``."""
        asked: dict[str, Any] = {
            "model": self._name,
            "n": min(left, self._most or left),
            "temperature": spec.temperature,
            "top_p": spec.top_p,
            "max_tokens": spec.max_tokens,
        }
        if self._options.api == "chat":
            asked["messages"] = [{"role": "user", "content": prompt}]
        else:
            asked["prompt"] = prompt
        if spec.temperature > 0:
            asked["seed"] = spec.prompt_seed(prompt) + first
        if spec.stop:
            asked["stop"] = list(spec.stop)
        return {**asked, **self._more}

    async def _ask(self, client: httpx2.AsyncClient, body: dict[str, Any]) -> list[Completion]:
        path = "chat/completions" if self._options.api == "chat" else "completions"
        attempt, failing = -1, math.inf
        while True:
            attempt += 1
            started, retry_after = time.monotonic(), ""
            try:
                answer = await client.post(f"{self._url}/{path}", json=body)
                if answer.status_code in (400, 422) and body["n"] > 1:
                    self._most = body["n"] = 1  # some servers give one sample at a time
                    continue
                if answer.status_code not in (200, *RETRYABLE_STATUSES):
                    raise self._response_error(answer)
                retry_after = answer.headers.get("Retry-After", "")
                answer.raise_for_status()
                found = _completions(answer.json(), time.monotonic() - started)
            except FsdpoError:
                raise
            except (httpx2.HTTPError, *_UNREADABLE) as error:
                now, wait = time.monotonic(), retry_delay(retry_after, attempt)
                failing = min(failing, now)
                if now + wait - max(failing, self._heard) > self._options.idle_timeout:
                    raise self._unusable(
                        f"no answer in {self._options.idle_timeout:g} seconds ({_first_line(error)}). What "
                        "was received is saved: resume the run when the server is back."
                    ) from None
                await asyncio.sleep(wait)
            else:
                self._heard = time.monotonic()
                return found

    def _response_error(self, answer: httpx2.Response) -> FsdpoError:
        if answer.status_code in (401, 403):
            state = "is refused" if self._key else "is not set"
            return self._unusable(f"it answered {answer.status_code}: {API_KEY_VARIABLE} {state}.")
        said = answer.text.replace(self._key, "…") if self._key else answer.text
        said = " ".join(said.split())[:300]
        return InputError(
            f"the server answered {answer.status_code}: {said}. Check the address, which ends in "
            "/v1 as a rule, `api`, `max_tokens` and the template.",
            field="base_url",
            value=self._url,
        )

    def _unusable(self, message: str) -> UnavailableError:
        return engine_error("openai", f"{self._url}: {message}")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0].removesuffix(": ")


def _completions(answer: Mapping[str, Any], seconds: float) -> list[Completion]:
    """Read the choices of an answer.

    Raises:
        ValueError: if it holds none, or one that is not finished.
        KeyError, TypeError, AttributeError: if it is not of the protocol.
    """
    choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
    if not choices:
        raise ValueError("no choices")
    texts = [_text(choice) for choice in choices]
    usage = answer.get("usage") or {}
    tokens = _tokens(choices, ["".join(text) for text in texts], usage)
    details = usage.get("completion_tokens_details") or {}
    thought = details.get("reasoning_tokens") if len(choices) == 1 else None
    thought = thought if isinstance(thought, int) and 0 <= thought < 2**31 else None
    found, share = [], seconds / len(choices)
    for choice, (reasoning, text), n_tokens in zip(choices, texts, tokens, strict=True):
        if choice["finish_reason"] in (None, "abort", "error"):
            raise ValueError("a choice is not finished")
        reason: FinishReason = (
            "length" if choice["finish_reason"] in LENGTH_FINISH_REASONS else "stop"
        )
        ended = choice.get("stop_reason") or choice.get("matched_stop")  # vLLM's, SGLang's
        stop = ended if isinstance(ended, str) else None
        found.append(Completion(text, reason, n_tokens, share, stop, reasoning, thought))
    return found


def _text(choice: Mapping[str, Any]) -> tuple[str, str]:
    """Return what a model thought, where the server tells that apart, and what it wrote."""
    message = choice.get("message")
    if message is None:
        return "", choice["text"] + ""  # which is an error where it is no text
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    return thought + "", (message["content"] or "") + ""


def _tokens(
    choices: Sequence[Mapping[str, Any]], texts: Sequence[str], usage: Mapping[str, Any]
) -> list[int] | list[None]:
    """Return the tokens of each choice: as counted, or its share of the usage by length."""
    counted = [choice.get("token_ids") for choice in choices]
    if all(isinstance(ids, list) for ids in counted):
        return [len(ids) for ids in counted if ids is not None]
    total = usage.get("completion_tokens")
    if not isinstance(total, int) or total < 0:
        return [None] * len(texts)
    ends = list(accumulate((len(text) + 1 for text in texts), initial=0))
    return [total * end // ends[-1] - total * start // ends[-1] for start, end in pairwise(ends)]
