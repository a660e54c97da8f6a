"""Scoring with a process reward model through vLLM's pooling runner."""

from __future__ import annotations

from collections.abc import Sequence

from fsdpo_data.core.errors import Unavailable
from fsdpo_data.engines.options import EngineOptions
from fsdpo_data.engines.samplers.vllm import reason, start_engine
from fsdpo_data.engines.scorers import SteppedText
from fsdpo_data.engines.step_tokens import StepTokenizer
from fsdpo_data.models.resolve import Weights


class VllmPrmScorer:
    """Scores with ``LLM(runner="pooling")`` and its task ``token_classify``.

    vLLM returns the sigmoid of every token's logit; the readouts are picked from those.

    Args:
        weights: The model.
        options: Precision, and what is passed on to ``vllm.LLM`` as it is.

    Raises:
        Unavailable: if vLLM is missing or cannot start here.
    """

    def __init__(self, weights: Weights, options: EngineOptions) -> None:
        self.model = weights.ref
        self._llm = start_engine(weights, options, runner="pooling")
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
                f"it stopped while scoring: {reason(error)} What was scored before is safe: resume "
                "the run.",
                field="engine",
                value="vllm",
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
