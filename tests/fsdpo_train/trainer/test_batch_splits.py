"""Every item of an optimizer step has the same weight, however the step is split into passes."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from preference_data import preference_rows
from prm_data import stepwise_rows, write_rows
from random_model import save_random_model

torch = pytest.importorskip("torch")
import transformers  # noqa: E402

from fsdpo_data.engines.step_tokens import EncodedSolution  # noqa: E402
from fsdpo_train import DpoConfig, PrmConfig, train_dpo, train_prm  # noqa: E402
from fsdpo_train.preference.data import PairRow  # noqa: E402
from fsdpo_train.prm import train as prm  # noqa: E402
from fsdpo_train.prm.data import IGNORE_LABEL, PrmRow, collate_solutions  # noqa: E402
from fsdpo_train.trainer.batching import (  # noqa: E402  # noqa: E402
    SolutionRow,
    TrainingRow,
    collate_tokens,
    pack_rows,
    pad_to_world_size,
    unpack_rows,
)
from fsdpo_train.trainer.models import disable_dropout  # noqa: E402
from fsdpo_train.trainer.trainer import StageTrainer  # noqa: E402


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("policy"))


def prm_gradient(config: PrmConfig, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """Return the gradient of the first step that reaches the optimizer."""
    seen: list[torch.Tensor] = []

    class GradientRecorder(transformers.TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
            grads = [
                parameter.grad.flatten()
                for parameter in model.parameters()
                if parameter.grad is not None
            ]
            seen.append(torch.cat(grads).clone())

    run_trainer = prm.run_trainer

    def run_with_callback(trainer: Any, *arguments: Any) -> None:
        trainer.add_callback(GradientRecorder)
        run_trainer(trainer, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(prm, "run_trainer", run_with_callback)
        train_prm(config)
    return seen[0]


@pytest.mark.parametrize("loss_is_scaled_for_ga", [None, "not there"])
def test_prm_gradients_average_over_all_solutions_of_an_optimizer_step(
    loss_is_scaled_for_ga: Any, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Split five solutions into passes of 2, 2 and 1.

    transformers 5.0 to 5.12 tripled the gradient. A mean of pass means overweights the last one.
    """
    if loss_is_scaled_for_ga == "not there":
        monkeypatch.delattr(transformers.Trainer, "loss_is_scaled_for_ga", raising=False)
        monkeypatch.setattr(transformers.Trainer, "training_step", old_training_step)
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows(problems=4)[:5])
    options: dict[str, Any] = dict(data=data, model=str(policy), held_out=0, max_grad_norm=1e9)
    options |= dict(max_steps=1, group_by_length=False, save_every=0)
    one_batch = PrmConfig(out=tmp_path / "whole", batch_size=5, grad_accum=1, **options)
    accumulated = PrmConfig(out=tmp_path / "parts", batch_size=2, grad_accum=3, **options)
    expected, gradient = (prm_gradient(config, monkeypatch) for config in (one_batch, accumulated))
    assert torch.allclose(gradient, expected, atol=1e-6 * float(expected.abs().max()))


@pytest.mark.parametrize("loss", ["bce", "pqm", "implicit"])
def test_a_batch_split_into_several_passes_has_the_same_gradient(
    loss: Any, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows(problems=4)[:5])
    options: dict[str, Any] = dict(data=data, model=str(policy), held_out=0, max_grad_norm=1e9)
    options |= dict(max_steps=1, save_every=0, batch_size=5, grad_accum=1, loss=loss)
    expected = prm_gradient(PrmConfig(out=tmp_path / "whole", **options), monkeypatch)
    passes = []
    prepare = StageTrainer._prepare_inputs
    monkeypatch.setattr(
        StageTrainer, "_prepare_inputs", lambda self, x: passes.append(x) or prepare(self, x)
    )
    monkeypatch.setattr("fsdpo_train.trainer.trainer.MAX_CPU_BATCH_TOKENS", 1)
    gradient = prm_gradient(PrmConfig(out=tmp_path / "parts", **options), monkeypatch)
    assert len(passes) == 5
    assert torch.allclose(gradient, expected, atol=1e-6 * float(expected.abs().max()))


