"""Scoring with a process reward model through vLLM's pooling runner."""

from __future__ import annotations

from collections.abc import Iterator

from fsdpo_data.engines.options import EngineOptions
from fsdpo_data.engines.registry import engine_error
from fsdpo_data.engines.samplers.vllm import start_engine
from fsdpo_data.engines.scorers.encoded import EncodedScorer
from fsdpo_data.engines.step_tokens import Encoded
from fsdpo_data.models.resolve import Weights
from fsdpo_data.models.untrusted import load_error


class VllmPrmScorer(EncodedScorer):
    """Scores with ``LLM(runner="pooling")`` and its task ``token_classify``.

    vLLM returns the sigmoid of every token's logit; the readouts are picked from those.

    Args:
        weights: The model.
        options: Precision, and what is passed on to ``vllm.LLM`` as it is.

    Raises:
        Unavailable: if vLLM is missing or cannot start here.
    """

    def __init__(self, weights: Weights, options: EngineOptions) -> None:
        self._llm = start_engine(weights, options, runner="pooling")
        context = self._llm.model_config.max_model_len
        super().__init__(weights, self._llm.get_tokenizer(), context)

    def _rewards(self, encoded: dict[int, Encoded]) -> Iterator[tuple[int, list[float]]]:
        if not encoded:
            return
        try:
            outputs = self._llm.encode(
                [{"prompt_token_ids": each.ids} for each in encoded.values()],
                pooling_task="token_classify",
                use_tqdm=False,
            )
        except Exception as error:  # a dead engine raises whatever killed it
            raise engine_error(
                "vllm",
                f"it stopped while scoring: {load_error(error)} What was scored before is safe: "
                "resume the run.",
            ) from error
        for (index, each), output in zip(encoded.items(), outputs, strict=True):
            rewards = output.outputs.data.flatten().tolist()
            yield index, [rewards[position] for position in each.readouts]
