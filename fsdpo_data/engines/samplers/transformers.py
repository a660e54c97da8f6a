"""The ``transformers`` engine: runs on CPUs and GPUs, and is slower than vLLM.

Each sequence draws its tokens by inverse transform sampling from its own uniform numbers. A sample
therefore depends only on (seed, prompt, index), and not on the other sequences of its batch.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessorList,
    StoppingCriteriaList,
    StopStringCriteria,
)
from transformers.cache_utils import DynamicLayer

from fsdpo_data.core.finish_reasons import FinishReason
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.logprobs import free_gpu_memory
from fsdpo_data.engines.options import EngineOptions
from fsdpo_data.engines.samplers.base import SampleResult
from fsdpo_data.engines.samplers.grouped_attention import use_grouped_attention
from fsdpo_data.engines.samplers.tokenization import (
    CompletionDecoder,
    ContextTokens,
    cut_at_stop,
    encode_context,
    pad_sequences,
    read_eos_ids,
    stop_within_context,
)
from fsdpo_data.models.checkpoints import (
    check_quantized,
    context_length,
    load_checkpoint,
    pick_device,
)
from fsdpo_data.models.resolve import ResolvedWeights

#: Sequences decoded together on a CPU: with few, keys and values stay in its caches.
BATCH_SIZE_CPU = 32
#: Maximum number of sequences decoded together on a GPU, whose memory may allow fewer.
MAX_BATCH_SIZE_GPU = 1024
#: Probabilities to compute together when tokens are drawn; each takes eight bytes several times.
MAX_PROBABILITIES = 2**25
#: Tokens of all contexts of a batch to compute together. Each takes three rows of the MLP's width.
MAX_PREFILL_TOKENS = 2**16
#: Tokens that the first round of a batch generates; each further round is twice as long.
FIRST_ROUND_TOKENS = 128

#: Function of (row of a batch, its new ids) that returns whether their text has a stop string.
HasStop = Callable[[int, list[int]], bool]


class GenerationRequest(NamedTuple):
    """One sequence to generate."""

    prompt_index: int  #: Index of the prompt in the call.
    context: ContextTokens  #: Token ids of the prompt.
    seed: int  #: Seed of the sequence.
    max_new_tokens: int  #: Maximum number of tokens to generate.


class TransformersSampler:
    """A sampler on ``AutoModelForCausalLM``; ``batch_size`` defaults to the fastest one.

    Raises:
        UnavailableError: if torch is missing, or the requested GPU is absent.
    """

    def __init__(
        self, weights: ResolvedWeights, options: EngineOptions, *, batch_size: int | None = None
    ) -> None:
        self.model = weights.ref
        self._device = pick_device(options.device)
        self._batch_size = batch_size
        self._tokenizer, net = load_checkpoint(
            "AutoModelForCausalLM",
            weights,
            dtype=options.dtype,
            device=self._device,
            expected="a causal language model: config.json, tokenizer, safetensors weights",
        )
        self._decoder = CompletionDecoder(self._tokenizer)
        self._net = net.to(self._device).eval()
        check_quantized(self._net, weights)
        use_grouped_attention(self._net)
        self._context_length = context_length(self._net.config)
        self._eos_ids = _take_eos_ids(self._net, self._tokenizer)
        pad_id = self._tokenizer.pad_token_id
        self._pad_id: int = self._eos_ids[0] if pad_id is None else pad_id

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        """Yield ``spec.n`` completions of each prompt when the last one is finished.

        Long prompts come first.
        """
        requests: list[GenerationRequest] = []
        for prompt_index, prompt in enumerate(prompts):
            context = encode_context(self._tokenizer, self._decoder, prompt)
            max_new_tokens = min(spec.max_tokens, self._context_length - len(context.ids))
            if stopped := stop_within_context(self._decoder, context, spec.stop):
                yield prompt_index, [stopped] * spec.n
            elif max_new_tokens > 0:
                first_seed = spec.prompt_seed(prompt)
                requests += [
                    GenerationRequest(prompt_index, context, first_seed + sample, max_new_tokens)
                    for sample in range(spec.n)
                ]
            else:  # a prompt that fills the context gets empty, truncated completions
                yield prompt_index, [Completion("", "length", 0)] * spec.n
        requests.sort(key=lambda request: -len(request.context.ids))
        finished: defaultdict[int, list[Completion]] = defaultdict(list)
        batch_size = self._batch_size or self._choose_batch_size(requests)
        for start in range(0, len(requests), batch_size):
            batch = requests[start : start + batch_size]
            completions = self._generate_batch(batch, spec)
            for request, completion in zip(batch, completions, strict=True):
                index = request.prompt_index
                finished[index].append(completion)
                if len(finished[index]) == spec.n:
                    yield index, finished.pop(index)

    def _choose_batch_size(self, requests: Sequence[GenerationRequest]) -> int:
        """Return the number of sequences to decode together, long prompts first.

        On a GPU, their keys and values take at most a quarter of the free memory.
        """
        if self._device == "cpu" or not requests:
            return BATCH_SIZE_CPU
        longest = max(len(request.context.ids) + request.max_new_tokens for request in requests)
        cache_bytes = longest * cache_bytes_per_token(self._net.config, self._net.dtype)
        n_fitting = free_gpu_memory(self._net.device) // (4 * cache_bytes)
        return max(1, min(MAX_BATCH_SIZE_GPU, n_fitting))

    def _generate_batch(
        self, batch: Sequence[GenerationRequest], spec: SamplingSpec
    ) -> list[Completion]:
        """Generate a batch in rounds; finished sequences leave the batch after each round."""
        start_time = time.perf_counter()
        longest = max(request.max_new_tokens for request in batch)
        # Row i depends on the seed of request i only.
        uniforms = np.stack(
            [np.random.default_rng(request.seed).random(longest) for request in batch]
        )
        generated: list[list[int]] = [[] for _ in batch]
        active = list(range(len(batch)))
        n_generated = 0
        round_tokens = FIRST_ROUND_TOKENS
        while active:
            tokens_left = max(batch[row].max_new_tokens for row in active) - n_generated
            round_tokens = min(round_tokens, tokens_left)
            rows = [(batch[row].context, generated[row]) for row in active]
            new_ids = self._generate_round(
                [context.ids + ids for context, ids in rows],
                uniforms[active, n_generated : n_generated + round_tokens],
                round_tokens,
                spec,
                has_stop=partial(self._row_has_stop, rows, spec),
            )
            for row, ids in zip(active, new_ids, strict=True):
                generated[row] += ids
            n_generated += round_tokens
            round_tokens *= 2
            active = [
                row
                for row in active
                if n_generated < batch[row].max_new_tokens
                and not self._is_finished(batch[row].context, generated[row], spec)
            ]
        seconds = (time.perf_counter() - start_time) / len(batch)
        return [
            self._finish(request.context, ids[: request.max_new_tokens], spec, seconds)
            for ids, request in zip(generated, batch, strict=True)
        ]

    def _generate_round(
        self,
        contexts: Sequence[list[int]],
        uniforms: np.ndarray,
        max_new_tokens: int,
        spec: SamplingSpec,
        has_stop: HasStop,
    ) -> list[list[int]]:
        """Return up to ``max_new_tokens`` further ids per context, padded behind its end."""
        inputs, mask = pad_sequences(contexts, self._pad_id, self._device, pad_left=True)
        context_tokens = inputs.shape[1]
        prefill_tokens = max(1, MAX_PREFILL_TOKENS // len(contexts))
        processors = LogitsProcessorList()
        if spec.temperature > 0:
            processors.append(InverseCdfProcessor(context_tokens, uniforms, spec))
        criteria = StoppingCriteriaList()
        if spec.stop:
            criteria.append(NewStopCriteria(self._tokenizer, spec.stop, context_tokens, has_stop))
        with torch.inference_mode():
            output = self._net.generate(
                inputs,
                attention_mask=mask,
                past_key_values=make_cache(self._net.config, context_tokens + max_new_tokens),
                logits_processor=processors,
                stopping_criteria=criteria,
                generation_config=GenerationConfig(
                    max_new_tokens=max_new_tokens,
                    do_sample=False,
                    eos_token_id=sorted(self._end_ids(spec)),
                    pad_token_id=self._pad_id,
                    # The states of the other tokens of a context are not in memory meanwhile.
                    prefill_chunk_size=prefill_tokens if context_tokens > prefill_tokens else None,
                ),
            )
        generated: list[list[int]] = output[:, context_tokens:].tolist()
        return generated

    def _end_ids(self, spec: SamplingSpec) -> set[int]:
        """Return the ids that end a sequence: those of the model, and stop strings that are ids."""
        return {*self._eos_ids, *self._decoder.find_stop_ids(spec.stop)}

    def _is_finished(self, context: ContextTokens, ids: list[int], spec: SamplingSpec) -> bool:
        if not self._end_ids(spec).isdisjoint(ids):
            return True
        return bool(spec.stop) and self._has_stop(context, ids, spec)

    def _row_has_stop(
        self,
        rows: Sequence[tuple[ContextTokens, list[int]]],
        spec: SamplingSpec,
        index: int,
        new_ids: list[int],
    ) -> bool:
        """Return whether a row of a batch has a stop string after ``new_ids``."""
        context, ids = rows[index]
        return self._has_stop(context, ids + new_ids, spec)

    def _has_stop(self, context: ContextTokens, ids: list[int], spec: SamplingSpec) -> bool:
        return (
            cut_at_stop(self._decoder.decode_continuation(context, ids), spec.stop)[1] is not None
        )

    def _finish(
        self, context: ContextTokens, ids: list[int], spec: SamplingSpec, seconds: float
    ) -> Completion:
        """Cut the ids at the end of the sequence, and return their completion."""
        end_ids = self._end_ids(spec)
        eos_positions = [position for position, token in enumerate(ids) if token in end_ids]
        finish_reason: FinishReason = "stop" if eos_positions else "length"
        if eos_positions:
            ids = ids[: eos_positions[0] + 1]
        new_text = self._decoder.decode_continuation(context, ids, skip_special=True)
        text, stop_string = cut_at_stop(new_text, spec.stop)
        if stop_string is not None:
            # Padding follows a stop string, and the padding token may also be an EOS token.
            if eos_positions:
                ids = ids[:-1]
            ids = list(takewhile(lambda token: token != self._pad_id, ids))
            finish_reason = "stop"
        return Completion(
            text=text,
            finish_reason=finish_reason,
            n_tokens=len(ids),
            seconds=seconds,
            stop_string=stop_string,
            token_ids=context.total_ids(ids),
        )


def cache_bytes_per_token(config: Any, dtype: torch.dtype) -> int:
    """Return the bytes of the keys and values of one token, in all layers."""
    text_config = config.get_text_config()
    n_heads = text_config.num_attention_heads
    n_key_heads = getattr(text_config, "num_key_value_heads", None) or n_heads
    head_size = getattr(text_config, "head_dim", None) or text_config.hidden_size // n_heads
    n_values = 2 * text_config.num_hidden_layers * n_key_heads * head_size
    return int(n_values * dtype.itemsize)


class NewStopCriteria(StopStringCriteria):  # type: ignore[misc]
    """Stops a row at a stop string in its new text.

    The criterion of transformers also stops at a string that starts in the prompt.
    """

    def __init__(
        self, tokenizer: Any, stop: Sequence[str], context_tokens: int, has_stop: HasStop
    ) -> None:
        """Set up the criterion of a batch.

        Args:
            tokenizer: The tokenizer of the model.
            stop: The stop strings.
            context_tokens: Length of the padded contexts.
            has_stop: Whether the new ids of a row contain a stop string.
        """
        super().__init__(tokenizer, list(stop))
        self._context_tokens = context_tokens
        self._has_stop = has_stop

    def __call__(
        self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any
    ) -> torch.Tensor:
        """Return whether each row is finished."""
        is_finished: torch.Tensor = super().__call__(input_ids, scores, **kwargs)
        for row in is_finished.nonzero().flatten().tolist():
            is_finished[row] = self._has_stop(row, input_ids[row, self._context_tokens :].tolist())
        return is_finished


class InverseCdfProcessor:
    """A logits processor that draws one token per row by inverse transform sampling.

    Args:
        prompt_tokens: Length of the padded prompts.
        uniforms: Numbers in [0, 1): one row per sequence, one column per generated token.
        spec: Temperature and nucleus (top-p) to draw from.
    """

    def __init__(self, prompt_tokens: int, uniforms: np.ndarray, spec: SamplingSpec) -> None:
        self._prompt_tokens = prompt_tokens
        self._uniforms = torch.from_numpy(uniforms)
        self._spec = spec

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores that are 0 for the drawn token of each row, and -inf elsewhere."""
        step = input_ids.shape[1] - self._prompt_tokens
        uniforms = self._uniforms[:, step : step + 1].to(scores.device)
        n_rows = max(1, MAX_PROBABILITIES // scores.shape[-1])
        parts = zip(scores.split(n_rows), uniforms.split(n_rows), strict=True)
        token = torch.cat([self._draw(part, u) for part, u in parts])
        return torch.full_like(scores, -torch.inf).scatter(-1, token, 0.0)

    def _draw(self, scores: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        """Return the token of each row as a column, given one uniform number per row."""
        probs = (scores.double() / self._spec.temperature).softmax(-1)
        sorted_ids = None
        if self._spec.top_p < 1:
            probs, sorted_ids = probs.sort(dim=-1, descending=True, stable=True)
            mass_before = probs.cumsum(-1) - probs
            probs = probs.masked_fill(mass_before >= self._spec.top_p, 0.0)
        cdf = probs.cumsum(-1)
        token = torch.searchsorted(cdf, u * cdf[:, -1:], right=True)
        token = token.clamp_max(probs.shape[-1] - 1)
        if sorted_ids is not None:
            token = sorted_ids.gather(-1, token)
        return token


def _take_eos_ids(net: Any, tokenizer: Any) -> list[int]:
    """Return every id that ends a sequence, and reset the model's generation config.

    The reset drops sampling defaults such as top-k and penalties, which are not part of the spec.

    Raises:
        UnavailableError: if ``eos_token_id`` of the generation config is not a list of ids.
    """
    ids = read_eos_ids(net, tokenizer)
    net.generation_config = type(net.generation_config)()
    return ids


class PreallocatedCacheLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of full attention, in buffers for all tokens of a batch.

    The layer of transformers concatenates old and new states for every token. On a CPU, allocating
    these tensors takes most of the time of a small model.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, n_tokens: int) -> None:
        """Take the maximum number of tokens of a sequence."""
        super().__init__()
        self._n_tokens = n_tokens

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values, [batch, heads, new tokens, width]; return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers = tuple(
                states.new_empty((*states.shape[:2], self._n_tokens, states.shape[3]))
                for states in (key_states, value_states)
            )
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        key_buffer, value_buffer = self._buffers
        key_buffer[:, :, start:end] = key_states
        value_buffer[:, :, start:end] = value_states
        self.keys = key_buffer[:, :, :end]
        self.values = value_buffer[:, :, :end]
        return self.keys, self.values


def make_cache(config: Any, n_tokens: int) -> DynamicCache:
    """Return an empty cache for a model and sequences of at most ``n_tokens``.

    Layers with full attention are preallocated. Other layers, such as sliding windows, stay as
    transformers makes them.
    """
    cache = DynamicCache(config=config)
    cache.layers = [
        PreallocatedCacheLayer(n_tokens) if type(layer) is DynamicLayer else layer
        for layer in cache.layers
    ]
    return cache
