"""Scoring with the reward models that others published, each under its own convention.

Nothing of a checkpoint is run but its weights: the decoder is one that transformers has, and the
head is read off the tensors. Heads are computed where a step is read and nowhere else; a head of
words is as many rows of the vocabulary's.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers.likelihood import ImplicitScorer
from fsdpo_data.engines.scorers.prm import PrmScorer, gather_steps
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.engines.scorers.token_scorer import TransformersScorer
from fsdpo_data.models.checkpoints import read_tensors
from fsdpo_data.models.resolve import ResolvedWeights


class PublishedScorer(PrmScorer):
    """Scores as the convention of a published reward model says.

    Raises:
        InputError: if the checkpoint has no such head.
    """

    auto_class = "AutoModel"
    expected = "a decoder that transformers has, with the head of its convention"

    def __init__(self, weights: PublishedPrm, options: ScorerOptions) -> None:
        super().__init__(weights, options)
        self._head = PrmHead(weights, self._tokenizer, self._net.device, self._net.dtype)

    def _read(self, score_positions: Sequence[Sequence[int]], **inputs: Any) -> Tensor:
        return self._head.logits(
            gather_steps(self._net(**inputs).last_hidden_state, score_positions)
        )

    def _activate(self, logits: Tensor) -> Tensor:
        return self._head.rewards(logits)


class PrmHead:
    """What a published reward model reads hidden states with, at a device or of a dtype.

    Raises:
        InputError: if the checkpoint has none that its convention reads.
    """

    def __init__(self, weights: PublishedPrm, tokenizer: Any, *place: Any) -> None:
        self._convention = weights.prm_format
        layers = _layers(weights, tokenizer)
        self._layers = [[each.to(*place) for each in layer] for layer in layers]

    def logits(self, hidden_BKD: Tensor) -> Tensor:
        """Return the logits [B, K, C] of hidden states."""
        value = hidden_BKD
        for place, layer in enumerate(self._layers):
            value = _apply_linear(layer, value.relu() if place else value)
        return value.flatten(2).float()

    def rewards(self, logits_BKC: Tensor) -> Tensor:
        """Return the numbers [B, K] that logits stand for."""
        positive, link = list(self._convention.positive), self._convention.activation
        if link == "value":
            return logits_BKC[..., positive].sum(-1)
        if link == "sigmoid":  # of a committee, if there are more than one
            return logits_BKC.sigmoid().mean(-1)
        share = logits_BKC.softmax(-1)[..., positive].sum(-1)
        return 2 * share - 1 if link == "difference" else share


def _apply_linear(layer: Sequence[Tensor], value: Tensor) -> Tensor:
    """Apply a linear layer, or as many beside each other as its weight [E, in, out] holds."""
    weight = layer[0]
    if weight.ndim == 2:
        return linear(value, *layer)
    members = value if value.ndim == 4 else value[..., None, :]
    made = torch.einsum("bkei,eio->bkeo", members.expand(-1, -1, len(weight), -1), weight)
    return made + layer[1] if len(layer) > 1 else made


def _layers(weights: PublishedPrm, tokenizer: Any) -> list[list[Tensor]]:
    """Return (weight, bias) of each layer of the head, between which there is a ReLU."""
    convention = weights.prm_format
    of_words = convention.head == "vocabulary"
    called = ("lm_head", "model.embed_tokens") if of_words else (convention.head,)
    found = next(filter(None, (read_tensors(weights, f"{name}.") for name in called)), {})
    names = sorted(name.removesuffix("weight") for name in found if name.endswith("weight"))
    if not names:
        raise InputError(
            f"the checkpoint has no weights called {' or '.join(called)}, which {convention.name} "
            "reads. Choose its convention by `prm_format`.",
            field="prm",
            value=weights.ref.name,
        )
    if of_words:
        rows = found["weight"]
        ids = [
            tokenizer.encode(word, add_special_tokens=False)[-1] for word in convention.label_tokens
        ]
        # The mean of all logits is one logit: that of the mean row.
        return [[rows[ids] if ids else rows.float().mean(0, keepdim=True)]]
    parts = [[f"{name}weight", f"{name}bias"] for name in names]
    return [[found[part] for part in layer if part in found] for layer in parts]


def load_prm(weights: ResolvedWeights, options: ScorerOptions) -> TransformersScorer:
    """Load a reward model of our own kind, or a published one."""
    if not isinstance(weights, PublishedPrm):
        return PrmScorer(weights, options)
    return (ImplicitScorer if weights.reference else PublishedScorer)(weights, options)
