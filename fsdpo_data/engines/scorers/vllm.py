"""Scoring with a process reward model through vLLM's pooling runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fsdpo_data.core.errors import Unavailable
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.engines.samplers.vllm import reason, start_engine
from fsdpo_data.engines.scorers import SteppedText
from fsdpo_data.engines.step_tokens import StepTokenizer


class VllmPrmScorer:
    """Scores with ``LLM(runner="pooling")`` and its task ``token_classify``.

    vLLM returns the sigmoid of every token's logit; the readouts are picked from those.

    Args:
        path: Local directory or Hub repository.
        model: What the weights are, as resolved.
        revision: Commit for a Hub repository.
        dtype: ``auto`` (the checkpoint's own), ``float32``, ``bfloat16`` or ``float16``.
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
        arguments = {"runner": "pooling", **(engine_args or {})}
        self._llm = start_engine(path, revision, dtype, arguments)
        self._encoder = StepTokenizer(self._llm.get_tokenizer())
        self._context: int = self._llm.model_config.max_model_len

    def score(self, items: Sequence[SteppedText]) -> list[list[float] | None]:
        """Score every step of every item; see :class:`fsdpo_data.engines.scorers.Scorer`.

        Raises:
            Unavailable: if the engine dies.
        """
        encoded = [
            self._encoder.encode(item.prompt, item.steps, end=False, max_length=self._context)
            for item in items
        ]
        fits = [each for each in encoded if each.n_steps and not each.lost]
        try:
            outputs = self._llm.encode(
                [{"prompt_token_ids": each.ids} for each in fits],
                pooling_task="token_classify",
                use_tqdm=False,
            )
        except Exception as error:  # a dead engine raises whatever killed it
            raise Unavailable(
                f"--engine vllm stopped while scoring: {reason(error)} What was scored before is "
                "safe: run again with --resume."
            ) from error
        rows = iter(outputs)
        results: list[list[float] | None] = []
        for each in encoded:
            if each.lost or not each.n_steps:
                results.append(None if each.lost else [])
            else:
                rewards = next(rows).outputs.data.flatten().tolist()
                results.append([rewards[position] for position in each.readouts])
        return results
