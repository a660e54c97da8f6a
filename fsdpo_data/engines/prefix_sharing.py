"""Prefix sharing: a prompt is computed once for all of its solutions.

A row of L tokens holds prompts, each followed by its solutions. These segments form a prefix tree:
a solution attends to its prompt and to itself, and to no other solution.

A mask over L × L could express this, but most of its scores would be computed for nothing. T
solutions would cost T times as much as necessary. :mod:`~fsdpo_data.engines.tree_attention` skips
these scores. All other layers act on single tokens, so they do not change.

Linear attention, convolutions and state space layers carry a state along the row, so solutions can
leak into each other without an error. A list of such architectures would never be complete.
Therefore :func:`supports_prefix_sharing` tests the model itself.
"""

import logging
from collections.abc import Callable
from importlib.util import find_spec
from types import MethodType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.tree_attention import (
    FLEX_BLOCK_TOKENS,
    Segment,
    block_mask,
    lower_right_mask,
    tree_attention,
)

log = logging.getLogger(__name__)

# Tokens of the prompt and of each of the two solutions that test a model. The numbers exceed the
# width of the convolutions in use.
PROBE_PROMPT_TOKENS = 9
PROBE_SOLUTION_TOKENS = 7
#: Longest row for which a [T, T] mask is allocated.
MAX_MASKED_ROW_TOKENS = 4096
#: Relative difference that rounding may cause, by the bytes of the data type.
_MAX_RELATIVE_ROUNDING = {4: 1e-3, 2: 0.1}
#: Implementation of the attention: FlexAttention, or ``sdpa`` segment by segment. ``auto`` takes
#: FlexAttention if it can be compiled.
TreeAttention = Literal["auto", "flex", "sdpa"]
#: The implementations, under the names that are registered with transformers.
_REGISTERED_NAMES = {"flex": "prompt_tree_flex", "sdpa": "prompt_tree"}
#: The attention implementations of a model that tree attention can replace.
_REPLACEABLE = ("sdpa", *_REGISTERED_NAMES.values())


class PackedTree(NamedTuple):
    """Solutions that were packed into one row."""

    inputs: dict[str, Tensor]  #: Inputs of a model, see :func:`tree_inputs`.
    position_ST: Tensor  #: Position in the row of each token of the original rows.


def attention_window(config: Any) -> int | None:
    """Return the smallest attention window of all layers, in tokens; None without a window."""
    windows = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
    return min((window for window in windows if window), default=None)


def decoder_of(model: Any) -> Any:
    """Return the decoder of a causal language model, without the vocabulary head.

    Raises:
        InputError: if the model has no separate decoder.
    """
    # In text models that are parts of larger models (Llama 4), `base_model` is the model itself.
    decoder = model.base_model if model.base_model is not model else getattr(model, "model", None)
    if decoder is None:
        raise InputError(
            f"the architecture {type(model).__name__} has no decoder apart from its head. Choose "
            "another model."
        )
    return decoder


def probe_ids(model: Any) -> list[list[int]]:
    """Return the ids of two sequences with a common prompt and different continuations."""
    vocabulary = model.get_input_embeddings().num_embeddings
    n_ids = PROBE_PROMPT_TOKENS + 2 * PROBE_SOLUTION_TOKENS
    ids = [31 * number % vocabulary for number in range(1, 1 + n_ids)]
    first = ids[: PROBE_PROMPT_TOKENS + PROBE_SOLUTION_TOKENS]
    second = ids[:PROBE_PROMPT_TOKENS] + ids[-PROBE_SOLUTION_TOKENS:]
    return [first, second]


def matches_unshared(
    model: Any, compute_unshared: Callable[[], Tensor], compute_shared: Callable[[], Tensor]
) -> bool:
    """Return whether a model computes the same values with shared prompts, and log if not.

    Args:
        model: The model, for the data type and the log message.
        compute_unshared: Computes the probe sequences separately.
        compute_shared: Computes the probe sequences with a shared prompt.
    """
    with torch.inference_mode():
        expected = compute_unshared()
        try:
            actual = compute_shared()
        except Exception as error:  # unsuitable architectures raise many kinds of errors
            first_line = str(error).splitlines()[0] if str(error) else ""
            reason = f"{type(error).__name__}: {first_line}"
        else:
            max_value = expected.abs().max().clamp_min(1e-6)
            difference = float((actual - expected).abs().max() / max_value)
            # Rewards are float32 even if the model is not, so the model's data type counts.
            if difference <= _MAX_RELATIVE_ROUNDING[min(4, model.dtype.itemsize)]:
                return True
            reason = f"off by {difference:.1%}"
    log.warning(
        "%s cannot share prompts (%s). Prompts are computed again for every solution.",
        type(model).__name__,
        reason,
    )
    return False


