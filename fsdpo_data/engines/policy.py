"""A causal language model that answers with log-probabilities of completions, not with logits."""

from __future__ import annotations

from collections.abc import Mapping
from types import MethodType
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.logprobs import token_logprobs
from fsdpo_data.engines.sharing import decoder_of
from fsdpo_data.engines.tree_attention import use_tree_attention

if TYPE_CHECKING:
    from torch import Tensor

#: Tokens that a model is tried on, and the error that rounding may explain.
_PROBE, _ROUNDING = 8, 1e-3


def check_architecture(model: Any) -> None:
    """Refuse a model whose logits are more than its head on its last hidden states.

    Some architectures scale or cap their logits outside the head, where
    :func:`return_logprobs` would not see it.

    Raises:
        InputError: if that is so.
    """
    import torch

    size = model.get_input_embeddings().num_embeddings
    ids = torch.arange(1, 1 + _PROBE, device=model.device)[None] % size
    with torch.no_grad():
        expected = model(input_ids=ids, use_cache=False).logits
        hidden = decoder_of(model)(input_ids=ids, use_cache=False).last_hidden_state
        found = model.get_output_embeddings()(hidden)
    error = float((found - expected).abs().max())
    if error > _ROUNDING * max(1.0, float(expected.abs().max())):
        raise InputError(
            f"{type(model).__name__} changes its logits after the vocabulary head (by up to "
            f"{error:.3g}; soft caps and logit scales do). Preference training reads the head "
            "alone; choose a model without them."
        )


def return_logprobs(model: Any) -> Any:
    """Make ``model(**batch)`` return log π of the batch's completion tokens, shape [N].

    The forward pass is replaced, rather than walked around, because DistributedDataParallel,
    DeepSpeed and autocast act on calls of the whole model.

    Args:
        model: A causal language model; it is changed, and returned.
    """
    model.forward = MethodType(_logprobs, model)
    use_tree_attention(model)
    return model


def _logprobs(
    self: Any,
    input_ids: Tensor,
    position_ids: Tensor,
    attention_mask: Tensor,
    source_N: Tensor,
    target_N: Tensor,
    **tree: Tensor,
) -> Tensor:
    hidden_RLD = decoder_of(self)(
        input_ids=input_ids,
        position_ids=position_ids,
        attention_mask=attention_mask,
        use_cache=False,
        **tree,
    ).last_hidden_state
    head = self.get_output_embeddings()
    return token_logprobs(hidden_RLD.flatten(0, 1)[source_N], target_N, head)


def model_inputs(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return what such a model reads of a batch of prompt groups."""
    return {
        "input_ids": batch["input_ids_RL"],
        "position_ids": batch["position_ids_RL"],
        "attention_mask": batch["attention_mask"],
        "source_N": batch["source_N"],
        "target_N": batch["target_N"],
        **batch["tree"],
    }
