"""Decoding with grouped query heads, without a copy of the keys and values for each head."""

from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

#: Name of the attention under which it is registered with transformers.
REGISTERED_NAME = "grouped_decoding"


def use_grouped_attention(model: Any) -> None:
    """Set the attention of a model to :func:`grouped_attention` where it is sdpa."""
    if model.config._attn_implementation != "sdpa":
        return
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(REGISTERED_NAME, grouped_attention)
    AttentionMaskInterface.register(REGISTERED_NAME, sdpa_mask)
    model.set_attn_implementation(REGISTERED_NAME)


def grouped_attention(
    module: Any,
    query_BHLD: Tensor,
    key_BGMD: Tensor,
    value_BGMD: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention, with the signature that transformers expects.

    With a mask, the attention of transformers copies the keys and values once per query head. That
    is most of the memory traffic of a large batch, whose queries are one token long. Here the H/G
    heads that share keys take the place of query positions: at a length of one, each of them sees
    the same keys.

    Args:
        module: The attention layer.
        query_BHLD: Queries of H heads.
        key_BGMD: Keys of G heads.
        value_BGMD: Values of G heads.
        attention_mask: Mask that fits the scores [B, 1, L, M]; None: no padding.
        scaling: Factor of the scores.
        options: Further arguments of transformers.

    Returns:
        The outputs, [B, L, H, D], and None in place of the attention weights.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    n_rows, n_heads, length, _ = query_BHLD.shape
    n_groups = key_BGMD.shape[1]
    is_decoding = length == 1 and n_heads != n_groups
    differs_by_head = attention_mask is not None and attention_mask.shape[1] != 1
    if not is_decoding or differs_by_head or options.get("position_bias") is not None:
        result: tuple[Tensor, None] = sdpa_attention_forward(
            module, query_BHLD, key_BGMD, value_BGMD, attention_mask, scaling=scaling, **options
        )
        return result
    out = scaled_dot_product_attention(
        query_BHLD.reshape(n_rows, n_groups, n_heads // n_groups, -1),
        key_BGMD,
        value_BGMD,
        attn_mask=attention_mask,
        scale=scaling,
    )
    return out.reshape(n_rows, 1, n_heads, -1), None
