"""The ``openai`` engine: models behind a server with the OpenAI API, such as vLLM or SGLang.

One request asks for all samples of a prompt, so every result can be saved as soon as it arrives. If
a server returns fewer samples, further requests ask for the remaining ones. Failed requests are
repeated for as long as the server answers any request.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeGuard

import httpx2

from fsdpo_data.core import event_loop
from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.core.finish_reasons import (
    describe_unknown_finish_reasons,
    read_finish_reason,
    unknown_finish_reason,
)
from fsdpo_data.core.row_files import summarize_list
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.engines.samplers.base import SampleResult
from fsdpo_data.engines.server_client import (
    MAX_OVERHEAD_BYTES,
    RejectedError,
    ServerClient,
)
from fsdpo_data.models.resolve import ResolvedWeights

log = logging.getLogger(__name__)

MAX_TOKEN_BYTES = 100  #: Maximum mean size of a token in a response, with its id and escapes.
TEST_PROMPT = Prompt("1")  #: Prompt that any server can continue.
MAX_TOKEN_COUNT = 2**31  #: Token counts of a server from this number on are unknown.
#: Request fields that only vLLM takes. They replace sampling defaults of the checkpoint.
_VLLM_FIELDS = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "return_token_ids": True}


class OpenAiSampler:
    """A sampler that sends its prompts to a server with the OpenAI API.

    Raises:
        InputError: if the server does not have the model.
        UnavailableError: if no server answers, the server has another API, or it rejects the key.
    """

    def __init__(self, weights: ResolvedWeights, options: SamplerOptions) -> None:
        assert options.server.base_url is not None
        self.model = weights.ref
        self._name = weights.path
        self._api = options.server.api
        self._template_args = options.template_args
        self._request_fields = options.server.request_fields
        self._first_messages = self._request_fields.pop("messages", [])
        self._server = ServerClient(
            options.server,
            options.server.base_url.rstrip("/"),
            hint="Check the address (it usually ends in /v1), `api`, `max_tokens` and the "
            "template.",
            saved="The samples received so far are saved; resume the run when the server is back.",
        )
        self._max_n: int | None = None  # samples per request; None: no limit
        self._extra_fields: Mapping[str, Any] = {}
        self._unknown_finish_reasons: Counter[str] = Counter()  # since the last warning
        event_loop.call(self._check_server)

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        """Yield the completions of each prompt as they arrive, or the reason of a rejection.

        Raises:
            InputError: if the server rejects more than the prompt, such as the model.
            UnavailableError: if requests failed for a long time without any response.
        """

        async def sample_prompt(client: httpx2.AsyncClient, index: int) -> list[Completion]:
            return await self._sample_prompt(client, prompts[index], spec)

        try:
            yield from self._server.send_all(sample_prompt, len(prompts))
        finally:
            if unknown := describe_unknown_finish_reasons(self._unknown_finish_reasons):
                log.warning(f"{self._server.url} states {unknown}")
            self._unknown_finish_reasons.clear()

    async def _check_server(self) -> None:
        """Check address, key and model, as soon as the server is not busy."""
        async with self._server.open() as client:
            models = await self._server.list_models(client)
        if models is None:
            return
        if self._name not in models:
            names = summarize_list(list(models)) or "no model"
            raise InputError(
                f"the server has {names}.{suggest_names(self._name, models)}",
                field="model",
                value=self._name,
            )
        if models[self._name].get("owned_by") == "vllm":
            self._extra_fields = _VLLM_FIELDS

    async def _sample_prompt(
        self, client: httpx2.AsyncClient, prompt: Prompt, spec: SamplingSpec
    ) -> list[Completion]:
        completions: list[Completion] = []
        while (missing := spec.n - len(completions)) > 0:
            body = self._request_body(
                prompt, spec, first_sample=len(completions), sample_count=missing
            )
            completions += await self._request_completions(client, body)
        return completions[: spec.n]

    def _request_body(
        self, prompt: Prompt, spec: SamplingSpec, *, first_sample: int, sample_count: int
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
        if self._api == "chat":
            body["messages"] = [
                *self._first_messages,
                {"role": "user", "content": prompt.full_text},
            ]
            if self._template_args:
                body["chat_template_kwargs"] = self._template_args
        else:
            body["prompt"] = prompt.full_text
        if spec.temperature > 0:
            body["seed"] = spec.prompt_seed(prompt) + first_sample
        if spec.stop:
            body["stop"] = list(spec.stop)
        return {**body, **self._extra_fields, **self._request_fields}

    def _test_body(self) -> dict[str, Any]:
        """Return a request for one token."""
        spec = SamplingSpec(n=1, temperature=0, max_tokens=1)
        return self._request_body(TEST_PROMPT, spec, first_sample=0, sample_count=1)

    async def _request_completions(
        self, client: httpx2.AsyncClient, body: dict[str, Any]
    ) -> list[Completion]:
        """Return the completions of a request, or one if the server accepts only one sample."""
        try:
            return await self._post(client, body)
        except RejectedError:
            if body["n"] == 1:
                raise
        completions = await self._post(client, {**body, "n": 1})
        self._max_n = 1  # the server rejected the number, not the prompt
        return completions

    async def _post(self, client: httpx2.AsyncClient, body: dict[str, Any]) -> list[Completion]:
        return await self._server.post(
            client,
            "/chat/completions" if self._api == "chat" else "/completions",
            body,
            max_bytes=MAX_OVERHEAD_BYTES + body["n"] * body["max_tokens"] * MAX_TOKEN_BYTES,
            parse=self._parse,
            test_body=self._test_body(),
        )

    def _parse(self, response: Mapping[str, Any], seconds: float) -> list[Completion]:
        """Return the completions of a response, and count the unknown finish reasons."""
        completions = _parse_completions(response, seconds)
        names = (unknown_finish_reason(choice["finish_reason"]) for choice in response["choices"])
        self._unknown_finish_reasons.update(filter(None, names))
        return completions


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
    completions = []
    for choice, choice_text, n_tokens in zip(choices, texts, token_counts, strict=True):
        finish_reason = read_finish_reason(choice["finish_reason"])
        if choice["finish_reason"] is None or finish_reason is None:
            raise ValueError("a choice is not finished")
        # vLLM and SGLang name the string or the token id that ended the completion.
        stop = choice.get("stop_reason") or choice.get("matched_stop")
        completion = Completion(
            text=choice_text.text,
            finish_reason=finish_reason,
            n_tokens=n_tokens,
            seconds=seconds / len(choices),
            stop_string=stop if isinstance(stop, str) else None,
            # The value is null after the end of the sequence, so the key counts.
            is_stop_known="stop_reason" in choice or "matched_stop" in choice,
            reasoning=choice_text.reasoning,
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
