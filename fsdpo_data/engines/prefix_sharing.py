"""Prompt groups: a prompt computed once, its solutions behind it, none sees another.

A row of L tokens holds prompts, each with its solutions behind it: the segments of a tree. A mask
over L × L would say who sees whom, but most of the scores it lets a kernel compute are thrown away:
T solutions cost T times as many as they need. On GPUs FlexAttention leaves out the blocks of such
a mask in which nobody sees anybody. Elsewhere, uncompiled, it would hold all scores, and attention
is computed segment by segment: a prompt on its own, a solution with the prompt's keys before its
own. All else in a model acts on single tokens and never notices.

Linear attention, convolutions and state space layers carry a state along the row, so what stands
beside a solution may leak into it, by nats per token and without a word. No list of architectures
would stay complete: sharing is tried on the very model.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from types import MethodType
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from fsdpo_data.core.errors import InputError

log = logging.getLogger(__name__)

#: Tokens of the prompt that a model is tried on, and of each of its two solutions. More than the
#: convolutions in use are wide.
PROBE_PROMPT_TOKENS, PROBE_SOLUTION_TOKENS = 9, 7
#: Tokens of the longest row for which a mask of all its tokens is written out: that grows with the
#: square of it.
MAX_MASKED_ROW_TOKENS = 4096
#: Differences that rounding may explain, relative to the largest value: of float32, and of halves.
_ROUNDING = {4: 1e-3, 2: 0.1}
#: How attention over a tree is computed: by FlexAttention or segment by segment; ``auto``: by what
#: is there.
TreeAttention = Literal["auto", "flex", "sdpa"]
_NAMES = {"flex": "prompt_tree_flex", "sdpa": "prompt_tree"}  #: As transformers knows them.
_REPLACED = ("sdpa", *_NAMES.values())  #: The implementations that they stand in for.
_BLOCK = 128  #: Tokens of a block of FlexAttention: rows are filled up to a multiple.
#: Tokens of a solution that attend at a time: of more, more is computed that the mask throws away,
#: fewer have more to start.
_QUERY_CHUNK_TOKENS = 512
#: What some architectures' attention does besides; it is not computed here.
_UNSUPPORTED_ATTENTION_ARGUMENTS = ("softcap", "s_aux", "position_bias")


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
    ids = [
        31 * place % size for place in range(1, 1 + PROBE_PROMPT_TOKENS + 2 * PROBE_SOLUTION_TOKENS)
    ]
    return [
        ids[: PROBE_PROMPT_TOKENS + PROBE_SOLUTION_TOKENS],
        ids[:PROBE_PROMPT_TOKENS] + ids[-PROBE_SOLUTION_TOKENS:],
    ]


def matches_unshared(
    model: Any, compute_unshared: Callable[[], Tensor], compute_shared: Callable[[], Tensor]
) -> bool:
    """Say whether a model computes the same with shared prompts; if not, log it.

    Both give its values at the tokens of the probes: each computed by itself, the prompt once.
    """
    with torch.inference_mode():
        expected = compute_unshared()
        try:
            found = compute_shared()
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


def supports_prefix_sharing(model: Any, max_row_tokens: int) -> bool:
    """Say whether a prompt can be computed once for all its solutions, of ``longest`` tokens.

    Not where a token does not see all before it, where transformers does not let attention be
    chosen, or where the model itself gives something else with shared prompts: it computes a few
    tokens, so all its weights have to be at hand.
    """
    window = attention_window(model.config)
    implementation = model.config._attn_implementation
    if implementation not in _REPLACED or (window and max_row_tokens > window):
        return False
    training = model.training
    model.eval()
    use_tree_attention(model, "sdpa")  # the weights are not on the GPU yet
    try:
        return matches_unshared(model, *_probes(model))
    finally:
        model.set_attn_implementation(implementation)
        model.train(training)


def _probes(model: Any) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """Return what computes the states of two solutions apart, and behind one prompt."""
    ids_ST = torch.tensor(probe_ids(model), device=model.device)
    own_T = torch.arange(ids_ST.shape[1], device=model.device) >= PROBE_PROMPT_TOKENS
    tree, place_ST = pack_prefix_tree(ids_ST, own_T.expand_as(ids_ST))

    def hidden(**inputs: Any) -> Tensor:
        outputs: Any = decoder_of(model)(**tree_inputs(model, **inputs), use_cache=False)
        return outputs.last_hidden_state

    return lambda: hidden(input_ids=ids_ST), lambda: hidden(**tree)[0, place_ST]


def _is_flex(attention: TreeAttention) -> bool:
    there = torch.cuda.is_available() and find_spec("triton") is not None
    return attention == "flex" or (attention == "auto" and there)


def use_tree_attention(model: Any, attention: TreeAttention = "auto") -> None:
    """Make ``model`` compute attention here, if it can share prompts.

    Batches without a tree are computed as before.
    """
    if model.config._attn_implementation not in _REPLACED:
        return
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    name = _NAMES["flex" if _is_flex(attention) else "sdpa"]
    AttentionInterface.register(name, tree_attention)
    AttentionMaskInterface.register(name, sdpa_mask)
    model.set_attn_implementation(name)


def accept_prefix_trees(model: Any) -> None:
    """Make ``model(**inputs)`` take what :func:`pack_prefix_tree` returns."""

    def forward(self: Any, **inputs: Any) -> Any:
        return type(self).forward(self, **tree_inputs(self, **inputs))

    use_tree_attention(model)
    model.forward = MethodType(forward, model)


def pack_prefix_tree(ids_ST: Tensor, is_solution_ST: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Put solutions, each a row behind its prompt, into one row: that of neighbours comes once.

    ::

        tokens    p p p | a a a a | b b b | q q ...   a token sees its prompt and its own solution
        position  0 1 2 | 3 4 5 6 | 3 4 5 | 0 1 ...   each solution follows the prompt

    ``own_ST`` says which tokens are a solution's own.

    Returns:
        What :func:`tree_inputs` reads, and where in the row each token is, [S, T].
    """
    prompt_ST = is_solution_ST.cumsum(1) == 0
    same_ST = ~prompt_ST[1:] | (ids_ST[1:] == ids_ST[:-1])
    follows_S = (same_ST & (prompt_ST[1:] == prompt_ST[:-1])).all(1)
    new_S = ~pad(follows_S, (1, 0))
    alone_S = new_S & ~pad(follows_S, (0, 1))  # it needs no prompt besides itself
    kept_ST = is_solution_ST | (new_S[:, None] & prompt_ST)
    row_ST = (kept_ST.flatten().cumsum(0) - 1).view_as(ids_ST)
    leader_S = new_S.nonzero()[new_S.cumsum(0) - 1, 0]
    there_S2 = torch.stack([new_S, ~alone_S], 1)
    size_S2 = torch.stack(
        [prompt_ST.sum(1) + alone_S * is_solution_ST.sum(1), is_solution_ST.sum(1)], 1
    )
    number_S2 = (there_S2.flatten().cumsum(0) - 1).view(-1, 2)[leader_S, :1].expand(-1, 2)
    inputs = {
        "input_ids": ids_ST[kept_ST][None],
        "position_ids": kept_ST.nonzero()[None, :, 1],
        "tree_2N": torch.stack([size_S2[there_S2], number_S2[there_S2]]),
    }
    return inputs, row_ST[leader_S].where(prompt_ST, row_ST)


