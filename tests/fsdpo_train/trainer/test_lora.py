"""LoRA adapters: the matrices that get one, and a warning about the others."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("peft")
import transformers

from fsdpo_train.prm.train import set_reward_head
from fsdpo_train.trainer.models import add_lora_adapters

SIZES: dict[str, Any] = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
)


def moe_config() -> Any:
    experts: dict[str, int] = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
    return transformers.Qwen2MoeConfig(**SIZES, **experts, shared_expert_intermediate_size=16)


def test_experts_without_an_adapter_are_named(caplog: pytest.LogCaptureFixture) -> None:
    model = transformers.AutoModelForCausalLM.from_config(moe_config())
    adapted = add_lora_adapters(model, 4, "CAUSAL_LM")
    experts = [p for name, p in adapted.named_parameters() if ".experts." in name]
    assert experts and not any(parameter.requires_grad for parameter in experts)
    [record] = caplog.records
    n_weights = 4 * 32 * (2 * 16 + 16) + 4 * 32  # the experts and the router
    assert f"LoRA has no adapters for {n_weights:,} weights, such as " in record.message
    assert "model.layers.0.mlp.experts.gate_up_proj, so they are not trained" in record.message


@pytest.mark.parametrize("task", ["CAUSAL_LM", "TOKEN_CLS"])
def test_a_dense_model_has_no_other_matrices(task: str, caplog: pytest.LogCaptureFixture) -> None:
    config = transformers.Qwen2Config(**SIZES)
    if task == "TOKEN_CLS":
        set_reward_head(config)
        model = transformers.AutoModelForTokenClassification.from_config(config)
    else:
        model = transformers.AutoModelForCausalLM.from_config(config)
    add_lora_adapters(model, 4, task)
    assert not caplog.records
