"""Scoring with a process reward model through vLLM's pooling runner."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from fsdpo_data.core.lazy import torch, transformers
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.samplers.vllm import start_engine, stop_engine, vllm_errors
from fsdpo_data.engines.scorers import ScoreResult
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.engines.scorers.published_prm import PrmHead
from fsdpo_data.engines.scorers.token_scorer import TokenScorer, length_batches
from fsdpo_data.engines.step_tokens import EncodedSolution
from fsdpo_data.models.checkpoints import load_config
from fsdpo_data.models.resolve import ResolvedWeights

#: The load format of :func:`register_decoder_only`.
DECODER_LOAD_FORMAT = "fsdpo-decoder"


class VllmPrmScorer(TokenScorer):
    """Scorer that runs ``LLM(runner="pooling")`` with the task ``token_classify``.

    vLLM returns the sigmoid of the logit of every token. The scorer selects the score positions.

    Raises:
        UnavailableError: if vLLM is missing or cannot start on this machine.
    """

    def __init__(
        self, weights: ResolvedWeights, options: ScorerOptions, **engine_arguments: Any
    ) -> None:
        self._llm = start_engine(weights, options, runner="pooling", **engine_arguments)
        context = self._llm.model_config.max_model_len
        super().__init__(weights, self._llm.get_tokenizer(), context)

    def close(self) -> None:
        """Shut down the processes of the engine."""
        stop_engine(self._llm)

    def _score_encoded(self, encoded: dict[int, EncodedSolution]) -> Iterator[ScoreResult]:
        for index, token_rewards in self._run_engine(encoded, "token_classify"):
            yield index, token_rewards[encoded[index].score_positions].flatten().tolist()

    def _run_engine(
        self, encoded: Mapping[int, EncodedSolution], task: str
    ) -> Iterator[tuple[int, Any]]:
        """Yield the index of each solution and vLLM's output for its tokens, [T, …]."""
        if not encoded:
            return
        prompts = [
            {"prompt_token_ids": solution.input_ids.tolist()} for solution in encoded.values()
        ]
        with vllm_errors("scoring"):
            outputs = self._llm.encode(prompts, pooling_task=task, use_tqdm=False)
        for index, output in zip(encoded, outputs, strict=True):
            yield index, output.outputs.data


class VllmPublishedScorer(VllmPrmScorer):
    """Scorer for a published reward model: vLLM runs the decoder, and torch runs the head.

    Raises:
        InputError: if the checkpoint does not contain the head of the PRM format.
        UnavailableError: if vLLM is missing, cannot start on this machine, or does not support
            the decoder.
    """

    def __init__(self, weights: PublishedPrm, options: ScorerOptions) -> None:
        model_type = load_config(weights).model_type
        architectures = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        super().__init__(
            weights,
            options,
            convert="embed",
            load_format=DECODER_LOAD_FORMAT,
            hf_overrides={"architectures": [architectures.get(model_type, model_type)]},
            pooler_config={"task": "token_embed", "use_activation": False},
        )
        self._head = PrmHead(weights, self._llm.get_tokenizer(), dtype=torch.float32)
        self._batch_tokens = options.batch_tokens

    def _score_encoded(self, encoded: dict[int, EncodedSolution]) -> Iterator[ScoreResult]:
        # A hidden state has thousands of numbers, so only one batch of them is in memory.
        lengths = {index: len(solution.input_ids) for index, solution in encoded.items()}
        for batch in length_batches(lengths, self._batch_tokens):
            batch_solutions = {index: encoded[index] for index in batch}
            for index, hidden in self._run_engine(batch_solutions, "token_embed"):
                step_hidden = hidden[None, encoded[index].score_positions].float()
                logits = self._head.compute_logits(step_hidden)
                yield index, self._head.activate(logits)[0].tolist()


def load_prm(weights: ResolvedWeights, options: ScorerOptions) -> VllmPrmScorer:
    """Load a model of ``fsdpo-train prm``, or a published reward model."""
    if isinstance(weights, PublishedPrm):
        return VllmPublishedScorer(weights, options)
    return VllmPrmScorer(weights, options)


def register_decoder_only() -> None:
    """Register a load format of vLLM that ignores the head of a checkpoint.

    vLLM calls this function in each of its processes, as an entry point for plugins.
    """
    from vllm.model_executor.model_loader import DefaultModelLoader, register_model_loader

    @register_model_loader(DECODER_LOAD_FORMAT)
    class DecoderOnly(DefaultModelLoader):  # type: ignore[misc]
        """Loader that reads only the weights of the decoder."""

        def __init__(self, load_config: Any) -> None:
            super().__init__(replace(load_config, load_format="auto"))

        def get_all_weights(self, *args: Any) -> Iterable[tuple[str, Any]]:
            """Return the names and the tensors of the decoder's weights."""
            weights = super().get_all_weights(*args)
            return ((name, tensor) for name, tensor in weights if name.startswith("model."))