def tree_inputs(model: Any, *, tree_2N: Tensor | None = None, **inputs: Tensor) -> dict[str, Any]:
    """Return what a decoder reads, with the mask of a tree if there is one.

    ``tree_2N`` has the tokens of each segment of the row, and the number of its prompt: a prompt
    has its own. A segment sees the prompt and, of itself, what is not behind.
    """
    if tree_2N is None:
        return inputs
    kind, device = model.device.type, inputs["input_ids"].device
    half = torch.is_autocast_enabled(kind)
    dtype = torch.get_autocast_dtype(kind) if half else model.dtype
    tree = list(zip(*tree_2N.tolist(), strict=True))
    if model.config._attn_implementation == _NAMES["flex"]:
        short = -sum(size for size, _ in tree) % _BLOCK
        # peft names inputs that are not there.
        given = {name: each for name, each in inputs.items() if isinstance(each, Tensor)}
        inputs |= {name: pad(each, (0, short)) for name, each in given.items()}
        tree.append((short, len(tree)))  # a prompt without solutions
        mask: Any = _block_mask(tree, device)
    else:
        mask = _lower_right_mask(tree, dtype, device)
    return {**inputs, "attention_mask": mask, "tree": tree}


def _block_mask(tree: Sequence[tuple[int, int]], device: Any) -> Any:
    """Return the mask of a tree as FlexAttention takes it."""
    from torch.nn.attention.flex_attention import create_block_mask

    size_N, prompt_N = torch.tensor(tree, device=device).T
    segment_L = torch.arange(len(tree), device=device).repeat_interleave(size_N)
    prompt_L = prompt_N[segment_L]

    def is_visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        own = segment_L[key] == segment_L[query]
        return (own | (segment_L[key] == prompt_L[query])) & (key <= query)

    make = _compile(create_block_mask, segment_L.device.type)
    return make(is_visible, None, None, len(segment_L), len(segment_L), device=device)


