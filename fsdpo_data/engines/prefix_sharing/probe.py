"""A test of a model: does it compute the same values with shared prompts?

Linear attention, convolutions and state space layers carry a state along the row, so solutions can
leak into each other without an error. A list of such architectures would never be complete.
Therefore :func:`supports_prefix_sharing` tests the model itself.
"""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fsdpo_data.engines.prefix_sharing.model_attention import (
    REPLACEABLE_ATTENTIONS,
    tree_inputs,
    use_tree_attention,
)
from fsdpo_data.engines.prefix_sharing.tree import pack_prefix_tree
from fsdpo_data.models.checkpoints import decoder_of

log = logging.getLogger(__name__)

# Tokens of the prompt and of each of the two solutions that test a model. The numbers exceed the
# width of the convolutions in use.
PROBE_PROMPT_TOKENS = 9
PROBE_SOLUTION_TOKENS = 7
#: Relative difference that rounding may cause, by the bytes of the data type.
_MAX_RELATIVE_ROUNDING = {4: 1e-3, 2: 0.1}


def supports_prefix_sharing(model: Any, max_row_tokens: int) -> bool:
    """Return whether a model can compute a prompt once for all of its solutions.

    The rows must fit into the attention window, and transformers must be able to replace the
    attention of the architecture. A test with the model must give the same values. The test runs
    the model, so all weights must be loaded.

    Args:
        model: The model.
        max_row_tokens: Tokens of the longest prompt with a solution.
    """
    window = attention_window(model.config)
    implementation = model.config._attn_implementation
    if implementation not in REPLACEABLE_ATTENTIONS or (window and max_row_tokens > window):
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


def attention_window(config: Any) -> int | None:
    """Return the smallest attention window of all layers, in tokens; None without a window."""
    text_config = config.get_text_config()  # vision models have several configs
    names = ("sliding_window", "attention_chunk_size")
    windows = (getattr(text_config, name, None) for name in names)
    return min((window for window in windows if window), default=None)


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