def supports_prefix_sharing(model: Any, max_row_tokens: int) -> bool:
    """Return whether a model can compute a prompt once for all of its solutions.

    The answer is no if an attention window is shorter than the rows, if transformers cannot
    replace the attention of the architecture, or if a test with the model gives other values. The
    test runs the model, so all weights must be loaded.

    Args:
        model: The model.
        max_row_tokens: Tokens of the longest prompt with a solution.
    """
    window = attention_window(model.config)
    implementation = model.config._attn_implementation
    if implementation not in _REPLACEABLE or (window and max_row_tokens > window):
        return False
    was_training = model.training
    model.eval()
    use_tree_attention(model, "sdpa")  # the weights are not on the GPU yet
    try:
        probes = _make_probes(model)
        return matches_unshared(
            model,
            compute_unshared=probes.compute_unshared,
            compute_shared=probes.compute_shared,
        )
    finally:
        model.set_attn_implementation(implementation)
        model.train(was_training)


class _Probes(NamedTuple):
    """Functions that compute the last hidden states of the probe sequences, [2, T, D]."""

    compute_unshared: Callable[[], Tensor]  #: Computes the sequences separately.
    compute_shared: Callable[[], Tensor]  #: Computes the common prompt once.


def _make_probes(model: Any) -> _Probes:
    ids_ST = torch.tensor(probe_ids(model), device=model.device)
    is_solution_T = torch.arange(ids_ST.shape[1], device=model.device) >= PROBE_PROMPT_TOKENS
    tree = pack_prefix_tree(ids_ST, is_solution_T.expand_as(ids_ST))

    def hidden_states(**inputs: Any) -> Tensor:
        """Return the last hidden states of the decoder."""
        outputs: Any = decoder_of(model)(**tree_inputs(model, **inputs), use_cache=False)
        return outputs.last_hidden_state

    return _Probes(
        compute_unshared=lambda: hidden_states(input_ids=ids_ST),
        compute_shared=lambda: hidden_states(**tree.inputs)[0, tree.position_ST],
    )


def _uses_flex(attention: TreeAttention) -> bool:
    can_compile = torch.cuda.is_available() and find_spec("triton") is not None
    return attention == "flex" or (attention == "auto" and can_compile)


def use_tree_attention(model: Any, attention: TreeAttention = "auto") -> None:
    """Set the attention of ``model`` to :func:`tree_attention`, if the architecture permits it.

    Batches without a tree are computed as before.
    """
    if model.config._attn_implementation not in _REPLACEABLE:
        return
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    name = _REGISTERED_NAMES["flex" if _uses_flex(attention) else "sdpa"]
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


def pack_prefix_tree(ids_ST: Tensor, is_solution_ST: Tensor) -> PackedTree:
    """Pack prompts with solutions into one row; neighbours with the same prompt share it.

    ::

        tokens    p p p | a a a a | b b b | q q ...   a solution attends to its prompt and itself
        position  0 1 2 | 3 4 5 6 | 3 4 5 | 0 1 ...   each solution follows the prompt

    Args:
        ids_ST: Token ids of one prompt and one solution per row, with padding.
        is_solution_ST: Whether a token belongs to the solution.
    """
    is_prompt_ST = is_solution_ST.cumsum(1) == 0
    is_equal_ST = ~is_prompt_ST[1:] | (ids_ST[1:] == ids_ST[:-1])
    has_previous_prompt_S = (is_equal_ST & (is_prompt_ST[1:] == is_prompt_ST[:-1])).all(1)
    is_first_S = ~pad(has_previous_prompt_S, (1, 0))
    # The only solution of a prompt forms one segment with the prompt.
    is_only_S = is_first_S & ~pad(has_previous_prompt_S, (0, 1))
    is_packed_ST = is_solution_ST | (is_first_S[:, None] & is_prompt_ST)
    position_ST = (is_packed_ST.flatten().cumsum(0) - 1).view_as(ids_ST)
    first_row_S = is_first_S.nonzero()[is_first_S.cumsum(0) - 1, 0]
    # Two segments per row, of which some are empty: the prompt and the solution.
    is_segment_S2 = torch.stack([is_first_S, ~is_only_S], 1)
    prompt_tokens_S = is_prompt_ST.sum(1) + is_only_S * is_solution_ST.sum(1)
    n_tokens_S2 = torch.stack([prompt_tokens_S, is_solution_ST.sum(1)], 1)
    segment_index_S2 = (is_segment_S2.flatten().cumsum(0) - 1).view(-1, 2)
    prompt_index_S2 = segment_index_S2[first_row_S, :1].expand(-1, 2)
    inputs = {
        "input_ids": ids_ST[is_packed_ST][None],
        "position_ids": is_packed_ST.nonzero()[None, :, 1],
        "tree_2N": torch.stack([n_tokens_S2[is_segment_S2], prompt_index_S2[is_segment_S2]]),
    }
    return PackedTree(inputs, position_ST[first_row_S].where(is_prompt_ST, position_ST))


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
    if model.config._attn_implementation == _REGISTERED_NAMES["flex"]:
        padding = -sum(n_tokens_N) % FLEX_BLOCK_TOKENS
        # peft passes absent inputs as None.
        tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
        inputs |= {name: pad(value, (0, padding)) for name, value in tensors.items()}
        segments.append(Segment(padding, prompt_index=len(segments)))
        mask: Any = block_mask(segments, device)
    else:
        mask = lower_right_mask(segments, dtype, device)
    return {**inputs, "attention_mask": mask, "tree": segments}
