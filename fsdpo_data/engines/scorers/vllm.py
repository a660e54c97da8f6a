"""Scoring with a process reward model through vLLM's pooling runner."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from fsdpo_data.core.lazy import torch, transformers
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.samplers.vllm import start_engine, vllm_errors
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.engines.scorers.published import PrmHead
from fsdpo_data.engines.scorers.token_scorer import TokenScorer, length_batches
from fsdpo_data.engines.step_tokens import EncodedSolution
from fsdpo_data.models.checkpoints import load_config
from fsdpo_data.models.resolve import ResolvedWeights

DECODER_LOAD_FORMAT = "fsdpo-decoder"  #: The load format of :func:`register_decoder_only`.


class VllmPrmScorer(TokenScorer):
    """Scores with ``LLM(runner="pooling")`` and its task ``token_classify``.

    vLLM returns the sigmoid of every token's logit; the score_positions are picked from those.

    Raises:
        Unavailable: if vLLM is missing or cannot start here.
    """

    def __init__(self, weights: ResolvedWeights, options: ScorerOptions, **arguments: Any) -> None:
        self._llm = start_engine(weights, options, runner="pooling", **arguments)
        context = self._llm.model_config.max_model_len
        super().__init__(weights, self._llm.get_tokenizer(), context)

    def _rewards(self, encoded: dict[int, EncodedSolution]) -> Iterator[tuple[int, list[float]]]:
        for index, rewards in self._outputs(encoded, "token_classify"):
            yield index, rewards[encoded[index].score_positions].flatten().tolist()

    def _outputs(
        self, encoded: Mapping[int, EncodedSolution], task: str
    ) -> Iterator[tuple[int, Any]]:
        """Yield what vLLM gives for the tokens of each, [T, …]."""
        if not encoded:
            return
        tokens = [{"prompt_token_ids": each.input_ids} for each in encoded.values()]
        with vllm_errors("scoring"):
            outputs = self._llm.encode(tokens, pooling_task=task, use_tqdm=False)
        for index, output in zip(encoded, outputs, strict=True):
            yield index, output.outputs.data


class VllmPublishedScorer(VllmPrmScorer):
    """Scores as a convention says: vLLM runs the decoder, its hidden states are read here.

    Raises:
        InputError: if the checkpoint has no such head.
        Unavailable: if vLLM is missing, cannot start here, or has no such decoder.
    """

    def __init__(self, weights: PublishedPrm, options: ScorerOptions) -> None:
        kind = load_config(weights).model_type
        decoders = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        super().__init__(
            weights,
            options,
            convert="embed",
            load_format=DECODER_LOAD_FORMAT,
            hf_overrides={"architectures": [decoders.get(kind, kind)]},
            pooler_config={"task": "token_embed", "use_activation": False},
        )
        self._head = PrmHead(weights, self._llm.get_tokenizer(), torch.float32)
        self._batch_tokens = options.batch_tokens

    def _rewards(self, encoded: dict[int, EncodedSolution]) -> Iterator[tuple[int, list[float]]]:
        # A hidden state is thousands of numbers: those of a batch are held at a time.
        lengths = {index: len(each.input_ids) for index, each in encoded.items()}
        for batch in length_batches(lengths, self._batch_tokens):
            some = {index: encoded[index] for index in batch}
            for index, hidden in self._outputs(some, "token_embed"):
                logits = self._head.logits(hidden[None, encoded[index].score_positions].float())
                yield index, self._head.rewards(logits)[0].tolist()


def load_prm(weights: ResolvedWeights, options: ScorerOptions) -> VllmPrmScorer:
    """Load a reward model of our own kind, or a published one."""
    if isinstance(weights, PublishedPrm):
        return VllmPublishedScorer(weights, options)
    return VllmPrmScorer(weights, options)


def register_decoder_only() -> None:
    """Teach vLLM to leave a head alone; every process of its own calls this, as a plugin's."""
    from vllm.model_executor.model_loader import DefaultModelLoader, register_model_loader

    @register_model_loader(DECODER_LOAD_FORMAT)
    class DecoderOnly(DefaultModelLoader):  # type: ignore[misc]
        def __init__(self, load_config: Any) -> None:
            super().__init__(replace(load_config, load_format="auto"))

        def get_all_weights(self, *args: Any) -> Iterable[tuple[str, Any]]:
            every = super().get_all_weights(*args)
            return (named for named in every if named[0].startswith("model."))