def old_training_step(
    self: Any, model: Any, inputs: Any, num_items_in_batch: Any = None
) -> torch.Tensor:
    """Run the training step of transformers 5.0, reduced to one CPU."""
    model.train()
    inputs = self._prepare_inputs(inputs)
    loss = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
    if (not self.model_accepts_loss_kwargs or num_items_in_batch is None) and (
        self.compute_loss_func is None
    ):
        loss = loss / self.current_gradient_accumulation_steps
    self.accelerator.backward(loss)
    return loss.detach()


@pytest.mark.parametrize("share_prompt", [True, False])
def test_the_policy_starts_as_its_reference_whatever_its_dropout(
    share_prompt: bool, policy: Path, tmp_path: Path
) -> None:
    other = save_with_dropout(policy, tmp_path / "policy")
    data = write_rows(tmp_path / "pairs.jsonl", preference_rows())
    config = DpoConfig(
        data=data, out=tmp_path / "out", model=str(other), max_steps=1, share_prompt=share_prompt
    )
    report = train_dpo(config)
    assert report.loss == pytest.approx(math.log(2), abs=1e-5)
    assert report.metrics["kl"] == pytest.approx(0, abs=1e-3)
    trained = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert trained.attention_dropout == 0.5


def save_with_dropout(policy: Path, path: Path) -> Path:
    """Write a copy of a policy that has dropout in its attention."""
    settings = transformers.AutoConfig.from_pretrained(policy, attention_dropout=0.5)
    model = transformers.AutoModelForCausalLM.from_pretrained(policy, config=settings)
    model.save_pretrained(path)
    transformers.AutoTokenizer.from_pretrained(policy).save_pretrained(path)
    return path


def test_an_implicit_prm_starts_with_rewards_of_zero_whatever_its_dropout(
    policy: Path, tmp_path: Path
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows())
    model = str(save_with_dropout(policy, tmp_path / "policy"))
    config = PrmConfig(data=data, out=tmp_path / "out", model=model, loss="implicit", max_steps=1)
    assert train_prm(config).loss == pytest.approx(math.log(2), abs=1e-5)
    trained = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert trained.attention_dropout == 0.5


def test_dropout_is_disabled_in_every_kind_of_module() -> None:
    settings = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32)
    model = disable_dropout(transformers.GPT2LMHeadModel(settings)).train()
    ids = torch.arange(8)[None]
    assert torch.equal(model(ids).logits, model(ids).logits)


