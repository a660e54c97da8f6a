"""The transformers engine: runs anywhere, slower than vLLM.

Each sequence draws its tokens by inverse CDF from uniform numbers of its own, so a sample depends
on (seed, prompt, index) and not on what happens to share its batch.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, GenerationConfig, LogitsProcessorList
from transformers.cache_utils import DynamicLayer

from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.core.sampling import Completion, FinishReason, SamplingSpec
from fsdpo_data.engines.options import EngineOptions
from fsdpo_data.engines.samplers import PromptResult, StreamingSampler
from fsdpo_data.engines.samplers.tokenization import (
    CompletionDecoder,
    cut_at_stop,
    encode_prompt,
    pad_sequences,
)
from fsdpo_data.models.checkpoints import context_length, load_checkpoint, pick_device
from fsdpo_data.models.resolve import ResolvedWeights

#: (position of the prompt in the batch, its ids, sample index, tokens it may generate)
GenerationRequest = tuple[int, list[int], int, int]

#: Sequences decoded together. On a CPU the keys and values of a few stay in its caches.
BATCH_SIZE = {"cuda": 256, "cpu": 32}

FIRST_ROUND_TOKENS = (
    128  #: Tokens of the first round of a batch; each round after it is twice as long.
)


class TransformersSampler(StreamingSampler):
    """Samples with ``AutoModelForCausalLM``, by default as many together as is fastest.

    Raises:
        Unavailable: if torch is missing, or a GPU is asked for and absent.
    """

    def __init__(
        self, weights: ResolvedWeights, options: EngineOptions, *, batch_size: int | None = None
    ) -> None:
        self.model = weights.ref
        self._device = pick_device(options.device)
        self._batch_size = batch_size or BATCH_SIZE[self._device]
        self._tokenizer, net = load_checkpoint(
            "AutoModelForCausalLM",
            weights,
            dtype=options.dtype,
            expected="a causal language model: config.json, tokenizer, safetensors weights",
        )
        self._decoder = CompletionDecoder(self._tokenizer)
        self._net = net.to(self._device).eval()
        self._context = context_length(self._net.config)
        self._eos = _eos_ids(self._net, self._tokenizer)
        pad = self._tokenizer.pad_token_id
        self._pad: int = self._eos[0] if pad is None else pad

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[PromptResult]:
        """Yield ``spec.n`` completions of each prompt when the last is there, longest first."""
        requests: list[GenerationRequest] = []
        for place, prompt in enumerate(prompts):
            ids = encode_prompt(self._tokenizer, prompt)
            room = min(spec.max_tokens, self._context - len(ids))
            requests += [(place, ids, index, room) for index in range(spec.n) if room > 0]
            if room <= 0:  # the prompt fills the context: empty, truncated completions
                yield place, [Completion("", "length", 0)] * spec.n
        requests.sort(key=lambda request: -len(request[1]))
        found: defaultdict[int, list[Completion]] = defaultdict(list)
        for start in range(0, len(requests), self._batch_size):
            batch = requests[start : start + self._batch_size]
            seeds = [spec.prompt_seed(prompts[request[0]]) + request[2] for request in batch]
            for (place, *_), (ids, completion) in zip(
                batch, self._decode(batch, seeds, spec), strict=True
            ):
                text = completion.text + (completion.stop_string or "")
                thought = self._decoder.thinking_tokens(prompts[place], ids, text)
                found[place].append(replace(completion, thinking_tokens=thought))
                if len(found[place]) == spec.n:
                    yield place, found.pop(place)

    def _decode(
        self, batch: Sequence[GenerationRequest], seeds: Sequence[int], spec: SamplingSpec
    ) -> list[tuple[list[int], Completion]]:
        """Decode a batch in rounds; a row that has ended leaves it, so none waits for the last."""
        started = time.perf_counter()
        longest = max(room for *_, room in batch)
        # Row i depends on seeds[i] only.
        uniforms = np.stack([np.random.default_rng(seed).random(longest) for seed in seeds])
        rows: list[list[int]] = [[] for _ in batch]
        alive, done, length = list(range(len(batch))), 0, FIRST_ROUND_TOKENS
        while alive:
            length = min(length, max(batch[row][3] for row in alive) - done)
            contexts = [batch[row][1] + rows[row] for row in alive]
            new = self._extend(contexts, uniforms[alive, done : done + length], length, spec)
            for row, ids in zip(alive, new, strict=True):
                rows[row] += ids
            done, length = done + length, 2 * length
            alive = [
                row
                for row in alive
                if done < batch[row][3] and not self._has_ended(rows[row], spec)
            ]
        seconds = (time.perf_counter() - started) / len(batch)
        return [
            self._finish(ids[:limit], spec, seconds)
            for ids, (*_, limit) in zip(rows, batch, strict=True)
        ]

    def _extend(
        self, contexts: Sequence[list[int]], uniforms: np.ndarray, length: int, spec: SamplingSpec
    ) -> list[list[int]]:
        """Return up to ``length`` more tokens of each context, padded behind its end."""
        inputs, mask = pad_sequences(contexts, self._pad, self._device, left=True)
        width = inputs.shape[1]
        processors = LogitsProcessorList()
        if spec.temperature > 0:
            processors.append(InverseCdfProcessor(width, uniforms, spec))
        with torch.inference_mode():
            output = self._net.generate(
                inputs,
                attention_mask=mask,
                past_key_values=make_cache(self._net.config),
                logits_processor=processors,
                generation_config=GenerationConfig(
                    max_new_tokens=length,
                    do_sample=False,
                    eos_token_id=self._eos,
                    pad_token_id=self._pad,
                    stop_strings=list(spec.stop) or None,
                ),
                tokenizer=self._tokenizer if spec.stop else None,
            )
        generated: list[list[int]] = output[:, width:].tolist()
        return generated

    def _has_ended(self, ids: list[int], spec: SamplingSpec) -> bool:
        if any(token in self._eos for token in ids):
            return True
        return bool(spec.stop) and cut_at_stop(self._decoder(ids), spec.stop)[1] is not None

    def _finish(
        self, ids: list[int], spec: SamplingSpec, seconds: float
    ) -> tuple[list[int], Completion]:
        """Cut a row of generated ids at its end, and say why it ended."""
        ends = [position for position, token in enumerate(ids) if token in self._eos]
        reason: FinishReason = "stop" if ends else "length"
        if ends:
            ids = ids[: ends[0] + 1]
        text, stop_string = cut_at_stop(self._decoder(ids, skip_special=True), spec.stop)
        if stop_string is not None:
            # What follows in the row is padding, which may look like an end.
            ids = list(takewhile(lambda token: token != self._pad, ids[:-1] if ends else ids))
            reason = "stop"
        return ids, Completion(text, reason, len(ids), seconds, stop_string)


class InverseCdfProcessor:
    """A logits processor that draws from the nucleus with given uniforms, and leaves one token.

    ``uniforms``, in [0, 1), have one row per sequence and one column per generated token, which
    begin at ``prompt_width``.
    """

    def __init__(self, prompt_width: int, uniforms: np.ndarray, spec: SamplingSpec) -> None:
        self._prompt_width = prompt_width
        self._uniforms = torch.from_numpy(uniforms)
        self._spec = spec

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores that are -inf but for the token drawn in each row."""
        step = input_ids.shape[1] - self._prompt_width
        u = self._uniforms[:, step : step + 1].to(scores.device)
        probs, tokens = (scores.double() / self._spec.temperature).softmax(-1), None
        if self._spec.top_p < 1:
            probs, tokens = probs.sort(dim=-1, descending=True, stable=True)
            mass_before = probs.cumsum(-1) - probs
            probs = probs.masked_fill(mass_before >= self._spec.top_p, 0.0)
        cdf = probs.cumsum(-1)
        drawn = torch.searchsorted(cdf, u * cdf[:, -1:], right=True)
        drawn = drawn.clamp_max(probs.shape[-1] - 1)
        if tokens is not None:
            drawn = tokens.gather(-1, drawn)
        return torch.full_like(scores, -torch.inf).scatter(-1, drawn, 0.0)


