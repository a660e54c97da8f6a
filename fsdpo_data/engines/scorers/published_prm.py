"""Scoring with published reward models, each with its own PRM format.

Only the weights of a checkpoint are used, never its code. The decoder is an architecture of
transformers, and the head consists of tensors from the checkpoint. The head is computed only at the
score positions. A vocabulary head consists of a few rows of the language model head.
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
from fsdpo_data.engines.scorers.prm_formats import PrmFormat, PublishedPrm
from fsdpo_data.engines.scorers.token_scorer import TransformersScorer
from fsdpo_data.models.checkpoints import load_config, read_tensors
from fsdpo_data.models.resolve import ResolvedWeights


class PublishedScorer(PrmScorer):
    """Scorer for a published reward model with a head of its own.

    Raises:
        InputError: if the checkpoint does not contain the head of the PRM format.
    """

    auto_class = "AutoModel"
    expected = "a decoder that transformers supports, with the head of its PRM format"

    def __init__(self, weights: PublishedPrm, options: ScorerOptions) -> None:
        super().__init__(weights, options)
        self._head = PrmHead(
            weights, self._tokenizer, device=self._net.device, dtype=self._net.dtype
        )

    def _compute_step_logits(
        self, score_positions: Sequence[Sequence[int]], **inputs: Any
    ) -> Tensor:
        hidden = self._net(**inputs).last_hidden_state
        return self._head.compute_logits(gather_steps(hidden, score_positions))

    def _activate(self, logits: Tensor) -> Tensor:
        return self._head.activate(logits)


class PrmHead:
    """The head of a published reward model, from hidden states to rewards.

    Raises:
        InputError: if the checkpoint does not contain the head of the PRM format.
    """

    def __init__(
        self,
        weights: PublishedPrm,
        tokenizer: Any,
        *,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Read the head from the checkpoint.

        Args:
            weights: The reward model.
            tokenizer: The tokenizer of the model, for the rows of the label tokens.
            device: The device of the head; None for the CPU.
            dtype: The data type of the head; None for the data type of the checkpoint.
        """
        self._prm_format = weights.prm_format
        layers = _read_layers(weights, tokenizer)
        _check_outputs(weights, layers[-1][0])
        self._layers = [
            [tensor.to(device=device, dtype=dtype) for tensor in layer] for layer in layers
        ]

    def compute_logits(self, hidden_BKD: Tensor) -> Tensor:
        """Return the logits [B, K, C] of the hidden states at the score positions."""
        value = hidden_BKD
        for index, layer in enumerate(self._layers):
            value = _apply_linear(layer, value.relu() if index > 0 else value)
        return value.flatten(2).float()

    def activate(self, logits_BKC: Tensor) -> Tensor:
        """Return the rewards [B, K] of the logits, by the activation of the PRM format."""
        return activate_logits(self._prm_format, logits_BKC)


def activate_logits(prm_format: PrmFormat, logits_BKC: Tensor) -> Tensor:
    """Return the rewards [B, K] of the logits, by the activation of a PRM format."""
    positive = list(prm_format.positive)
    activation = prm_format.activation
    if activation == "value":
        return logits_BKC[..., positive].sum(-1)
    if activation == "sigmoid":  # an ensemble of several heads gives their mean
        return logits_BKC.sigmoid().mean(-1)
    probability = logits_BKC.softmax(-1)[..., positive].sum(-1)
    return 2 * probability - 1 if activation == "difference" else probability


def _apply_linear(layer: Sequence[Tensor], value: Tensor) -> Tensor:
    """Apply a linear layer, or the E parallel layers of an ensemble.

    Args:
        layer: The weight and an optional bias. The weight is [out, in], or [E, in, out] for an
            ensemble.
        value: The input, [B, K, in] or [B, K, E, in].
    """
    weight = layer[0]
    bias = layer[1] if len(layer) > 1 else None
    if weight.ndim == 2:
        return linear(value, weight, bias)
    inputs = value if value.ndim == 4 else value[..., None, :]
    inputs = inputs.expand(-1, -1, len(weight), -1)
    outputs = torch.einsum("bkei,eio->bkeo", inputs, weight)
    return outputs if bias is None else outputs + bias


