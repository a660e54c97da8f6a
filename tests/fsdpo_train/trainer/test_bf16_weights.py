"""Tests of bfloat16 training on a CPU: bfloat16 passes, float32 weights."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import transformers  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from fsdpo_data.engines.cpu_bf16 import weights as bf16_weights  # noqa: E402
from fsdpo_data.engines.cpu_bf16.weights import Bfloat16Weights  # noqa: E402
from fsdpo_data.problems.embedded import CHECKPOINT  # noqa: E402
from fsdpo_train.config import SftConfig  # noqa: E402
from fsdpo_train.sft.train import train_sft  # noqa: E402


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    sizes = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, vocab_size=500)
    heads = dict(num_attention_heads=4, num_key_value_heads=2)
    config = transformers.LlamaConfig(**sizes, **heads, tie_word_embeddings=True)
    return transformers.LlamaForCausalLM(config)


def gradients(model: Any, *rows: Any) -> dict[str, Any]:
    """Return the gradients summed over the rows."""
    for ids in rows:
        model(input_ids=ids, labels=ids).loss.backward()
    gradients_by_name = {
        name: parameter.grad.clone() for name, parameter in model.named_parameters()
    }
    model.zero_grad()
    return gradients_by_name


@pytest.mark.parametrize("cached", [100, 2**18])  # in chunks, and at once
def test_gradients_reach_the_weights_and_add_up_in_float32(
    cached: int, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bf16_weights, "_CHUNK_ELEMENTS", cached)
    first, second = torch.randint(0, 500, (2, 1, 40))
    exact = gradients(model, first, second)
    weights = dict(model.named_parameters())
    old_values = {name: weight.clone() for name, weight in weights.items()}
    with Bfloat16Weights(model).use_in_model():
        assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
        assert model.lm_head.weight is model.model.embed_tokens.weight
        model(input_ids=first, labels=first).loss.backward()
        assert all(parameter.grad is None for parameter in model.parameters())
        once = {name: weight.grad.clone() for name, weight in weights.items()}
        model(input_ids=second, labels=second).loss.backward()
    assert all(parameter is weights[name] for name, parameter in model.named_parameters())
    assert all(torch.equal(weight, old_values[name]) for name, weight in weights.items())
    for name, weight in weights.items():
        assert weight.grad.dtype == torch.float32
        assert (weight.grad - exact[name]).norm() < 0.03 * exact[name].norm(), name
        # A sum in float32 is usually not a bfloat16 number; one gradient always is.
        assert not torch.equal(weight.grad, weight.grad.bfloat16().float()), name
        assert torch.equal(once[name], once[name].bfloat16().float()), name


def test_weights_are_rounded_again_in_every_pass(model: Any) -> None:
    rounded = Bfloat16Weights(model)
    weight = model.model.norm.weight
    with rounded.use_in_model():
        pass
    with torch.no_grad():
        weight.add_(1)
    with rounded.use_in_model():
        assert torch.equal(model.model.norm.weight, weight.bfloat16())


def test_an_error_restores_the_float32_weights(model: Any) -> None:
    weights = list(model.parameters())
    with pytest.raises(ZeroDivisionError), Bfloat16Weights(model).use_in_model():
        _ = 1 / 0
    assert all(a is b for a, b in zip(weights, model.parameters(), strict=True))


def test_updates_too_small_for_bfloat16_are_kept(tmp_path: Path) -> None:
    """Near 1, bfloat16 numbers are 0.4 % apart, and an update of 1e-5 is far smaller."""
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "1 + 1 =", "completion": " 2"}\n' * 4)
    options: dict[str, Any] = dict(data=data, model=str(CHECKPOINT), max_steps=2, lr=1e-5, warmup=0)
    trained_weights = {}
    for dtype in ("bfloat16", "float32"):
        train_sft(SftConfig(out=tmp_path / dtype, dtype=dtype, **options))
        trained_weights[dtype] = load_file(tmp_path / dtype / "model.safetensors")
    start = load_file(CHECKPOINT / "model.safetensors")
    for name, weight in trained_weights["bfloat16"].items():
        assert weight.dtype == torch.float32
        moved, exact = (
            trained_weights[dtype][name] - start[name].float() for dtype in trained_weights
        )
        assert 0 < moved.abs().max() < 3e-5, name
        assert (moved * exact).sum() > 0.5 * moved.norm() * exact.norm(), name
