"""Prompt groups: a prompt computed once, its solutions behind it, none sees another.

A row of L tokens holds a prompt and its solutions. A mask over L × L would say who sees whom, but
most of the scores it lets a kernel compute are thrown away: T solutions cost T times as many as
they need. So the tokens are regrouped within attention alone: the prompt on its own, and every
solution with the prompt's keys before its own. All else in a model acts on single tokens and never
notices.

Linear attention, convolutions and state space layers carry a state along the row, so what stands
beside a solution may leak into it, by nats per token and without a word. No list of architectures
would stay complete: sharing is tried on the very model.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fsdpo_data.core.errors import InputError

log = logging.getLogger(__name__)

#: Tokens of the prompt that a model is tried on, and of each of its two solutions. More than the
#: convolutions in use are wide.
N_PROMPT, N_SOLUTION = 9, 7
#: Tokens of the longest solution that shares its prompt: their mask grows with the square of it,
#: and of a long one the prompt is a small part.
LONGEST = 4096
#: Differences that rounding may explain, relative to the largest value: of float32, and of halves.
_ROUNDING = {4: 1e-3, 2: 0.1}
NAME = "prompt_tree"  #: The name by which transformers knows it.
_REPLACED = ("sdpa", NAME)  #: The implementations that it stands in for.
#: What some architectures' attention does besides; it is not computed here.
_FOREIGN = ("softcap", "s_aux", "position_bias")


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
    with torch.inference_mode():
        expected = alone()
        try:
            found = shared()
        except Exception as error:  # architectures fail as they like where they cannot share
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        else:
            gap = float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-6))
            # Rewards come in float32, whatever they were computed in.
            if gap <= _ROUNDING[min(4, model.dtype.itemsize)]:
                return True
            reason = f"off by {gap:.1%}"
    said = "%s cannot share prompts (%s): each is computed anew for every solution"
    log.warning(said, type(model).__name__, reason)
    return False


def can_share_prompts(model: Any, longest: int) -> bool:
    """Say whether a prompt can be computed once for all its solutions, of ``longest`` tokens.

    Not where they are long, nor where a token does not see all before it, where transformers does
    not let attention be chosen, or where the model itself gives something else with shared prompts:
    it computes a few tokens, so all its weights have to be at hand.
    """
    window = attention_window(model.config)
    implementation = model.config._attn_implementation
    most = min(window or LONGEST, LONGEST)
    if implementation not in _REPLACED or longest > most:
        return False
    training = model.training
    model.eval()
    use_tree_attention(model)
    try:
        return gives_the_same(model, *_probes(model))
    finally:
        model.set_attn_implementation(implementation)
        model.train(training)


def _probes(model: Any) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """Return what computes the states of two solutions apart, and behind one prompt."""

    def hidden(ids: Tensor, **more: Any) -> Tensor:
        inputs = {name: each.to(model.device) for name, each in more.items()}
        outputs: Any = decoder_of(model)(input_ids=ids.to(model.device), use_cache=False, **inputs)
        return outputs.last_hidden_state

    ids_SL = torch.tensor(probe_ids(model))
    row_1L = torch.cat([ids_SL[0], ids_SL[1, N_PROMPT:]])[None]
    branch_ST = torch.arange(N_PROMPT, row_1L.shape[1]).view(2, N_SOLUTION)
    own_TT = torch.ones(N_SOLUTION, N_SOLUTION, dtype=torch.bool).tril()
    seen_TL = torch.cat([torch.ones(N_SOLUTION, N_PROMPT, dtype=torch.bool), own_TT], dim=1)
    least = torch.finfo(model.dtype).min
    mask_S1TL = torch.zeros(seen_TL.shape, dtype=model.dtype).masked_fill(~seen_TL, least)
    place_L = torch.arange(ids_SL.shape[1])
    tree = {
        "attention_mask": mask_S1TL.expand(2, 1, -1, -1),
        "position_ids": torch.cat([place_L, place_L[N_PROMPT:]])[None],
        "branch_ST": branch_ST,
        "row_S": torch.zeros(2, dtype=torch.long),
        "place_RL": torch.arange(row_1L.shape[1])[None],
    }
    return lambda: hidden(ids_SL)[:, N_PROMPT:], lambda: hidden(row_1L, **tree)[0][branch_ST]


def use_tree_attention(model: Any) -> None:
    """Make ``model`` compute attention here, if it can share prompts.

    Batches without a tree are computed as before.
    """
    if model.config._attn_implementation not in _REPLACED:
        return
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(NAME, tree_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def tree_attention(
    module: Any,
    query_RHLD: Tensor,
    key_RGLD: Tensor,
    value_RGLD: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    branch_ST: Tensor | None = None,
    row_S: Tensor | None = None,
    place_RL: Tensor | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Attention over prompt groups, as transformers calls it; H, the heads, is a multiple of G.

    ``attention_mask``, additive, [S, 1, T, P + T], says who sees whom among a solution's tokens
    and, before them, its prompt's. ``branch_ST`` is the place of each token of each solution in the
    flattened rows, ``row_S`` the row of each solution, ``place_RL`` where each token's output is
    among those of all prompts, R × P, and then of all solutions, S × T.

    Returns:
        The outputs, [R, L, H, D], and nothing.

    Raises:
        InputError: if the architecture does more in its attention than is done here.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if branch_ST is None:
        plain: tuple[Tensor, None] = sdpa_attention_forward(
            module, query_RHLD, key_RGLD, value_RGLD, attention_mask, scaling=scaling, **more
        )
        return plain
    if odd := [name for name in _FOREIGN if more.get(name) is not None]:
        raise InputError(
            f"{type(module).__name__} has {odd[0]}, which shared prompts do not: expected false.",
            field="share_prompt",
            value=True,
        )
    assert attention_mask is not None and row_S is not None and place_RL is not None
    n_prompt = attention_mask.shape[-1] - branch_ST.shape[1]
    grouped = query_RHLD.shape[1] != key_RGLD.shape[1]
    attend: Any = partial(scaled_dot_product_attention, scale=scaling, enable_gqa=grouped)
    trunks = [each[:, :, :n_prompt] for each in (query_RHLD, key_RGLD, value_RGLD)]
    trunk_RHPD = attend(*trunks, is_causal=True)
    key, value = (
        torch.cat([trunk[row_S], _branches(each, branch_ST)], dim=2)
        for trunk, each in zip(trunks[1:], (key_RGLD, value_RGLD), strict=True)
    )
    branch_SHTD = attend(_branches(query_RHLD, branch_ST), key, value, attn_mask=attention_mask)
    outputs = [each.transpose(1, 2).flatten(0, 1) for each in (trunk_RHPD, branch_SHTD)]
    return torch.cat(outputs)[place_RL], None


def _branches(value_RHLD: Tensor, branch_ST: Tensor) -> Tensor:
    """Return what belongs to the tokens of solutions, [S, H, T, D]."""
    return value_RHLD.transpose(1, 2).flatten(0, 1)[branch_ST].transpose(1, 2)
