"""Scoring with a process reward model through vLLM's pooling runner."""

from collections.abc import Iterator

from fsdpo_data.engines.options import EngineOptions
from fsdpo_data.engines.samplers.vllm import alive, start_engine
from fsdpo_data.engines.scorers.encoded import EncodedScorer
from fsdpo_data.engines.step_tokens import Encoded
from fsdpo_data.models.resolve import Weights


class VllmPrmScorer(EncodedScorer):
    """Scores with ``LLM(runner="pooling")`` and its task ``token_classify``.

    vLLM returns the sigmoid of every token's logit; the readouts are picked from those.

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
        tokens = [{"prompt_token_ids": each.ids} for each in encoded.values()]
        with alive("scoring"):
            outputs = self._llm.encode(tokens, pooling_task="token_classify", use_tqdm=False)
        for (index, each), output in zip(encoded.items(), outputs, strict=True):
            rewards = output.outputs.data.flatten().tolist()
            yield index, [rewards[position] for position in each.readouts]
