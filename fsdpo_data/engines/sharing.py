"""Whether a prompt can be computed once for all its solutions: tried on the very model.

Attention can start from the keys and values of a prompt. Linear attention, convolutions and state
space layers carry a state along the row, so what stands beside a solution may leak into it, by nats
per token and without a word. No list of architectures would stay complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

#: Tokens of the prompt that a model is tried on, and of each of its two solutions. More than the
#: convolutions in use are wide.
N_PROMPT, N_SOLUTION = 9, 7
#: Differences that rounding may explain, relative to the largest value: of float32, and of halves.
_ROUNDING = {4: 1e-3, 2: 0.1}


def attention_window(config: Any) -> int | None:
    """Return how many tokens some layer sees at most; None if each sees all before it."""
    windows = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
    return min((window for window in windows if window), default=None)


def decoder_of(model: Any) -> Any:
    """Return what is below the vocabulary head of a causal language model."""
    # Text models cut out of larger ones (Llama 4's) do not know their own by `base_model`.
    below = model.base_model if model.base_model is not model else getattr(model, "model", None)
    if below is None:
        raise InputError(f"{type(model).__name__} names nothing below its head: choose another.")
    return below


def probe_ids(model: Any) -> list[list[int]]:
    """Return two sequences of token ids that begin with one prompt and go on differently."""
    size = model.get_input_embeddings().num_embeddings
    ids = [31 * place % size for place in range(1, 1 + N_PROMPT + 2 * N_SOLUTION)]
    return [ids[: N_PROMPT + N_SOLUTION], ids[:N_PROMPT] + ids[-N_SOLUTION:]]


def gives_the_same(model: Any, alone: Callable[[], Tensor], shared: Callable[[], Tensor]) -> bool:
    """Say whether a model computes the same with shared prompts; if not, log it.

    Both give its values at the tokens of the probes: each computed by itself, the prompt once.
    """
    import torch

    with torch.inference_mode():
        expected = alone()
        try:
            found = shared()
        except Exception as error:  # architectures fail as they like where they cannot share
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        else:
            gap = float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-6))
            if gap <= _ROUNDING[min(4, expected.element_size())]:
                return True
            reason = f"off by {gap:.1%}"
    log.warning(
        "%s cannot share prompts (%s): each is computed anew for every solution",
        type(model).__name__,
        reason,
    )
    return False