def _has_tied_head(weights: ResolvedWeights) -> bool:
    """Return whether a checkpoint is a language model whose head is the input embedding."""
    config = load_config(weights)
    is_classifier = any("Classification" in name for name in config.architectures or ())
    return bool(config.tie_word_embeddings) and not is_classifier


def _read_layers(weights: PublishedPrm, tokenizer: Any) -> list[list[Tensor]]:
    """Return the weight and the bias of each layer of the head; a ReLU separates two layers."""
    prm_format = weights.prm_format
    is_vocabulary_head = prm_format.head == "vocabulary"
    head_name = "lm_head" if is_vocabulary_head else prm_format.head
    tensors = read_tensors(weights, f"{head_name}.")
    if is_vocabulary_head and not tensors and _has_tied_head(weights):
        # Tied embeddings are stored once, so the checkpoint lacks the head.
        head_name = "model.embed_tokens"
        tensors = read_tensors(weights, f"{head_name}.")
    layer_names = sorted(
        (name.removesuffix("weight") for name in tensors if name.endswith("weight")),
        key=_numbers_in_order,
    )
    if not layer_names:
        raise InputError(
            f"the checkpoint has no weights called {head_name}, which the PRM format "
            f"{prm_format.name} needs. Choose the format of the checkpoint with `prm_format`.",
            field="prm",
            value=weights.ref.name,
        )
    if is_vocabulary_head:
        rows = tensors["weight"]
        label_ids = [_find_label_id(weights, tokenizer, token) for token in prm_format.label_tokens]
        # Without label tokens, the head is the mean of all logits, so the mean row gives its logit.
        return [[rows[label_ids] if label_ids else rows.float().mean(0, keepdim=True)]]
    layers = []
    for layer_name in layer_names:
        layer = [tensors[f"{layer_name}weight"]]
        if f"{layer_name}bias" in tensors:
            layer.append(tensors[f"{layer_name}bias"])
        layers.append(layer)
    return layers


def _numbers_in_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key in which numbers count as numbers: layer 2 comes before layer 10."""
    return [
        (int(part), "") if part.isascii() and part.isdigit() else (-1, part)
        for part in name.split(".")
    ]


def _find_label_id(weights: PublishedPrm, tokenizer: Any, token: str) -> int:
    """Return the id of a label token.

    Raises:
        InputError: if the tokenizer has no such token.
    """
    ids = tokenizer.encode(token, add_special_tokens=False)
    if ids and ids[-1] != tokenizer.unk_token_id:
        label_id: int = ids[-1]  # some tokenizers put a token for a space before the label
        if tokenizer.decode([label_id]).strip() == token.strip():
            return label_id
    raise InputError(
        f"the PRM format {weights.prm_format.name} reads the logit of {token!r}, which is not a "
        "token of this tokenizer. Use the tokenizer of the checkpoint, or another format with "
        "`prm_format`.",
        field="prm",
        value=weights.ref.name,
    )


def _check_outputs(weights: PublishedPrm, last_weight: Tensor) -> None:
    """Raise an InputError if the head has another number of outputs than the PRM format reads."""
    prm_format = weights.prm_format
    is_ensemble = last_weight.ndim == 3
    n_outputs = len(last_weight) * (last_weight.shape[-1] if is_ensemble else 1)
    if prm_format.activation == "sigmoid":
        is_right_size = is_ensemble or n_outputs == 1
        expected = "one output, the logit of a right step"
    else:
        n_classes = max(prm_format.positive) + 1
        if prm_format.activation != "value":
            n_classes = max(n_classes, 2)  # one class alone has probability 1
        is_right_size = n_outputs >= n_classes
        classes = ", ".join(map(str, prm_format.positive))
        expected = f"at least {n_classes} output(s), and class {classes} is right"
    if not is_right_size:
        raise InputError(
            f"the PRM format {prm_format.name} expects {expected}, but the head "
            f"{prm_format.head} of the checkpoint has {n_outputs}. Choose the format of the "
            "checkpoint with `prm_format`.",
            field="prm",
            value=weights.ref.name,
        )


def load_prm(weights: ResolvedWeights, options: ScorerOptions) -> TransformersScorer:
    """Load a model of ``fsdpo-train prm``, or a published reward model."""
    if not isinstance(weights, PublishedPrm):
        return PrmScorer(weights, options)
    if weights.reference:
        return ImplicitScorer(weights, options)
    return PublishedScorer(weights, options)