def _eos_ids(net: Any, tokenizer: Any) -> list[int]:
    """Return every id that ends a sequence: generation_config may hold several.

    Raises:
        Unavailable: if it holds what is no id.
    """
    told = net.generation_config.eos_token_id
    ids = told if isinstance(told, list) else [told] if told is not None else []
    if not all(isinstance(each, int) and 0 <= each < 2**31 for each in ids):
        raise UnavailableError(
            f"eos_token_id of its generation_config.json is {told!r}, expected the ids of tokens.",
            field="model",
            value=str(net.name_or_path),
        )
    if tokenizer.eos_token_id is not None and tokenizer.eos_token_id not in ids:
        ids.append(tokenizer.eos_token_id)
    # The repository's other sampling defaults (top-k, penalties) are not part of the spec.
    net.generation_config = type(net.generation_config)()
    return list(ids)


class PreallocatedCacheLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of full attention, in a room to spare that doubles when it is used up.

    transformers' own layer joins what is there and what is new to a new tensor for every token. On
    a CPU that is most of the time a small model takes, as every one of them is fresh memory.
    """

    keys: torch.Tensor
    values: torch.Tensor
    _room: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append ``[batch, heads, new, width]`` keys and values; return all there are."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if self._room is None or end > self._room[0].shape[2]:
            self._room = _more_room(key_states, self.keys), _more_room(value_states, self.values)
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start:end] = new
        self.keys, self.values = (room[:, :, :end] for room in self._room)
        return self.keys, self.values


def _more_room(new: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Return room for twice what there will be, with what was there before in its place."""
    held = before.shape[2] if before.numel() else 0
    room = new.new_empty((*new.shape[:2], 2 * (held + new.shape[2]), new.shape[3]))
    if held:
        room[:, :, :held] = before
    return room


def make_cache(config: Any) -> DynamicCache:
    """Return an empty cache for a model; layers that keep less than everything are its own."""
    cache = DynamicCache(config=config)
    cache.layers = [
        PreallocatedCacheLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache
