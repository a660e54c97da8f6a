"""PRM training: losses equal the papers' equations, and trained models load with transformers."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import label_with_rollouts, problem_set, seal_json, small_build
from prm_data import stepwise_rows, write_rows
from random_model import save_other_architecture, save_random_model
from training import kill_at_step

torch = pytest.importorskip("torch")
import safetensors.torch  # noqa: E402
import transformers  # noqa: E402

import fsdpo_data as fd  # noqa: E402
from fsdpo_data.core.errors import InputError, RunMismatchError, SchemaError, UnavailableError  # noqa: E402
from fsdpo_data.core.identity import file_sha256  # noqa: E402
from fsdpo_data.dataset.schema import arrow_schema  # noqa: E402
from fsdpo_data.engines.logprobs import patch_to_return_logprobs  # noqa: E402
from fsdpo_data.engines.step_tokens import EncodedSolution, gather_at_positions  # noqa: E402
from fsdpo_data.models.checkpoints import load_checkpoint  # noqa: E402
from fsdpo_data.models.prompts import get_template  # noqa: E402
from fsdpo_data.models.resolve import resolve_weights  # noqa: E402
from fsdpo_train.cli.app import _format_heldout  # noqa: E402
from fsdpo_train.config import PrmConfig  # noqa: E402
from fsdpo_train.losses.prm_losses import pqm_loss, prm_loss  # noqa: E402
from fsdpo_train.prm import train as prm  # noqa: E402
from fsdpo_train.prm.data import (  # noqa: E402
    IGNORE_LABEL,
    LabelledRow,
    PrmRow,
    collate_solutions,
    open_solutions,
    prepare_rows,
    read_labelled_rows,
)
from fsdpo_train.trainer.arguments import training_arguments  # noqa: E402


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", stepwise_rows())


def config(policy: Path, data: Path, out: Path, **options: Any) -> PrmConfig:
    defaults: dict[str, Any] = dict(
        lr=3e-3, batch_size=8, grad_accum=1, log_every=1, save_every=0, held_out=0.1
    )
    if "max_steps" not in options:
        defaults["epochs"] = 2
    return PrmConfig(data=data, out=out, model=str(policy), **(defaults | options))


def labelled_rows(options: PrmConfig) -> Iterator[LabelledRow]:
    return read_labelled_rows(open_solutions(options.data), options, Counter())


def prepare_data(policy: Path, data: Path, max_length: int = 256, **options: Any) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(policy)
    run_config = config(policy, data, Path("unused"), **options)
    return prepare_rows(labelled_rows(run_config), tokenizer, max_length, run_config)


def reference_loss(rewards: list[list[float]], labels: list[list[float]], reduce: str) -> float:
    """Compute the paper's equation in plain Python."""
    losses = []
    for r_k, y_k in zip(rewards, labels, strict=True):
        terms = [
            -(y * math.log(r) + (1 - y) * math.log(1 - r)) for r, y in zip(r_k, y_k, strict=True)
        ]
        losses.append(math.fsum(terms) / (len(terms) if reduce == "mean" else 1))
    return math.fsum(losses) / len(losses)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("soft", [False, True])
def test_the_loss_equals_the_equation_of_the_paper(reduce: str, soft: bool) -> None:
    torch.manual_seed(0)
    for _ in range(50):
        lengths = torch.randint(1, 7, (5,))
        logit_BK = 4 * torch.randn(5, 6, dtype=torch.float64)
        mask_BK = torch.arange(6) < lengths[:, None]
        label_BK = torch.rand(5, 6, dtype=torch.float64)
        label_BK = (label_BK if soft else label_BK.round()).masked_fill(~mask_BK, IGNORE_LABEL)
        rewards = [row[m].sigmoid().tolist() for row, m in zip(logit_BK, mask_BK, strict=True)]
        labels = [row[m].tolist() for row, m in zip(label_BK, mask_BK, strict=True)]
        loss = prm_loss(logit_BK, label_BK, mask_BK, reduction=reduce).item()
        assert loss == pytest.approx(reference_loss(rewards, labels, reduce), abs=1e-10)


def test_padding_has_no_gradient() -> None:
    logit_BK = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    label_BK = torch.tensor([[1.0, 0.0, IGNORE_LABEL], [1.0, IGNORE_LABEL, IGNORE_LABEL]])
    prm_loss(logit_BK, label_BK, label_BK != IGNORE_LABEL, reduction="sum").backward()
    assert logit_BK.grad is not None
    assert (logit_BK.grad != 0).tolist() == [[True, True, False], [True, False, False]]


def test_half_precision_logits_are_summed_in_float32() -> None:
    logit_BK = torch.full((1, 300), 0.3, dtype=torch.bfloat16)
    label_BK = torch.ones(1, 300)
    mask_BK = torch.ones(1, 300, dtype=torch.bool)
    exact = prm_loss(logit_BK.double(), label_BK, mask_BK, reduction="sum").item()
    assert prm_loss(logit_BK, label_BK, mask_BK, reduction="sum").item() == pytest.approx(exact)


def test_score_positions_select_one_logit_per_step() -> None:
    logits = torch.arange(8.0).view(2, 4, 1)
    assert gather_at_positions(logits, torch.tensor([[1, 3], [0, 0]])).tolist() == [[1, 3], [4, 4]]


def test_a_prm_learns_and_loads_with_plain_transformers(
    policy: Path, data: Path, tmp_path: Path
) -> None:
    report = prm.train_prm(config(policy, data, tmp_path / "prm", epochs=8, log_every=10))
    assert report.held_out["ranking_auc"] > 0.9 and report.held_out["accuracy"] > 0.8
    assert report.held_out["loss"] < 1.5 and report.counts["held_out_problems"] == 2
    model = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "prm")
    assert model.config.num_labels == 1 and model.score.out_features == 1
    assert model.config.id2label == {0: "reward"}
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "prm").eos_token_id is not None
    assert not list((tmp_path / "prm").glob("*.bin.index*"))
    card = (tmp_path / "prm/README.md").read_text()
    assert f"| auc | {report.held_out['auc']:.4f} |" in card
    assert f"`{policy.name}`" in card and str(policy) not in card and "sha256:" in card


@pytest.mark.parametrize("family", ["Llama", "Mistral"])
def test_other_architectures(family: str, policy: Path, data: Path, tmp_path: Path) -> None:
    other = save_other_architecture(tmp_path / "policy", policy, family, num_key_value_heads=1)
    report = prm.train_prm(config(other, data, tmp_path / "prm", max_steps=4))
    assert report.steps == 4 and math.isfinite(report.loss)
    loaded = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "prm")
    assert type(loaded).__name__ == f"{family}ForTokenClassification"


def test_outcomes_of_a_sealed_dataset_are_labels(policy: Path, tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(4))
    rows = list(labelled_rows(config(policy, tmp_path / "run", tmp_path / "prm")))
    assert (
        len(rows) == 12
    )  # four problems with three solutions that have steps; empty solutions have none
    assert [row.labels for row in rows[:3]] == [[1.0, 1.0], [0.0, 0.0], [0.0]]
    assert len({row.problem for row in rows}) == 4
    few = config(policy, tmp_path / "run", tmp_path / "prm", samples=1)
    assert [row.labels for row in labelled_rows(few)] == [[1.0, 1.0]] * 4


def test_samples_counts_the_solutions_that_a_selection_has_kept(
    policy: Path, tmp_path: Path
) -> None:
    """The fixed solutions are correct, wrong, wrong and without a step."""
    small_build(tmp_path / "run", problem_set(4))
    fd.open_dataset(tmp_path / "run").select(out=tmp_path / "wrong", filter="outcome = 'incorrect'")
    for samples, expected in ((0, 8), (1, 4), (2, 8)):
        options = config(policy, tmp_path / "wrong", tmp_path / "prm", samples=samples)
        labels = [row.labels for row in labelled_rows(options)]
        assert len(labels) == expected and labels[0] == [0.0, 0.0]


def test_rollouts_are_soft_labels(policy: Path, tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(1))
    label_with_rollouts(tmp_path / "run", tmp_path / "labelled", n=4)
    labels = {
        kind: [
            row.labels
            for row in labelled_rows(config(policy, tmp_path / "labelled", tmp_path, labels=kind))
        ]
        for kind in ("auto", "outcome", "rollouts")
    }
    assert labels["outcome"] == [[1.0, 1.0], [0.0, 0.0], [0.0]]
    assert labels["auto"] == labels["rollouts"] == [[0.75, 1.0], [0.25, 0.0], [0.0]]


def test_dropped_labels_are_not_replaced_by_outcomes(policy: Path, tmp_path: Path) -> None:
    """Consensus filtering, unreadable votes and ungraded prefixes leave null in `rollouts`."""
    small_build(tmp_path / "run", problem_set(1))
    label_with_rollouts(tmp_path / "run", tmp_path / "labelled")
    set_rollouts(tmp_path / "labelled", [None, [{"n": 8, "n_correct": 2}] * 2, None, None])
    counts = Counter[str]()
    options = config(policy, tmp_path / "labelled", tmp_path)
    rows = list(read_labelled_rows(open_solutions(options.data), options, counts))
    assert [row.labels for row in rows] == [[0.25, 0.25]]
    assert counts == {"unlabelled_solutions": 2}, "the solution without a step is not counted"
    outcomes = config(policy, tmp_path / "labelled", tmp_path, labels="outcome")
    assert len(list(labelled_rows(outcomes))) == 3


@pytest.mark.parametrize("kind", ["auto", "rollouts"])
def test_a_dataset_without_any_label_of_the_kind_is_refused(
    policy: Path, tmp_path: Path, kind: str
) -> None:
    small_build(tmp_path / "run", problem_set(1))
    label_with_rollouts(tmp_path / "run", tmp_path / "labelled")
    set_rollouts(tmp_path / "labelled", [None] * 4)
    message = "none of 3 solutions has labels of the kind rollouts"
    with pytest.raises(InputError, match=message):
        prepare_data(policy, tmp_path / "labelled", labels=kind)


def set_rollouts(dataset: Path, values: list[Any]) -> None:
    """Replace the column `rollouts` of a sealed dataset with one file of solutions."""
    file = dataset / "solutions/train-00000-of-00001.parquet"
    rows = pq.read_table(file).to_pylist()
    rows = [row | {"rollouts": value} for row, value in zip(rows, values, strict=True)]
    old_digest = file_sha256(file)
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema("solutions")), file)
    manifest = dataset / "manifest.json"
    edited = manifest.read_text().replace(old_digest, file_sha256(file))
    manifest.write_text(seal_json(json.loads(edited)))


def test_soft_labels_reach_the_loss_unchanged(policy: Path, tmp_path: Path) -> None:
    rows = [{"prompt": "p", "completions": ["a b"], "labels": [share]} for share in (0.7, 0.2)]
    ready = prepare_data(policy, write_rows(tmp_path / "rows.jsonl", rows), held_out=0)
    assert collate_solutions(ready.train, 0)["labels"].flatten().tolist() == pytest.approx(
        [0.7, 0.2]
    )


def test_all_solutions_of_a_problem_are_in_the_same_split(policy: Path, data: Path) -> None:
    ready = prepare_data(policy, data, held_out=0.25)
    train_problems, held_out_problems = (
        {row.problem for row in rows} for rows in (ready.train, ready.held_out)
    )
    assert (
        len(held_out_problems) == 6
        and len(train_problems) == 18
        and not train_problems & held_out_problems
    )
    assert len(ready.train) + len(ready.held_out) == 96
    again = prepare_data(policy, data, held_out=0.25, seed=1)
    assert {row.problem for row in again.held_out} != held_out_problems


@pytest.mark.parametrize(
    ("rows", "held_out", "warns"),
    [
        ([{**row, "prompt": "Solve it.\n"} for row in stepwise_rows()], 0.1, True),
        ([{**row, "prompt": "Solve it.\n"} for row in stepwise_rows()], 0, False),
        (stepwise_rows(), 0.1, False),
    ],
)
def test_a_run_that_can_hold_nothing_out_says_so(
    rows: list[dict[str, Any]],
    held_out: float,
    warns: bool,
    policy: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", rows)
    options = config(policy, data, tmp_path / "prm", max_steps=1, held_out=held_out)
    report = prm.train_prm(options)
    assert bool(report.held_out) is (held_out > 0 and not warns)
    assert ("count as one problem" in caplog.text) is warns


def test_problems_with_a_common_prompt_are_on_one_side_of_the_split(
    policy: Path, tmp_path: Path
) -> None:
    """A question has several ids, for example if its gold answer has several spellings."""
    rows = [{**row, "problem_id": f"id {i}"} for i, row in enumerate(stepwise_rows())]
    # Another prompt of the first problem belongs to it, too.
    rows.append({**rows[0], "prompt": "Problem 0, in other words\nSolution:\n"})
    prepared = prepare_data(policy, write_rows(tmp_path / "rows.jsonl", rows), held_out=0.5)
    assert prepared.counts["problems"] == 24 and prepared.counts["held_out_problems"] == 12
    first_problem = {"Problem 0\nSolution:\n", "Problem 0, in other words\nSolution:\n"}
    train_prompts, held_out_prompts = (
        {row.group for row in side} for side in (prepared.train, prepared.held_out)
    )
    assert not train_prompts & held_out_prompts
    assert first_problem <= train_prompts or first_problem <= held_out_prompts


@pytest.mark.parametrize(
    "other_prompt",
    [
        "Problem:  problem 0 IS LONG\nSolution:\n",  # other case and spaces
        get_template("alpaca").render("Problem 0 is long"),
        "<user>Problem 0 is long<assistant>",  # the chat format of the tokenizer
    ],
)
def test_one_question_is_one_problem_of_the_split(
    policy: Path, tmp_path: Path, other_prompt: str
) -> None:
    rows = stepwise_rows()
    for row in rows:
        question = row["prompt"].removesuffix("\nSolution:\n") + " is long"
        row["prompt"] = get_template("problem").render(question)
    rows.append({**rows[0], "prompt": other_prompt, "problem_id": "another id"})
    tokenizer = transformers.AutoTokenizer.from_pretrained(policy)
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    )
    run_config = config(policy, write_rows(tmp_path / "rows.jsonl", rows), Path("unused"))
    prepared = prepare_rows(labelled_rows(run_config), tokenizer, 512, run_config)
    assert prepared.counts["problems"] == 24


def test_the_questions_of_datasets_decide_the_split(policy: Path, tmp_path: Path) -> None:
    """The second dataset has the questions of the first one, in capitals."""
    source = problem_set(3)
    small_build(tmp_path / "a", source)
    source.problems = [replace(row, question=row.question.upper()) for row in source.problems]
    small_build(tmp_path / "b", source)
    data = [tmp_path / "a", tmp_path / "b"]
    options = PrmConfig(data=data, out=tmp_path / "o", model=str(policy), held_out=0.5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(policy)
    prepared = prepare_rows(labelled_rows(options), tokenizer, 512, options)
    assert prepared.counts["problems"] == 3 and prepared.counts["solutions"] == 18


def test_problems_without_a_prompt_keep_their_ids(policy: Path, tmp_path: Path) -> None:
    rows = [{**row, "problem_id": row["prompt"], "prompt": ""} for row in stepwise_rows()]
    prepared = prepare_data(policy, write_rows(tmp_path / "rows.jsonl", rows))
    assert prepared.counts["problems"] == 24


def test_rows_without_an_id_are_problems_by_their_prompts(policy: Path, tmp_path: Path) -> None:
    rows = [{**row, "problem_id": None} for row in stepwise_rows()]
    with_nulls = prepare_data(policy, write_rows(tmp_path / "nulls.jsonl", rows))
    plain = prepare_data(policy, write_rows(tmp_path / "plain.jsonl", stepwise_rows()))
    assert with_nulls.counts["problems"] == plain.counts["problems"] > 1


def test_equal_ids_of_two_files_are_two_problems(policy: Path, tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        rows = [
            {**row, "problem_id": index, "prompt": f"{name}: {row['prompt']}"}
            for index, row in enumerate(stepwise_rows())
        ]
        files.append(write_rows(tmp_path / f"{name}.jsonl", rows))
    problems = {row.problem for row in labelled_rows(config(policy, files, tmp_path))}
    assert len(problems) == 2 * len(stepwise_rows())


def test_labels_beyond_the_context_are_counted(
    policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rows = stepwise_rows(problems=4)
    rows[0]["completions"] = ["Step 1: fine.\n", "x" * 400]
    rows[0]["labels"] = [True, True]
    rows[1] |= {"completions": ["y" * 400], "labels": [False]}
    data = write_rows(tmp_path / "rows.jsonl", rows)
    report = prm.train_prm(config(policy, data, tmp_path / "prm", max_steps=1))
    assert report.counts["lost_labels"] == 2 and report.counts["lost_solutions"] == 1
    log_text = caplog.text
    assert (
        "left out 2 labels of steps beyond the context length, and 1 solutions without" in log_text
    )


def test_a_loss_of_outcomes_leaves_out_solutions_without_their_last_step(
    policy: Path, tmp_path: Path
) -> None:
    """The labels that are left would call a wrong solution right."""
    long_row = {
        "prompt": "p\n",
        "completions": ["a\n", "b\n", "c\n", "x" * 400],
        "labels": [True, True, True, False],
    }
    data = write_rows(tmp_path / "rows.jsonl", [long_row, *stepwise_rows(problems=2)])
    n_solutions = len(stepwise_rows(problems=2))
    outcomes = prepare_data(policy, data, held_out=0, loss="implicit")
    assert outcomes.counts["solutions"] == len(outcomes.train) == n_solutions
    assert (outcomes.counts["lost_labels"], outcomes.counts["lost_solutions"]) == (1, 1)
    steps = prepare_data(policy, data, held_out=0)
    assert steps.train[0].labels == [1.0, 1.0, 1.0]
    assert (steps.counts["lost_labels"], steps.counts["lost_solutions"]) == (1, 0)


def test_accumulation_matches_one_large_batch(policy: Path, data: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = dict(group_by_length=False, max_steps=4, log_every=4, held_out=0)
    one_pass = prm.train_prm(config(policy, data, tmp_path / "one", batch_size=16, **options))
    accumulated = prm.train_prm(
        config(policy, data, tmp_path / "two", batch_size=4, grad_accum=4, **options)
    )
    assert one_pass.loss == pytest.approx(accumulated.loss, abs=1e-5)


def test_a_run_killed_and_resumed_ends_in_the_same_weights(
    policy: Path, data: Path, tmp_path: Path
) -> None:
    expected = prm.train_prm(config(policy, data, tmp_path / "whole", save_every=5))

    part = tmp_path / "part"
    # Past the checkpoint at 10, in the second epoch.
    kill_at_step(13, prm, lambda: prm.train_prm(config(policy, data, part, save_every=5)))
    assert not (part / "model.safetensors").exists()
    resumed = prm.train_prm(config(policy, data, part, save_every=5, resume=True))
    assert resumed.loss == expected.loss and resumed.held_out == expected.held_out
    ours, theirs = (
        transformers.AutoModelForTokenClassification.from_pretrained(folder).state_dict()
        for folder in (part, tmp_path / "whole")
    )
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    with pytest.raises(RunMismatchError, match=r"these keys differ:\n  lr: "):
        prm.train_prm(config(policy, data, part, save_every=5, resume=True, lr=1.0))


@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
def test_a_policy_without_some_of_its_weights_is_refused(
    policy: Path, data: Path, tmp_path: Path, prefix: str
) -> None:
    incomplete = shutil.copytree(policy, tmp_path / "policy")
    file = incomplete / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    remaining = {
        prefix + name: tensor for name, tensor in tensors.items() if "layers.1" not in name
    }
    safetensors.torch.save_file(remaining, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match="the checkpoint has no weights for"):
        prm.train_prm(config(incomplete, data, tmp_path / "prm", max_steps=1))


def test_lora_is_merged_into_plain_weights(policy: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    report = prm.train_prm(config(policy, data, tmp_path / "prm", lora=4, epochs=8, lr=1e-2))
    assert report.held_out["ranking_auc"] > 0.8
    assert not list((tmp_path / "prm").glob("adapter*"))
    model = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "prm")
    policy_weights = transformers.AutoModelForCausalLM.from_pretrained(policy).state_dict()
    trained_weights = model.state_dict()
    changed = {
        name
        for name in policy_weights
        if name in trained_weights and not torch.equal(policy_weights[name], trained_weights[name])
    }
    assert any("q_proj" in name for name in changed)
    assert not any("norm" in name or "embed" in name for name in changed)


def test_lora_trains_a_score_head_of_another_name(policy: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    other = save_other_architecture(tmp_path / "policy", policy, "GPTNeoX")
    run_config = config(other, data, tmp_path / "prm", lora=2, max_steps=1)
    assert prm.train_prm(run_config).steps == 1
    trained = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "prm")
    assert trained.classifier.out_features == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [True, False, True, True, True]}, "row 1: 5 labels for"),
        ({"labels": None}, "row 1: the columns labels are missing. The row has"),
        ({"labels": [1.5], "completions": ["a"]}, r"row 1: label 1\.5"),
        ({"labels": ["+"], "completions": ["a"]}, r"row 1: label '\+'"),
        ({"labels": "+"}, "expected two lists"),
        ({"labels": [1, 0], "completions": ["a", ""]}, r"rows\.jsonl, row 1: step 2 "),
        (
            {"labels": [True], "completions": [["a"]]},
            "completions: expected a text and a list of texts",
        ),
        (
            {"prompt": [{"role": "user", "content": "2 + 2?"}]},
            "prompt, completions: expected a text",
        ),
    ],
)
def test_invalid_rows_are_named(
    policy: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    rows = stepwise_rows()
    rows[0].update(change)
    data = write_rows(tmp_path / "rows.jsonl", rows)
    with pytest.raises(InputError, match=message):
        prm.train_prm(config(policy, data, tmp_path / "prm"))


@pytest.mark.parametrize(("labels", "kind"), [(True, r"right \(1\)"), (False, r"wrong \(0\)")])
def test_one_class_is_refused(policy: Path, tmp_path: Path, labels: bool, kind: str) -> None:
    rows = [row for row in stepwise_rows() if row["labels"][0] is labels]
    with pytest.raises(InputError, match=f"step labels are {kind}, so there is nothing to learn"):
        prm.train_prm(config(policy, write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "prm"))
    assert not (tmp_path / "prm").exists()


def test_one_class_of_outcomes_is_refused_by_a_loss_of_outcomes(
    policy: Path, tmp_path: Path
) -> None:
    rows = [{"prompt": f"{i}\n", "completions": ["a\n", "b"], "labels": [0, 1]} for i in range(3)]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    with pytest.raises(InputError, match="all 3 outcomes are right"):
        prepare_data(policy, data, held_out=0, loss="implicit")
    assert len(prepare_data(policy, data, held_out=0).train) == 3


def test_one_remaining_class_after_the_split_is_refused(policy: Path, tmp_path: Path) -> None:
    rows = [
        {"prompt": name, "completions": ["a\n", "b\n"], "labels": [right, right]}
        for name, right in (("Problem 0\n", True), ("Problem 1\n", False))
    ]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    with pytest.raises(InputError, match="so there is nothing to learn; 1 prob"):
        prm.train_prm(config(policy, data, tmp_path / "prm"))


def test_other_input_errors_are_named(policy: Path, data: Path, tmp_path: Path) -> None:
    def train(**options: Any) -> None:
        path = options.pop("data", data)
        prm.train_prm(config(options.pop("model", policy), path, tmp_path / "prm", **options))

    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InputError, match="the file is empty; PRM training needs"):
        train(data=tmp_path / "empty.jsonl")
    write_rows(tmp_path / "other.jsonl", [{"prompt": "p", "completion": "c"}])
    with pytest.raises(
        InputError, match=r"other\.jsonl': the columns completions, labels are missing; .* prompt"
    ):
        train(data=tmp_path / "other.jsonl")
    with pytest.raises(InputError, match=r"Expected a dataset with solutions, or a \.jsonl"):
        train(data=tmp_path / "nowhere")
    long = [{"prompt": "p", "completions": ["x" * 500], "labels": [share]} for share in (0, 1)]
    with pytest.raises(InputError, match="2 solutions exceed 256 tokens in their first step"):
        train(data=write_rows(tmp_path / "long.jsonl", long))
    with pytest.raises(InputError, match="nothing': no such file or directory"):
        train(model="./nothing")
    with pytest.raises(InputError, match="`samples` chooses from a sealed"):
        train(samples=2)
    with pytest.raises(InputError, match=r"labels = 'outcome': .* a file has only one kind"):
        train(labels="outcome")
    with pytest.raises(InputError, match="loss_reduction = 'max': expected one of sum, mean"):
        train(loss_reduction="max")
    with pytest.raises(InputError, match="deepspeed = 'zero4': expected zero2, zero3 or a Deep"):
        train(deepspeed="zero4")
    with pytest.raises(InputError, match="lora = 4: adapters cannot be merged"):
        train(lora=4, deepspeed="zero3")
    for schedule in ("warmup_stable_decay", "cosine_with_min_lr", "cosine_warmup_with_min_lr"):
        with pytest.raises(InputError, match=f"schedule = '{schedule}': .* linear, cosine, "):
            train(schedule=schedule)
    with pytest.raises(UnavailableError, match="report_to = 'nobody'"):
        train(report_to="nobody")
    assert not (tmp_path / "prm").exists()


