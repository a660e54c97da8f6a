"""QLoRA: adapters over 4-bit weights train on a CPU and merge into the original weights."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from preference_data import preference_rows
from prm_data import stepwise_rows, write_rows
from random_model import save_random_model
from training import kill_at_step

torch = pytest.importorskip("torch")
import safetensors.torch  # noqa: E402

import fsdpo_train  # noqa: E402
from fsdpo_data.core.errors import InputError, UnavailableError  # noqa: E402
from fsdpo_train.preference import train as dpo  # noqa: E402
from fsdpo_train.prm import train as prm  # noqa: E402

RANK = 4


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("bitsandbytes", reason="weights in four bits need bitsandbytes")
    pytest.importorskip("peft")
    return save_random_model(tmp_path_factory.mktemp("policy"))


def options(policy: Path, out: Path, **changes: Any) -> dict[str, Any]:
    defaults = dict(lr=1e-2, log_every=1, save_every=2, lora=RANK, load_in_4bit=True)
    return dict(model=str(policy), out=out) | defaults | changes


def train_dpo(policy: Path, out: Path, **changes: Any) -> fsdpo_train.DpoReport:
    data = write_rows(out.with_suffix(".jsonl"), preference_rows())
    stage_options = dict(data=data, batch_size=2, epochs=4) | changes
    return fsdpo_train.train_dpo(fsdpo_train.DpoConfig(**options(policy, out, **stage_options)))


def logged_steps(out: Path) -> list[dict[str, float]]:
    states = sorted(out.glob("checkpoints/*/trainer_state.json"))
    return [entry for entry in json.loads(states[-1].read_text())["log_history"] if "loss" in entry]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def base_and_adapters(policy: Path, out: Path) -> dict[str, torch.Tensor]:
    """Merge the adapters of the last checkpoint by the equation W + 2·B·A."""
    [last] = out.glob("checkpoints/*/adapter_model.safetensors")
    adapters = safetensors.torch.load_file(last)
    merged = weights(policy)
    for name, lower in adapters.items():
        if "lora_A" in name:
            upper = adapters[name.replace("lora_A", "lora_B")]
            weight_name = name.removeprefix("base_model.model.").replace("lora_A.weight", "weight")
            merged[weight_name] = merged[weight_name] + 2 * upper @ lower
    return merged


def record_parameters(stage: Any, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Record the parameters of the model that a stage trains."""
    seen: dict[str, Any] = {}
    run_trainer = stage.run_trainer

    def run_and_record(trainer: Any, *arguments: Any) -> None:
        seen.update(trainer.model.named_parameters())
        run_trainer(trainer, *arguments)

    patch.setattr(stage, "run_trainer", run_and_record)
    return seen


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dpo_starts_at_its_4_bit_reference_and_merges_into_the_original_weights(
    dtype: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bitsandbytes.nn import Params4bit

    seen = record_parameters(dpo, monkeypatch)
    out = tmp_path / "out"
    report = train_dpo(policy, out, dtype=dtype)
    first, *_, last = logged_steps(out)
    # The reference is the same model in 4 bits, so all log-ratios are 0 before the first step.
    assert first["kl"] == 0 and first["rewards/margins"] == 0
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert last["loss"] < 0.2 and report.metrics["rewards/accuracies"] == 1

    frozen = {name: parameter for name, parameter in seen.items() if not parameter.requires_grad}
    linear = {
        name: parameter for name, parameter in frozen.items() if "proj.base_layer.weight" in name
    }
    assert len(linear) == 14 and all(
        isinstance(parameter, Params4bit) for parameter in linear.values()
    )
    kinds = {
        (parameter.quant_state.quant_type, parameter.quant_state.nested)
        for parameter in linear.values()
    }
    assert kinds == {("nf4", True)}
    unquantized = [parameter for name, parameter in frozen.items() if name not in linear]
    assert {parameter.dtype for parameter in unquantized} == {getattr(torch, dtype)}
    assert {parameter.dtype for name, parameter in seen.items() if "lora" in name} == {
        torch.float32
    }

    merged = weights(out)
    expected = base_and_adapters(policy, out)
    assert merged.keys() == expected.keys()
    assert {tensor.dtype for tensor in merged.values()} == {torch.float32}
    assert all(torch.allclose(merged[name], tensor, atol=1e-6) for name, tensor in expected.items())
    policy_weights = weights(policy)
    assert any(
        float((merged[name] - tensor).abs().max()) > 1e-3 for name, tensor in policy_weights.items()
    )
    assert "quantization_config" not in json.loads((out / "config.json").read_text())


def test_a_run_killed_and_resumed_ends_in_the_same_weights(policy: Path, tmp_path: Path) -> None:
    uninterrupted = tmp_path / "whole"
    interrupted = tmp_path / "part"
    expected = train_dpo(policy, uninterrupted)
    kill_at_step(5, dpo, lambda: train_dpo(policy, interrupted))
    resumed = train_dpo(policy, interrupted, resume=True)
    assert resumed.loss == expected.loss and resumed.metrics == expected.metrics
    ours = weights(interrupted)
    theirs = weights(uninterrupted)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("loss", ["bce", "implicit"])
def test_a_reward_model_continues_to_learn_after_an_evaluation(
    loss: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = record_parameters(prm, monkeypatch)
    out = tmp_path / "out"
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows())
    stage_options = dict(
        data=data, loss=loss, grad_accum=1, max_steps=20, eval_every=5, held_out=0.3
    )
    if loss == "implicit":
        stage_options["beta"] = 1.0
    report = fsdpo_train.train_prm(fsdpo_train.PrmConfig(**options(policy, out, **stage_options)))
    losses = [entry["loss"] for entry in logged_steps(out)]
    # In eval mode bitsandbytes repacks weights for inference on some processors, and then
    # nothing is learnt.
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    assert report.held_out["ranking_auc"] > 0.8
    merged = weights(out)
    expected = base_and_adapters(policy, out)
    shared = expected.keys() & merged.keys()
    assert all(torch.allclose(merged[name], expected[name], atol=1e-6) for name in shared)
    heads = {name: parameter for name, parameter in seen.items() if "score.modules_to_save" in name}
    assert len(heads) == (2 if loss == "bce" else 0)
    for name, parameter in heads.items():
        assert torch.equal(merged[f"score.{name.rpartition('.')[2]}"], parameter.detach())


def test_sft_learns_completions(policy: Path, tmp_path: Path) -> None:
    rows = [{"prompt": f"{i}\n", "completion": f"It is {i}."} for i in range(8)]
    out = tmp_path / "out"
    data = write_rows(tmp_path / "rows.jsonl", rows)
    stage_options = dict(data=data, epochs=8, batch_size=4)
    fsdpo_train.train_sft(fsdpo_train.SftConfig(**options(policy, out, **stage_options)))
    first, *_, last = logged_steps(out)
    assert last["loss"] < 0.7 * first["loss"]


def test_incompatible_options_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths: dict[str, Any] = dict(data=tmp_path / "rows.jsonl", out=tmp_path / "out")
    rank_message = r"load_in_4bit = True: 4-bit weights .* Set `lora` to the rank"
    with pytest.raises(InputError, match=rank_message):
        fsdpo_train.DpoConfig(**paths, load_in_4bit=True)
    with pytest.raises(InputError, match=rank_message):
        fsdpo_train.SftConfig(**paths, load_in_4bit=True, lora=4, from_config=tmp_path)
    with pytest.raises(InputError, match=r"lora = 4: adapters cannot be merged .* zero3"):
        fsdpo_train.DpoConfig(**paths, load_in_4bit=True, lora=4, deepspeed="zero3")
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(UnavailableError, match=r"load_in_4bit = True: .* Install it: .*\[qlora\]"):
        train_dpo(save_random_model(tmp_path / "policy"), tmp_path / "none")