def test_repeated_pairs_are_counted(policy: Path, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level("INFO")
    rows = preference_rows()
    data = write_rows(tmp_path / "pairs.jsonl", [*rows, *rows[:3]])
    config = DpoConfig(data=data, out=tmp_path / "out", model=str(policy), max_steps=1)
    report = train_dpo(config)
    assert report.counts["pairs"] == len(rows) and report.counts["repeated_pairs"] == 3
    assert "left out 3 duplicate pairs" in caplog.text
    assert "3 pairs were duplicates and count only once" in (tmp_path / "out/README.md").read_text()


def test_contradictory_pairs_are_counted(policy: Path, tmp_path: Path, caplog: Any) -> None:
    """Two sources prefer different sides of the same texts, by the rewards of different models."""
    rows = preference_rows()
    sources = [write_rows(tmp_path / "a.jsonl", rows)]
    opposite = {"prompt": rows[0]["prompt"]}
    for side, other in (("chosen", "rejected"), ("rejected", "chosen")):
        opposite[f"{side}_steps"] = rows[0][f"{other}_steps"]
        opposite[f"{side}_rewards"] = [0.25] * len(rows[0][f"{other}_steps"])
    sources.append(write_rows(tmp_path / "b.jsonl", [opposite]))
    config = DpoConfig(data=sources, out=tmp_path / "out", model=str(policy), max_steps=1)
    report = train_dpo(config)
    assert report.counts["contradictory_pairs"] == 1
    assert "1 pairs contradict another pair" in caplog.text
    assert "1 pairs contradict another pair" in (tmp_path / "out/README.md").read_text()


def test_padding_rows_fill_the_last_batch() -> None:
    solution = EncodedSolution(
        input_ids=np.array([]), prompt_length=0, score_positions=[], n_steps=0
    )
    rows = [
        PrmRow(solution=solution, label_positions=[0], labels=[label], length=length)
        for label, length in ((1, 5), (2, 4), (3, 6))
    ]
    arguments = SimpleNamespace(world_size=2, per_device_train_batch_size=2)
    padded_rows = pad_to_world_size(rows, arguments)
    assert [row.labels for row in padded_rows] == [[1], [2], [3], [-100]]
    assert padded_rows[3].length == 0
    one_process = SimpleNamespace(world_size=1, per_device_train_batch_size=2)
    assert pad_to_world_size(rows, one_process) is rows
    config = PrmConfig(data=Path("data"), out=Path("out"), batch_size=2)
    sampler = StageTrainer.make_sampler(
        SimpleNamespace(train_dataset=padded_rows, stage_config=config, args=arguments)
    )
    order = list(sampler)
    assert len(sampler) == 4 and sorted(order[:3]) == [0, 1, 2] and order[3] == 3


def made_solution(length: int, n_steps: int) -> EncodedSolution:
    """Return a solution without a prompt, whose first tokens are steps."""
    return EncodedSolution(
        input_ids=np.arange(length),
        prompt_length=0,
        score_positions=list(range(n_steps)),
        n_steps=n_steps,
    )


def test_the_padding_row_of_a_pack_has_a_label_per_position() -> None:
    """The first pack need not start with the first row, whose number of labels may differ."""
    rows = [
        PrmRow(
            solution=made_solution(2 * n_labels, n_labels),
            label_positions=range(n_labels),
            labels=[1.0] * n_labels,
            length=2 * n_labels,
            group=n_labels,
        )
        for n_labels in (6, 2, 3, 4)
    ]
    config = PrmConfig(data=Path("data"), out=Path("out"), batch_tokens=16)
    packs = pack_rows(rows, config)
    assert len(packs[0].labels) != len(rows[0].labels)
    arguments = SimpleNamespace(world_size=len(packs) + 1, per_device_train_batch_size=1)
    *_, padding = pad_to_world_size(packs, arguments)
    batch = collate_solutions([padding], 0)
    assert batch["labels"].shape == batch["label_positions"].shape
    assert (batch["labels"] == IGNORE_LABEL).all() and not padding.packed


def test_padding_rows_have_nothing_that_the_loss_reads() -> None:
    row = SolutionRow(solution=made_solution(3, 1), length=3)
    assert not collate_tokens([row.without_loss().solution], 0)["completion_mask"].any()
    pair = PairRow(group=0, pairs=[(0, 1)], length=3)
    assert not pair.without_loss().pairs


@pytest.mark.parametrize("group", [True, False])
def test_packs_are_full_and_hold_every_row_once(group: bool) -> None:
    rows = [TrainingRow(length=(index * 37) % 101 + 1, group=index) for index in range(300)]
    options: dict[str, Any] = dict(data=Path("data"), out=Path("out"), group_by_length=group)
    packs = pack_rows(rows, PrmConfig(**options, batch_tokens=400))
    assert pack_rows(rows, PrmConfig(**options)) is rows
    assert sorted(row.group for row in unpack_rows(packs)) == list(range(300))
    lengths = [[rows[row.group].length for row in unpack_rows([pack])] for pack in packs]
    assert [sum(pack_lengths) for pack_lengths in lengths] == [pack.length for pack in packs]
    assert all(sum(pack_lengths) <= 400 for pack_lengths in lengths)
    assert len(pack_rows(rows, PrmConfig(**options, batch_tokens=1))) == 300
    assert sum(map(sum, lengths)) > 0.8 * 400 * len(packs)
    if group:
        assert all(max(pack_lengths) - min(pack_lengths) < 20 for pack_lengths in lengths)
    other = pack_rows(rows, PrmConfig(**options, batch_tokens=400, seed=1))
    assert [row.group for row in unpack_rows(packs)] != [row.group for row in unpack_rows(other)]


STAGES = {
    "sft": [{"prompt": f"{i}\n", "completion": f"It is {i}{i % 7}."} for i in range(5)],
    "prm": stepwise_rows(problems=5)[:5],
    "dpo": preference_rows(prompts=5),
}


@pytest.mark.proof
@pytest.mark.parametrize(
    ("one_process", "two_processes", "tolerance"),
    [
        (["--batch-size", 4], ["--batch-size", 2], 1e-5),
        # Passes of one row sum in another order, so the rounding differs.
        (["--batch-tokens", 10**6], ["--batch-tokens", 1, "--grad-accum", 99], 1e-4),
    ],
    ids=["rows", "tokens"],
)
@pytest.mark.parametrize("stage", STAGES)
def test_two_processes_train_to_the_same_weights_as_one_process(
    stage: str,
    one_process: list[Any],
    two_processes: list[Any],
    tolerance: float,
    policy: Path,
    tmp_path: Path,
) -> None:
    """Train on five rows, four per step: in the second step one process has no row.

    With this seed, the first pack does not start with the first row.
    """
    data = write_rows(tmp_path / "rows.jsonl", STAGES[stage])
    arguments = [stage, data, "--model", policy, "--lr", "1e-3", "--epochs", 2, "--grad-accum", 1]
    arguments += ["--no-group-by-length", "--log-every", 1, "--save-every", 0, "--seed", 2]
    arguments += ["--held-out", 0] if stage == "prm" else []
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for name, launch, batch in (("one", [], one_process), ("two", torchrun, two_processes)):
        line = [sys.executable, *launch, "-m", "fsdpo_train", *arguments]
        line += [*batch, "--out", tmp_path / name]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        ran = subprocess.run(
            [str(argument) for argument in line], env=env, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
    auto = "AutoModelForTokenClassification" if stage == "prm" else "AutoModelForCausalLM"
    expected, weights = (
        getattr(transformers, auto).from_pretrained(tmp_path / name).state_dict()
        for name in ("one", "two")
    )
    assert max(float((expected[name] - weights[name]).abs().max()) for name in expected) < tolerance


@pytest.mark.proof
@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], marks=pytest.mark.short_proof, id="rows"),
        pytest.param(["--batch-pairs", 8], id="batches of pairs"),
    ],
)
def test_two_processes_resume_in_the_order_of_the_second_epoch(
    options: list[Any], policy: Path, tmp_path: Path
) -> None:
    """The rows after the checkpoint are those that the epoch has left."""
    data = write_rows(tmp_path / "rows.jsonl", preference_rows(prompts=12))
    arguments = ["dpo", data, "--model", policy, "--lr", "1e-3", "--epochs", 2, "--grad-accum", 1]
    arguments += ["--batch-size", 1, "--save-every", 8, "--save-limit", 2, *options]
    complete, resumed = tmp_path / "complete", tmp_path / "resumed"

    def train(out: Path, *more_arguments: Any) -> None:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        line = [*torchrun, "--nproc-per-node", 2, "-m", "fsdpo_train", *arguments, *more_arguments]
        ran = subprocess.run(
            [str(argument) for argument in (*line, "--out", out)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]

    train(complete)
    for name in ("dpo.json", "checkpoints/checkpoint-8"):
        source, target = complete / name, resumed / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    train(resumed, "--resume")
    expected, weights = (
        transformers.AutoModelForCausalLM.from_pretrained(out).state_dict()
        for out in (complete, resumed)
    )
    assert all(torch.equal(expected[name], weights[name]) for name in expected)


@pytest.mark.proof
def test_two_processes_measure_the_heldout_loss_of_one_process(
    policy: Path, tmp_path: Path
) -> None:
    """Rows of other batches fill up the last batches, and do not count."""
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows(problems=11, samples=3))
    arguments = ["prm", data, "--model", policy, "--max-steps", 1, "--lr", "1e-12"]
    arguments += ["--held-out", 0.5, "--save-every", 0, "--grad-accum", 1, "--batch-size", 4]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    metric_lines: list[list[str]] = []
    for name, launch in (("one", []), ("two", torchrun)):
        line = [sys.executable, *launch, "-m", "fsdpo_train", *arguments, "--out", tmp_path / name]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        ran = subprocess.run(
            [str(argument) for argument in line], env=env, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        metric_lines.append([line for line in ran.stdout.splitlines() if "held out" in line])
    assert metric_lines[0] == metric_lines[1] and len(metric_lines[0]) == 1
