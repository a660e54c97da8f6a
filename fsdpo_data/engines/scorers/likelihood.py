"""A policy's own confidence in its steps: the baseline that a process reward model has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from fsdpo_data.engines.logprobs import token_logprobs
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.policy import check_architecture
from fsdpo_data.engines.scorers import SteppedText
from fsdpo_data.engines.scorers.heads import by_length, padded
from fsdpo_data.engines.sharing import decoder_of
from fsdpo_data.engines.step_tokens import Encoded, StepTokenizer
from fsdpo_data.models.checkpoints import context_length, load_checkpoint, pick_device
from fsdpo_data.models.resolve import Weights

if TYPE_CHECKING:
    import torch


class LikelihoodScorer:
    """Rewards each step with the probability that a policy gives it after what came before.

    The product over the steps is the likelihood of the solution, its end left out.

    Args:
        weights: A causal language model.
        options: Device, precision and size of batches.

    Raises:
        InputError: if the model changes its logits after its head.
        Unavailable: if torch is missing, a GPU is asked for and absent, or loading fails.
    """

    def __init__(self, weights: Weights, options: ScorerOptions) -> None:
        self.model = weights.ref
        self._device = pick_device(options.device)
        self._batch_tokens = options.batch_tokens
        tokenizer, net = load_checkpoint(
            "AutoModelForCausalLM",
            weights,
            dtype=options.dtype,
            expected="a causal language model",
            field="likelihood",
        )
        self._net = net.to(self._device).eval()
        check_architecture(self._net)
        self._encoder = StepTokenizer(tokenizer)
        self._pad: int = tokenizer.pad_token_id or 0
        self._context = context_length(self._net.config)

    def score(self, items: Sequence[SteppedText]) -> list[list[float] | None]:
        """Score every step of every item; see :class:`fsdpo_data.engines.scorers.Scorer`."""
        encoded = [
            self._encoder.encode(item.prompt, item.steps, end=False, max_length=self._context)
            for item in items
        ]
        results: list[list[float] | None] = [None if each.lost else [] for each in encoded]
        lengths = {
            index: len(each.ids)
            for index, each in enumerate(encoded)
            if each.readouts and not each.lost
        }
        for batch in by_length(lengths, self._batch_tokens):
            logprobs = self._logprobs([encoded[index] for index in batch])
            for index, row in zip(batch, logprobs, strict=True):
                results[index] = _probabilities(row, encoded[index])
        return results

    def _logprobs(self, batch: Sequence[Encoded]) -> torch.Tensor:
        """Return log π of every token after the first, shape [B, T - 1]."""
        import torch

        ids, mask = padded([each.ids for each in batch], self._pad, self._device)
        with torch.inference_mode():
            hidden = decoder_of(self._net)(
                input_ids=ids, attention_mask=mask, use_cache=False
            ).last_hidden_state
            head = self._net.get_output_embeddings()
            flat = token_logprobs(hidden[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), head)
        return flat.view(len(batch), -1).double()


def _probabilities(logprobs: torch.Tensor, encoded: Encoded) -> list[float]:
    """Return the probability of each step; logprobs[i] is that of token i + 1."""
    starts = [encoded.n_prompt, *(readout + 1 for readout in encoded.readouts)]
    return [float(logprobs[start - 1 : end - 1].sum().exp()) for start, end in pairwise(starts)]
