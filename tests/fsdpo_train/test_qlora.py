"""Adapters over weights in four bits: trained on a CPU, merged into the weights as they were."""

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
from training import killed_at

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


def options(policy: Path, out: Path, **more: Any) -> dict[str, Any]:
    same = dict(lr=1e-2, log_every=1, save_every=2, lora=RANK, load_in_4bit=True)
    return dict(model=str(policy), out=out) | same | more


def train_dpo(policy: Path, out: Path, **more: Any) -> fsdpo_train.DpoReport:
    data = write_rows(out.with_suffix(".jsonl"), preference_rows())
    asked = dict(data=data, batch_size=2, epochs=4) | more
    return fsdpo_train.train_dpo(fsdpo_train.DpoConfig(**options(policy, out, **asked)))


def logged(out: Path) -> list[dict[str, float]]:
    states = sorted(out.glob("checkpoints/*/trainer_state.json"))
    return [each for each in json.loads(states[-1].read_text())["log_history"] if "loss" in each]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def base_and_adapters(policy: Path, out: Path) -> dict[str, torch.Tensor]:
    """Merge the adapters of the last checkpoint by the equation: W + 2·B·A."""
    [last] = out.glob("checkpoints/*/adapter_model.safetensors")
    adapters, found = safetensors.torch.load_file(last), weights(policy)
    for name, lower in adapters.items():
        if "lora_A" in name:
            upper = adapters[name.replace("lora_A", "lora_B")]
            own = name.removeprefix("base_model.model.").replace("lora_A.weight", "weight")
            found[own] = found[own] + 2 * upper @ lower
    return found


def seen_by(stage: Any, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Note the parameters of the model that is trained."""
    seen: dict[str, Any] = {}
    real = stage.run_trainer

    def watched(trainer: Any, *given: Any) -> None:
        seen.update(trainer.model.named_parameters())
        real(trainer, *given)

    patch.setattr(stage, "run_trainer", watched)
    return seen


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_policy_starts_from_its_reference_and_is_merged_into_what_it_was_made_of(
    dtype: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bitsandbytes.nn import Params4bit

    seen, out = seen_by(dpo, monkeypatch), tmp_path / "out"
    report = train_dpo(policy, out, dtype=dtype)
    first, *_, last = logged(out)
    # The reference is the same model in four bits: until a step is taken, no log-ratio is but 0.
    assert first["kl"] == 0 and first["rewards/margins"] == 0
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert last["loss"] < 0.2 and report.metrics["rewards/accuracies"] == 1

    frozen = {name: each for name, each in seen.items() if not each.requires_grad}
    linear = {name: each for name, each in frozen.items() if "proj.base_layer.weight" in name}
    assert len(linear) == 14 and all(isinstance(each, Params4bit) for each in linear.values())
    kinds = {(each.quant_state.quant_type, each.quant_state.nested) for each in linear.values()}
    assert kinds == {("nf4", True)}
    others = [each for name, each in frozen.items() if name not in linear]
    assert {each.dtype for each in others} == {getattr(torch, dtype)}
    assert {each.dtype for name, each in seen.items() if "lora" in name} == {torch.float32}

    merged, expected = weights(out), base_and_adapters(policy, out)
    assert merged.keys() == expected.keys()
    assert {each.dtype for each in merged.values()} == {torch.float32}
    assert all(torch.allclose(merged[name], each, atol=1e-6) for name, each in expected.items())
    before = weights(policy)
    assert any(float((merged[name] - each).abs().max()) > 1e-3 for name, each in before.items())
    assert "quantization_config" not in json.loads((out / "config.json").read_text())


def test_a_run_killed_and_resumed_ends_in_the_same_weights(policy: Path, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    expected = train_dpo(policy, whole)
    killed_at(5, dpo, lambda: train_dpo(policy, part))
    resumed = train_dpo(policy, part, resume=True)
    assert resumed.loss == expected.loss and resumed.metrics == expected.metrics
    ours, theirs = weights(part), weights(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("loss", ["bce", "implicit"])
def test_a_reward_model_goes_on_learning_after_it_was_measured(
    loss: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, out = seen_by(prm, monkeypatch), tmp_path / "out"
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows())
    more = dict(data=data, loss=loss, grad_accum=1, max_steps=20, eval_every=5, beta=1.0)
    report = fsdpo_train.train_prm(fsdpo_train.PrmConfig(**options(policy, out, **more)))
    losses = [each["loss"] for each in logged(out)]
    # In eval mode bitsandbytes repacks weights for inference on some processors: none learns then.
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    assert report.held_out["ranking_auc"] > 0.8
    merged, expected = weights(out), base_and_adapters(policy, out)
    shared = expected.keys() & merged.keys()
    assert all(torch.allclose(merged[name], expected[name], atol=1e-6) for name in shared)
    heads = {name: each for name, each in seen.items() if "score.modules_to_save" in name}
    assert len(heads) == (2 if loss == "bce" else 0)
    for name, each in heads.items():
        assert torch.equal(merged[f"score.{name.rpartition('.')[2]}"], each.detach())


def test_completions_are_learnt(policy: Path, tmp_path: Path) -> None:
    rows = [{"prompt": f"{i}\n", "completion": f"It is {i}."} for i in range(8)]
    out, data = tmp_path / "out", write_rows(tmp_path / "rows.jsonl", rows)
    more = dict(data=data, epochs=8, batch_size=4)
    fsdpo_train.train_sft(fsdpo_train.SftConfig(**options(policy, out, **more)))
    first, *_, last = logged(out)
    assert last["loss"] < 0.7 * first["loss"]


def test_what_does_not_go_with_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same: dict[str, Any] = dict(data=tmp_path / "rows.jsonl", out=tmp_path / "out")
    alone = r"load_in_4bit = True: 4-bit weights .* Set `lora` to the rank"
    with pytest.raises(InputError, match=alone):
        fsdpo_train.DpoConfig(**same, load_in_4bit=True)
    with pytest.raises(InputError, match=alone):
        fsdpo_train.SftConfig(**same, load_in_4bit=True, lora=4, from_config=tmp_path)
    with pytest.raises(InputError, match=r"lora = 4: adapters cannot be merged .* zero3"):
        fsdpo_train.DpoConfig(**same, load_in_4bit=True, lora=4, deepspeed="zero3")
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(UnavailableError, match=r"load_in_4bit = True: .* Install it: .*\[qlora\]"):
        train_dpo(save_random_model(tmp_path / "policy"), tmp_path / "none")