def _lower_right_mask(tree: Sequence[tuple[int, int]], dtype: torch.dtype, device: Any) -> Tensor:
    """Return the additive mask, [1, 1, T, S], of the last tokens of the longest solution.

    Its lower right corner [t, s] is the mask of any t tokens behind s - t others.
    """
    own = [(size, tree[prompt][0]) for at, (size, prompt) in enumerate(tree) if at != prompt]
    rows = min(_QUERY_CHUNK_TOKENS, max((size for size, _ in own), default=0))
    is_visible = max((size + before for size, before in own), default=0)
    mask_TS = torch.full((rows, is_visible), -torch.inf, dtype=dtype, device=device)
    return mask_TS.triu(is_visible - rows + 1)[None, None]


@cache
def _compile(call: Any, device: str) -> Any:
    """Compile a call of FlexAttention where that pays, once for all lengths."""
    return torch.compile(call, dynamic=True) if device == "cuda" else call


def tree_attention(
    module: Any,
    query_RHLD: Tensor,
    key_RGLD: Tensor,
    value_RGLD: Tensor,
    attention_mask: Any,
    *,
    scaling: float | None = None,
    tree: Sequence[tuple[int, int]] | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Attention over prompt groups, as transformers calls it; H, the heads, is a multiple of G.

    ``tree`` and its ``attention_mask`` are those of :func:`tree_inputs`.

    Returns:
        The outputs, [R, L, H, D], and nothing.

    Raises:
        InputError: if the architecture does more in its attention than is done here.
    """
    from torch.nn.attention.flex_attention import flex_attention
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if tree is None:
        plain: tuple[Tensor, None] = sdpa_attention_forward(
            module, query_RHLD, key_RGLD, value_RGLD, attention_mask, scaling=scaling, **more
        )
        return plain
    if odd := [name for name in _UNSUPPORTED_ATTENTION_ARGUMENTS if more.get(name) is not None]:
        raise InputError(
            f"{type(module).__name__} has {odd[0]}, which shared prompts do not: expected false.",
            field="share_prompt",
            value=True,
        )
    # Under autocast, norms of queries and keys leave them in float32.
    states = [each.to(value_RGLD.dtype) for each in (query_RHLD, key_RGLD, value_RGLD)]
    options = {"scale": scaling, "enable_gqa": query_RHLD.shape[1] != key_RGLD.shape[1]}
    if isinstance(attention_mask, Tensor):
        outputs_RHLD = _by_segment(states, attention_mask, tree, **options)
    else:
        flex = _compile(flex_attention, query_RHLD.device.type)
        outputs_RHLD = flex(*states, block_mask=attention_mask, **options)
    return outputs_RHLD.transpose(1, 2), None


def _by_segment(
    states: Sequence[Tensor], mask: Tensor, tree: Sequence[tuple[int, int]], **options: Any
) -> Tensor:
    """Attend in one segment after another; ``states`` are queries, keys and values."""
    sizes = [size for size, _ in tree]
    parts = list(zip(*(each.split(sizes, dim=2) for each in states), strict=True))
    outputs = []
    for place, (_, prompt) in enumerate(tree):
        if place == prompt:
            outputs.append(_attend(*parts[place], mask=None, options=options))
            continue
        query, *own = parts[place]
        key, value = (torch.cat(both, dim=2) for both in zip(parts[prompt][1:], own, strict=True))
        is_visible = sizes[prompt]
        for some in query.split(_QUERY_CHUNK_TOKENS, dim=2):
            rows, is_visible = some.shape[2], is_visible + some.shape[2]
            corner = mask[:, :, mask.shape[2] - rows :, mask.shape[3] - is_visible :]
            before = (each[:, :, :is_visible] for each in (key, value))
            outputs.append(_attend(some, *before, mask=corner, options=options))
    return torch.cat(outputs, dim=2)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None, options: dict[str, Any]
) -> Any:
    """Attend to all that the ``mask`` leaves; None: to what is not behind."""
    halves = query.is_cpu and query.dtype == torch.bfloat16 and torch.is_grad_enabled()
    if halves and query.shape[3] == value.shape[3]:
        return _Bfloat16CpuAttention.apply(
            query, key, value, mask, options["scale"] or query.shape[3] ** -0.5
        )
    how = {"attn_mask": mask, "is_causal": mask is None, **options}
    return scaled_dot_product_attention(query, key, value, **how)


class _Bfloat16CpuAttention(torch.autograd.Function):  # type: ignore[misc]
    """Attention in bfloat16 on a CPU, [R, H, T, D] to [R, G, S, D], whose last query sees all.

    Its gradient takes two thirds of the time of torch's and errs half as much: scores stay in
    float32, and products whose results are halves anyway are of halves.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scale: Any) -> Any:
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        output, total = flash(query, key, value, 0.0, mask is None, attn_mask=mask, scale=scale)
        ctx.save_for_backward(query, key, value, output, total)
        ctx.scale = scale
        return output

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, total = ctx.saved_tensors
        (*_, rows, width), is_visible, groups = query.shape, key.shape[2], key.shape[:2].numel()
        # N = H / G · T: the heads that read one key stand one behind the other.
        own = [each.reshape(groups, -1, width) for each in (query, output, upstream)]
        query_GND, output_GND, upstream_GND = own
        key_GSD, value_GSD = (each.reshape(groups, is_visible, width) for each in (key, value))
        weight_GNS = query_GND.float() @ key_GSD.float().mT
        weight_GNS.mul_(ctx.scale).sub_(total.reshape(groups, -1, 1)).exp_()
        weight_GNS.view(-1, rows, is_visible).tril_(is_visible - rows)
        grad_GNS = upstream_GND.float() @ value_GSD.float().mT
        grad_GNS.sub_((upstream_GND.float() * output_GND).sum(-1, keepdim=True))
        grad_GNS.mul_(weight_GNS).mul_(ctx.scale)
        grad_GNS, weight_GNS = (each.to(query.dtype) for each in (grad_GNS, weight_GNS))
        found = grad_GNS @ key_GSD, grad_GNS.mT @ query_GND, weight_GNS.mT @ upstream_GND
        shaped = (grad.view_as(of) for grad, of in zip(found, (query, key, value), strict=True))
        return (*shaped, None, None)
