"""The attention of a model that shares prompts, and the inputs that the model then needs."""

from importlib.util import find_spec
from types import MethodType
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from fsdpo_data.engines.prefix_sharing.attention import tree_attention
from fsdpo_data.engines.prefix_sharing.masks import (
    FLEX_BLOCK_TOKENS,
    block_mask,
    lower_right_mask,
)
from fsdpo_data.engines.prefix_sharing.tree import Segment

#: Implementation of the attention: FlexAttention, or ``sdpa`` segment by segment. ``auto`` takes
#: FlexAttention if it can be compiled.
TreeAttention = Literal["auto", "flex", "sdpa"]
#: The implementations, under the names that are registered with transformers.
REGISTERED_NAMES = {"flex": "prompt_tree_flex", "sdpa": "prompt_tree"}
#: The attention implementations of a model that tree attention can replace.
REPLACEABLE_ATTENTIONS = ("sdpa", *REGISTERED_NAMES.values())


def _uses_flex(attention: TreeAttention) -> bool:
    can_compile = torch.cuda.is_available() and find_spec("triton") is not None
    return attention == "flex" or (attention == "auto" and can_compile)


def use_tree_attention(model: Any, attention: TreeAttention = "auto") -> None:
    """Set the attention of ``model`` to :func:`tree_attention`, if the architecture permits it.

    Batches without a tree are computed as before.
    """
    if model.config._attn_implementation not in REPLACEABLE_ATTENTIONS:
        return
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    name = REGISTERED_NAMES["flex" if _uses_flex(attention) else "sdpa"]
    AttentionInterface.register(name, tree_attention)
    AttentionMaskInterface.register(name, sdpa_mask)
    model.set_attn_implementation(name)


def accept_prefix_trees(model: Any) -> None:
    """Patch ``model(**inputs)`` to accept the inputs of :func:`pack_prefix_tree`."""

    def forward(self: Any, **inputs: Any) -> Any:
        """Run the model on a batch with or without a tree."""
        return type(self).forward(self, **tree_inputs(self, **inputs))

    use_tree_attention(model)
    model.forward = MethodType(forward, model)


def tree_inputs(model: Any, *, tree_2N: Tensor | None = None, **inputs: Tensor) -> dict[str, Any]:
    """Return the inputs of a decoder, with the segments and the mask if there is a tree.

    Args:
        model: The model, which determines the kind of the mask.
        tree_2N: For each segment of the row, the number of tokens and the index of its prompt.
        inputs: Other inputs of the decoder.
    """
    if tree_2N is None:
        return inputs
    device_type = model.device.type
    device = inputs["input_ids"].device
    is_autocast = torch.is_autocast_enabled(device_type)
    dtype = torch.get_autocast_dtype(device_type) if is_autocast else model.dtype
    n_tokens_N, prompt_index_N = tree_2N.tolist()
    segments = list(map(Segment, n_tokens_N, prompt_index_N))
    if model.config._attn_implementation == REGISTERED_NAMES["flex"]:
        padding = -sum(n_tokens_N) % FLEX_BLOCK_TOKENS
        # peft passes absent inputs as None.
        tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
        inputs |= {name: pad(value, (0, padding)) for name, value in tensors.items()}
        segments.append(Segment(padding, prompt_index=len(segments)))
        mask: Any = block_mask(segments, device)
    else:
        mask = lower_right_mask(segments, dtype, device)
    return {**inputs, "attention_mask": mask, "tree": segments}
