"""Outcome reward models: trained on last steps, recorded, and aggregated by the last step."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers import problem_set, reward_statistics_of, small_build
from prm_data import stepwise_rows, write_rows
from random_model import save_random_model

torch = pytest.importorskip("torch")
import transformers  # noqa: E402

import fsdpo_data as fd  # noqa: E402
from fsdpo_data.core.errors import InputError  # noqa: E402
from fsdpo_data.dataset.manifest import read_manifest  # noqa: E402
from fsdpo_data.engines.scorers.prm_formats import model_aggregate  # noqa: E402
from fsdpo_data.engines.weights import resolve_prm  # noqa: E402
from fsdpo_data.stages.pair import StepPairOptions  # noqa: E402
from fsdpo_data.stages.score import ScoreRecord  # noqa: E402
from fsdpo_train.config import PrmConfig  # noqa: E402
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES  # noqa: E402
from fsdpo_train.preference.pairs import open_pairs  # noqa: E402
from fsdpo_train.prm import train as prm  # noqa: E402
from fsdpo_train.prm.data import open_solutions, prepare_rows, read_labelled_rows  # noqa: E402


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("policy"))


def config(policy: Path, data: Path, out: Path, **options: Any) -> PrmConfig:
    defaults: dict[str, Any] = dict(
        lr=3e-3, batch_size=8, grad_accum=1, log_every=1, save_every=0, held_out=0.1
    )
    return PrmConfig(
        data=data, out=out, model=str(policy), last_step_only=True, **defaults, **options
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", stepwise_rows())


@pytest.fixture(scope="module")
def outcome_model(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("orm")
    data = write_rows(folder / "rows.jsonl", stepwise_rows())
    prm.train_prm(config(policy, data, folder / "orm"))
    return folder / "orm"


def test_the_loss_is_the_cross_entropy_of_the_last_step(
    policy: Path, data: Path, tmp_path: Path
) -> None:
    """Compare the first logged loss with the equation, from a forward pass per solution."""
    run = config(policy, data, tmp_path / "orm", max_steps=1, batch_tokens=10**6)
    run = run.replace(lr=1e-8)
    report = prm.train_prm(run)
    start = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "orm").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "orm")
    rows = prepare_rows(
        read_labelled_rows(open_solutions(run.data), run, Counter()), tokenizer, 256, run
    )
    assert all(len(row.labels) == 1 for row in [*rows.train, *rows.held_out])
    assert rows.counts["steps"] == rows.counts["solutions"] == len(stepwise_rows())
    texts = {row["prompt"] + "".join(row["completions"]): row for row in stepwise_rows()}
    expected = []
    for row in rows.train:
        text = tokenizer.decode(row.solution.input_ids)
        ids = torch.tensor([row.solution.input_ids.tolist()])
        with torch.no_grad():
            reward = torch.sigmoid(start(ids).logits[0, -1, 0]).item()
        expected.append(-math.log(reward if texts[text]["labels"][-1] else 1 - reward))
    # The learning rate is so low that the saved weights are nearly the first ones.
    assert report.loss == pytest.approx(sum(expected) / len(expected), abs=1e-4)


def test_labels_of_earlier_steps_change_nothing(policy: Path, data: Path, tmp_path: Path) -> None:
    rows = stepwise_rows()
    for row in rows:
        row["labels"] = [not row["labels"][-1]] * (len(row["labels"]) - 1) + row["labels"][-1:]
    altered = write_rows(tmp_path / "altered.jsonl", rows)
    load = transformers.AutoModelForTokenClassification.from_pretrained
    states = []
    for name, file in (("plain", data), ("altered", altered)):
        prm.train_prm(config(policy, file, tmp_path / name))
        states.append(load(tmp_path / name).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_solution_whose_last_step_is_too_long_is_left_out(policy: Path, data: Path) -> None:
    run = config(policy, data, Path("unused"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(policy)
    labelled = list(read_labelled_rows(open_solutions(run.data), run, Counter()))
    lengths = [len(tokenizer(row.prompt + "".join(row.steps))["input_ids"]) for row in labelled]
    limit = sorted(lengths)[len(lengths) // 2]
    counts = prepare_rows(labelled, tokenizer, limit, run).counts
    assert counts["solutions"] == sum(length <= limit for length in lengths)
    assert counts["lost_solutions"] == sum(length > limit for length in lengths) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "pqm"}, "last_step_only"),
        ({"loss": "implicit"}, "last_step_only"),
    ],
)
def test_losses_over_several_steps_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        config(Path("m"), Path("d"), Path("o"), **options)


def test_the_checkpoint_decides_the_default_aggregate(
    policy: Path, data: Path, outcome_model: Path, tmp_path: Path
) -> None:
    assert json.loads((outcome_model / "config.json").read_text())["last_step_only"] is True
    assert model_aggregate(resolve_prm(str(outcome_model))) == "last"
    step_model = tmp_path / "prm"
    # It starts from the outcome model, and is trained on every step.
    options: dict[str, Any] = dict(lr=3e-3, batch_size=8, grad_accum=1, max_steps=1)
    prm.train_prm(PrmConfig(data=data, out=step_model, model=str(outcome_model), **options))
    assert "last_step_only" not in json.loads((step_model / "config.json").read_text())
    assert model_aggregate(resolve_prm(str(step_model))) == "min"


def test_a_dataset_records_the_outcome_model_and_losses_with_step_weights_refuse_it(
    outcome_model: Path, tmp_path: Path
) -> None:
    small_build(tmp_path / "samples", problem_set(4))
    scored = fd.open_dataset(tmp_path / "samples").score(
        out=tmp_path / "scored", prm=str(outcome_model)
    )
    manifest = read_manifest(tmp_path / "scored")
    record = manifest.get("score", ScoreRecord)
    assert record.options.last_step_only
    assert "last" in reward_statistics_of(tmp_path / "scored").ranking_auc
    solutions = scored.solutions().collect()
    assert all(
        len(row["step_rewards"]) == len(row["completions"])
        for row in solutions.iter_rows(named=True)
        if row["step_rewards"] is not None
    )
    scored.pair(out=tmp_path / "pairs")
    assert read_manifest(tmp_path / "pairs").options["pair"]["aggregate"] == "last"
    scored.pair(out=tmp_path / "means", aggregate="mean")
    assert read_manifest(tmp_path / "means").options["pair"]["aggregate"] == "mean"
    for name, loss in PREFERENCE_LOSSES.items():
        if loss.uses_rewards:
            with pytest.raises(InputError, match=f"the loss {name} weights all steps"):
                open_pairs([tmp_path / "pairs"], loss)
        else:
            assert list(open_pairs([tmp_path / "pairs"], loss).rows())
    with pytest.raises(InputError, match="so they find no first error"):
        scored.pair(
            out=tmp_path / "steps", style="step-dpo", step_dpo=StepPairOptions(model="tiny")
        )


def test_a_process_reward_model_keeps_the_aggregates_of_the_paper(
    policy: Path, tmp_path: Path
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", stepwise_rows())
    options: dict[str, Any] = dict(lr=3e-3, batch_size=8, grad_accum=1, max_steps=1)
    prm.train_prm(PrmConfig(data=data, out=tmp_path / "prm", model=str(policy), **options))
    small_build(tmp_path / "samples", problem_set(4))
    dataset = fd.open_dataset(tmp_path / "samples").score(
        out=tmp_path / "scored", prm=str(tmp_path / "prm")
    )
    dataset.pair(out=tmp_path / "pairs")
    stages = read_manifest(tmp_path / "pairs").options
    assert stages["pair"]["aggregate"] == "mean" and "last_step_only" not in stages["score"]
