"""Prefix sharing: a probe turns it off for architectures with a state along the row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import score_all
from random_model import save_random_model

torch = pytest.importorskip("torch")
import transformers  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from fsdpo_data.core.identity import ModelRef  # noqa: E402
from fsdpo_data.core.sampling import Prompt  # noqa: E402
from fsdpo_data.engines.logprobs import check_plain_head  # noqa: E402
from fsdpo_data.engines.options import ScorerOptions  # noqa: E402
from fsdpo_data.engines.prefix_sharing.attention import _attend  # noqa: E402
from fsdpo_data.engines.prefix_sharing.masks import (  # noqa: E402
    MAX_MASKED_ROW_TOKENS,
    aligned_copy,
)
from fsdpo_data.engines.prefix_sharing.model_attention import use_tree_attention  # noqa: E402
from fsdpo_data.engines.prefix_sharing.probe import (  # noqa: E402
    _make_probes,
    supports_prefix_sharing,
)
from fsdpo_data.engines.scorers import ScorerInput  # noqa: E402
from fsdpo_data.engines.scorers.likelihood import LikelihoodScorer  # noqa: E402
from fsdpo_data.engines.scorers.prm import PrmScorer, _group_by_prompt  # noqa: E402
from fsdpo_data.engines.step_tokens import EncodedSolution, StepTokenizer  # noqa: E402
from fsdpo_data.models.resolve import ResolvedWeights  # noqa: E402

SIZES: dict[str, Any] = dict(
    vocab_size=302, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_labels=1,
    num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256, eos_token_id=0,
    pad_token_id=1, bos_token_id=None, initializer_range=0.2,
)  # fmt: skip
LINEAR: dict[str, Any] = dict(
    head_dim=16, linear_num_value_heads=2, linear_num_key_heads=2, linear_key_head_dim=8,
    linear_value_head_dim=8, layer_types=["linear_attention", "full_attention"] * 2,
)  # fmt: skip
EXPERTS: dict[str, Any] = dict(
    num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
)  # fmt: skip
SSM: dict[str, Any] = dict(mamba_d_head=8, mamba_d_state=8, mamba_chunk_size=8)
HYBRIDS = {
    "Qwen3Next": LINEAR | EXPERTS,
    "Qwen3_5Text": LINEAR,
    "Lfm2": dict(layer_types=["conv", "full_attention"] * 2, block_multiple_of=8),
    "FalconH1": dict(mamba_d_ssm=32, mamba_n_heads=4, head_dim=16) | SSM,
    "Bamba": dict(mamba_n_heads=8, mamba_n_groups=1, attn_layer_indices=[1, 3]) | SSM,
}
LLAMA4: dict[str, Any] = dict(head_dim=16, intermediate_size_mlp=48, num_local_experts=2)
ITEMS = [
    ScorerInput("Problem: 20 + 22?\n", ["Step 1: 20\n", "The answer is: 42"]),
    ScorerInput("Problem: 20 + 22?\n", ["Step 1: 2 = 20 + 22.\n", "Step 1: 4\n", "2"]),
    ScorerInput("Problem: 1\n", ["The answer is: 42"]),
]


def make(family: str, auto: Any, **fields: Any) -> Any:
    """Return a random model of a family."""
    torch.manual_seed(0)
    return auto.from_config(getattr(transformers, f"{family}Config")(**SIZES | fields)).eval()


def save(model: Any, path: Path) -> ResolvedWeights:
    """Save a model with a tokenizer."""
    save_random_model(path)
    model.save_pretrained(path)
    return ResolvedWeights(ModelRef(type(model).__name__, "0"), str(path))


@pytest.mark.parametrize("family", HYBRIDS)
def test_models_with_a_state_along_the_row_cannot_share_prompts(
    family: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = make(family, transformers.AutoModelForCausalLM, **HYBRIDS[family])
    attention = model.config._attn_implementation
    assert not supports_prefix_sharing(model, max_row_tokens=100)
    assert "cannot share prompts (off by" in caplog.text
    assert model.config._attn_implementation == attention
    check_plain_head(model)  # training does not need prefix sharing


@pytest.mark.parametrize("family", ["Qwen2", "Llama", "Qwen3", "Gemma", "Gemma3Text"])
def test_models_with_attention_in_every_layer_share_prompts(family: str) -> None:
    model = make(family, transformers.AutoModelForCausalLM).train()
    assert supports_prefix_sharing(model, max_row_tokens=100)
    assert model.training


def test_attention_with_softcap_cannot_share_prompts(caplog: pytest.LogCaptureFixture) -> None:
    model = make("Gemma2", transformers.AutoModelForCausalLM, head_dim=16)
    assert model.config.attn_logit_softcapping
    model.set_attn_implementation("sdpa")
    assert not supports_prefix_sharing(model, max_row_tokens=100)
    assert "Gemma2Attention uses softcap" in caplog.text


@pytest.mark.parametrize("n_keys", [1, 16, 37, 48])
def test_parts_of_a_mask_are_aligned_for_the_kernels_of_gpus(n_keys: int) -> None:
    """A part of 16 columns that starts at column 5 made the memory-efficient kernel fail."""
    mask = torch.randn(1, 1, 50, 53, dtype=torch.bfloat16)
    part = mask[:, :, 20:, 53 - n_keys :]
    aligned = aligned_copy(part)
    assert torch.equal(aligned, part)
    assert aligned.data_ptr() % 16 == 0 and aligned.stride(-2) * aligned.itemsize % 16 == 0


@pytest.mark.parametrize("family", ["Qwen2", "Qwen3"])
def test_tree_attention_works_in_bfloat16(family: str) -> None:
    model = make(family, transformers.AutoModelForCausalLM)
    use_tree_attention(model, "sdpa")
    separate, shared = _make_probes(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert (separate() - shared()).abs().max() < 0.05 * separate().abs().max()


@pytest.mark.parametrize(
    "shape", [(1, 9, 3, 50, 50, 64), (1, 8, 2, 40, 90, 32), (2, 4, 4, 7, 9, 16)]
)
def test_bfloat16_errors_are_not_larger_than_those_of_torch(shape: tuple[int, ...]) -> None:
    rows, heads, groups, n_queries, n_keys, width = shape
    torch.manual_seed(0)
    sizes = ((heads, n_queries), (groups, n_keys), (groups, n_keys), (heads, n_queries))
    *states, upstream = (torch.randn(rows, n, t, width).bfloat16() for n, t in sizes)
    mask = torch.full((n_queries, n_keys), -torch.inf).triu(n_keys - n_queries + 1)[None, None]

    def output_and_gradients(dtype: torch.dtype, attend: Any) -> list[torch.Tensor]:
        inputs = [state.to(dtype).requires_grad_() for state in states]
        corner = None if n_queries == n_keys else mask.to(dtype)
        output = attend(*inputs, corner)
        return [output.detach(), *torch.autograd.grad(output, inputs, upstream.to(dtype))]

    def attend_with_torch(query: Any, key: Any, value: Any, corner: Any) -> Any:
        mask_arguments: dict[str, Any] = {"attn_mask": corner, "is_causal": corner is None}
        return scaled_dot_product_attention(query, key, value, enable_gqa=True, **mask_arguments)

    def attend_with_fsdpo(query: Any, key: Any, value: Any, corner: Any) -> Any:
        return _attend(query, key, value, mask=corner, scale=None, enable_gqa=True)

    exact = output_and_gradients(torch.float64, attend_with_torch)
    errors = [
        [
            float((actual - expected).norm() / expected.norm())
            for actual, expected in zip(results, exact, strict=True)
        ]
        for results in (
            output_and_gradients(torch.bfloat16, attend_with_fsdpo),
            output_and_gradients(torch.bfloat16, attend_with_torch),
        )
    ]
    assert all(ours < 1.1 * theirs for ours, theirs in zip(*errors, strict=True)), errors


def test_chunked_attention_limits_the_row_length() -> None:
    model = make("Llama4Text", transformers.AutoModelForCausalLM, **LLAMA4, attention_chunk_size=64)
    assert supports_prefix_sharing(model, max_row_tokens=64)
    assert not supports_prefix_sharing(model, max_row_tokens=65)


def test_long_solutions_do_not_share_a_cached_prompt() -> None:
    """Scoring with a cached prompt needs a mask of quadratic size in the longest solution."""
    sizes = (10, 10, MAX_MASKED_ROW_TOKENS - 2, MAX_MASKED_ROW_TOKENS - 1)
    encoded = {
        index: EncodedSolution(
            input_ids=np.array([0, 1, *range(size)]),
            prompt_length=2,
            score_positions=[size + 1],
            n_steps=1,
        )
        for index, size in enumerate(sizes)
    }
    assert _group_by_prompt(encoded) == ([[0, 1, 2]], [3])


def test_hybrid_models_are_scored_like_plain_forward_passes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    auto = transformers.AutoModelForTokenClassification
    model = make("Qwen3Next", auto, **HYBRIDS["Qwen3Next"])
    torch.nn.init.normal_(model.score.weight, std=0.3)
    weights = save(model, tmp_path)
    rewards_by_item = score_all(PrmScorer(weights, ScorerOptions(device="cpu")), ITEMS)
    assert "Qwen3NextForTokenClassification cannot share prompts" in caplog.text
    encoder = StepTokenizer(transformers.AutoTokenizer.from_pretrained(tmp_path))
    for item, rewards in zip(ITEMS, rewards_by_item, strict=True):
        encoded = encoder.encode(Prompt(item.prompt), item.steps, add_eos=False)
        with torch.no_grad():
            logits = model(torch.tensor(encoded.input_ids)[None]).logits[0]
        logits = logits[encoded.score_positions, 0]
        assert rewards == pytest.approx(logits.sigmoid().tolist(), abs=1e-5)


def test_likelihoods_of_llama_4(tmp_path: Path) -> None:
    model = make("Llama4Text", transformers.AutoModelForCausalLM, **LLAMA4, attention_chunk_size=64)
    weights = save(model, tmp_path)
    likelihoods = score_all(LikelihoodScorer(weights, ScorerOptions(device="cpu")), ITEMS[:1])
    encoder = StepTokenizer(transformers.AutoTokenizer.from_pretrained(tmp_path))
    encoded = encoder.encode(Prompt(ITEMS[0].prompt), ITEMS[0].steps, add_eos=False)
    with torch.no_grad():
        logp = model(torch.tensor(encoded.input_ids)[None]).logits[0].double().log_softmax(-1)
    steps = [0.0, 0.0]
    for position in range(encoded.prompt_length, len(encoded.input_ids)):
        steps[encoded.step_ids[position]] += float(logp[position - 1, encoded.input_ids[position]])
    assert [torch.tensor(likelihood).log() for likelihood in likelihoods[0] or []] == pytest.approx(
        steps, rel=1e-4
    )