def test_a_reward_model_is_refused_as_a_policy(policy: Path, data: Path, tmp_path: Path) -> None:
    prm.train_prm(config(policy, data, tmp_path / "prm", max_steps=1))
    weights = resolve_weights(str(tmp_path / "prm"))
    with pytest.raises(
        InputError, match="the checkpoint is a reward model; expected a language model"
    ):
        load_checkpoint("AutoModelForCausalLM", weights, dtype="float32", expected="")


def test_an_unsealed_dataset_is_refused(policy: Path, tmp_path: Path) -> None:
    small_build(tmp_path / "run")
    (tmp_path / "run/manifest.json").unlink()
    with pytest.raises(SchemaError, match=r"holds no dataset .* stopped is finished by"):
        prm.train_prm(config(policy, tmp_path / "run", tmp_path / "prm"))


def test_the_command_line(policy: Path, data: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from fsdpo_train.cli.app import app

    arguments = ["prm", data, "--out", tmp_path / "prm", "--model", policy]
    arguments += [
        "--max-steps",
        "2",
        "--lr",
        "1e-3",
        "--loss-reduction",
        "mean",
        "--save-every",
        "0",
    ]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    assert "2 steps, mean loss" in result.output and "ranking_auc" in result.output
    assert json.loads((tmp_path / "prm/prm.json").read_text())["loss_reduction"] == "mean"


@pytest.mark.parametrize("is_trained", [False, True])
def test_rewards_at_chance_level_cause_a_warning(
    is_trained: bool, policy: Path, tmp_path: Path
) -> None:
    """Without training, and with random labels, the rewards say nothing about the labels."""
    from typer.testing import CliRunner

    from fsdpo_train.cli.app import app

    rows = stepwise_rows()
    if not is_trained:
        rng = random.Random(0)
        rows = [row | {"labels": [rng.random() < 0.5] * len(row["labels"])} for row in rows]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    out = tmp_path / "prm"
    learning = ["--lr", "3e-3", "--epochs", 8] if is_trained else ["--lr", "1e-9", "--max-steps", 1]
    arguments = ["prm", data, "--out", out, "--model", policy, "--held-out", 0.3, "--grad-accum", 1]
    output = CliRunner().invoke(app, [str(argument) for argument in (*arguments, *learning)]).output
    card = (out / "README.md").read_text()
    # The trained model has an AUC of 1, and so no interval.
    assert ("The 95 % interval of `auc` is [" in card) is not is_trained
    assert ("no better than chance" in card) is not is_trained
    assert ("warning: auc 0." in output and "no better than chance" in output) is not is_trained


def test_the_ranking_loss_equals_the_equation_of_pqm() -> None:
    """Compare with equation 10 of Li and Li (2024), which adds an initial step of value 0."""
    rng = random.Random(0)
    zeta = 4.0
    rows = [[(rng.gauss(0, 2), rng.random() < 0.5) for _ in range(k)] for k in (1, 3, 5, 2)]
    rows += [[(0.5, True), (-1.0, True)], [(0.5, False)]]
    expected = []
    for row in rows:
        wrong = [value for value, right in row if not right]
        steps = [(0.0, bool(wrong)), *row]
        losses = []
        for t, (value, right) in enumerate(steps):
            if right:
                previous_values = [v for v, r in steps[:t] if r or v == 0.0]
                total = sum(map(math.exp, [*previous_values, value, *(w + zeta for w in wrong)]))
                losses.append(-math.log(math.exp(value) / total))
        expected.append(sum(losses) / len(losses))
    width = max(map(len, rows))
    logit_BK = torch.full((len(rows), width), 9.0, dtype=torch.float64, requires_grad=True)
    label_BK = torch.full((len(rows), width), IGNORE_LABEL)
    with torch.no_grad():
        for b, row in enumerate(rows):
            for k, (value, right) in enumerate(row):
                logit_BK[b, k] = value
                label_BK[b, k] = float(right)
    loss = pqm_loss(logit_BK, label_BK, label_BK != IGNORE_LABEL, zeta=zeta)
    assert loss.item() == pytest.approx(math.fsum(expected) / len(rows), abs=1e-9)
    loss.backward()
    assert logit_BK.grad.isfinite().all() and not logit_BK.grad[label_BK == IGNORE_LABEL].any()


def pairwise_auc(items: list[tuple[float, bool]]) -> float | None:
    """Return the fraction of pairs in which the right item scores higher; ties count half."""
    wins = [
        1.0 if right > wrong else 0.5 if right == wrong else 0.0
        for right, is_right in items
        for wrong, is_wrong_right in items
        if is_right and not is_wrong_right
    ]
    return math.fsum(wins) / len(wins) if wins else None


def heldout_case(seed: int) -> tuple[transformers.EvalPrediction, list[PrmRow]]:
    """Return random logits with many ties, padded labels, some of them soft, and their rows."""
    rng = random.Random(seed)
    lengths = [rng.randint(1, 5) for _ in range(rng.randint(2, 12))]
    labels = np.full((len(lengths), max(lengths)), IGNORE_LABEL)
    logits = np.full(labels.shape, rng.choice([IGNORE_LABEL, 50.0]))  # the value has no effect
    rows = []
    for index, length in enumerate(lengths):
        labels[index, :length] = [rng.choice([0, 0.25, 0.5, 1]) for _ in range(length)]
        logits[index, :length] = [rng.randint(-2, 2) for _ in range(length)]
        rows.append(
            PrmRow(
                solution=EncodedSolution(
                    input_ids=np.zeros(length, np.int32),
                    prompt_length=0,
                    score_positions=[],
                    n_steps=0,
                ),
                length=length,
                label_positions=range(length),
                labels=[],
                problem=rng.choice("abc"),
                is_correct=rng.random() < 0.5,
            )
        )
    return transformers.EvalPrediction(logits, labels), rows


@pytest.mark.parametrize("seed", range(40))
def test_heldout_metrics_are_counts_over_pairs(seed: int) -> None:
    prediction, rows = heldout_case(seed)
    steps = [
        (float(logit), bool(label >= 0.5))
        for row_logits, row_labels in zip(prediction.predictions, prediction.label_ids, strict=True)
        for logit, label in zip(row_logits, row_labels, strict=True)
        if label != IGNORE_LABEL
    ]
    means = [
        math.fsum(1 / (1 + math.exp(-logit)) for logit in row_logits[: row.length]) / row.length
        for row_logits, row in zip(prediction.predictions, rows, strict=True)
    ]
    problem_aucs = [
        pairwise_auc(
            [
                (round(mean, 9), row.is_correct)
                for mean, row in zip(means, rows, strict=True)
                if row.problem == problem
            ]
        )
        for problem in "abc"
    ]
    mixed = [value for value in problem_aucs if value is not None]
    has_interval = len({row.problem for row in rows}) > 1
    expected = {
        "accuracy": sum((logit >= 0) == is_right for logit, is_right in steps) / len(steps),
        "auc": pairwise_auc(steps) if has_interval else None,
        "ranking_auc": math.fsum(mixed) / len(mixed) if len(mixed) > 1 else None,
    }
    metrics = prm._heldout_metrics(prediction, rows)
    bounds = [metrics.pop(name) for name in ("auc_low", "auc_high") if name in metrics]
    assert metrics == pytest.approx({k: v for k, v in expected.items() if v is not None})
    assert len(bounds) == 2 * (0 < metrics.get("auc", 0) < 1)
    assert not bounds or bounds[0] <= metrics["auc"] <= bounds[1]


def test_one_heldout_problem_has_no_auc() -> None:
    prediction, rows = heldout_case(3)
    metrics = prm._heldout_metrics(prediction, [replace(row, problem="a") for row in rows])
    assert metrics.keys() == {"accuracy"}
    assert "accuracy 0." in _format_heldout(metrics)
    assert _format_heldout(metrics).endswith("(too few problems for auc and ranking_auc)")


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_heldout_steps_of_one_class_have_no_auc(label: float) -> None:
    prediction, rows = heldout_case(3)
    is_labelled = prediction.label_ids != IGNORE_LABEL
    prediction.label_ids[is_labelled] = label
    metrics = prm._heldout_metrics(prediction, rows)
    assert "accuracy" in metrics and not metrics.keys() & {"auc", "auc_low", "auc_high"}


def test_rewards_that_are_nan_end_the_training() -> None:
    prediction, rows = heldout_case(3)
    prediction.predictions[0, 0] = math.nan
    with pytest.raises(InputError, match=r"returns NaN for 1 of \d+ steps of held-out problems"):
        prm._heldout_metrics(prediction, rows)


@pytest.mark.parametrize("loss", ["pqm", "implicit"])
def test_other_losses_learn(loss: str, policy: Path, data: Path, tmp_path: Path) -> None:
    options = {"loss": loss} | ({"beta": 0.5} if loss == "implicit" else {})
    report = prm.train_prm(config(policy, data, tmp_path / "prm", epochs=8, **options))
    assert report.held_out["ranking_auc"] > 0.9
    card = (tmp_path / "prm/README.md").read_text()
    assert ("--prm prm --reference" in card) == (loss == "implicit")


def test_the_implicit_loss_is_the_cross_entropy_of_the_outcomes(
    policy: Path, data: Path, tmp_path: Path
) -> None:
    """The loss is -[y log σ(β Σ log π/π_ref) + (1 - y) log(1 - σ(…))]."""
    run_config = config(policy, data, tmp_path / "prm", loss="implicit", beta=0.3)
    rows = prepare_data(policy, data).train[:6]
    reference = transformers.AutoModelForCausalLM.from_pretrained(policy).eval()
    torch.manual_seed(1)
    net = transformers.AutoModelForCausalLM.from_pretrained(policy).eval()
    for parameter in net.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    expected = []
    log_ratios = []
    for row in rows:
        ids = torch.tensor(row.solution.input_ids.tolist())
        with torch.no_grad():
            logprobs = [
                model(ids[None]).logits[0, :-1].log_softmax(-1) for model in (net, reference)
            ]
        ratio = (logprobs[0] - logprobs[1]).gather(-1, ids[1:, None])
        ratio = ratio[row.solution.prompt_length - 1 :, 0].sum()
        p = torch.sigmoid(0.3 * ratio)
        y = row.labels[-1]
        expected.append(float(-(y * p.log() + (1 - y) * (1 - p).log())))
        log_ratios.append(0.3 * float(ratio))
    arguments = training_arguments(run_config)
    patch_to_return_logprobs(net)
    trainer = prm.ImplicitTrainer(run_config, False, model=net, args=arguments)
    batch = {k: v.to(arguments.device) for k, v in collate_solutions(rows, 0).items()}
    logits = trainer.logits(net, batch)
    is_labelled = batch["labels"] != IGNORE_LABEL
    last = is_labelled.sum(-1) - 1
    assert logits.gather(1, last[:, None])[:, 0].tolist() == pytest.approx(log_ratios, abs=1e-4)
    loss = trainer.loss(logits, batch["labels"], is_labelled)
    assert loss.item() == pytest.approx(math.fsum(expected) / len(rows), abs=1e-5)


@pytest.mark.parametrize("copies_weights", [True, False])
def test_the_implicit_rewards_of_the_reference_are_zero_in_bfloat16(
    copies_weights: bool,
    policy: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A single process on a CPU copies the weights; GPUs and several processes use autocast."""
    for module in ("trainer", "reference_model"):
        name = f"fsdpo_train.trainer.{module}.uses_bfloat16_weights"
        monkeypatch.setattr(name, lambda *_: copies_weights)
    run_config = config(policy, data, tmp_path / "prm", loss="implicit", dtype="bfloat16")
    net = transformers.AutoModelForCausalLM.from_pretrained(policy).eval()
    patch_to_return_logprobs(net)
    arguments = training_arguments(run_config)
    trainer = prm.ImplicitTrainer(run_config, False, model=net, args=arguments)
    rows = prepare_data(policy, data).train[:6]
    batch = {k: v.to(arguments.device) for k, v in collate_solutions(rows, 0).items()}
    with torch.no_grad(), trainer.compute_context(), trainer.accelerator.autocast():
        logits = trainer.logits(net, batch)
    assert logits.abs().max() == 0
