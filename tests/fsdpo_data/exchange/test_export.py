"""Tests of exports: each format keeps the content of the dataset."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes import FixedSampler
from helpers import (
    fixed_sampler,
    label_with_rollouts,
    problem_set,
    sample_settings,
    small_build,
)
from made_runs import written
from paired_data import paired_dataset
from recorded_imports import import_file

from fsdpo_data.api import open_dataset
from fsdpo_data.core.errors import InputError, SchemaError
from fsdpo_data.core.sampling import Completion, FinishReason, SamplingSpec
from fsdpo_data.exchange.export import export
from fsdpo_data.exchange.export_formats import (
    NotExportableError,
    compute_openrlhf_margin,
    convert_to_math_shepherd,
    convert_to_step_dpo,
    unique_rows,
)
from fsdpo_data.exchange.formats import export_formats


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paired_dataset(tmp_path_factory.mktemp("export"))


def export_rows(dataset: Path, name: str, out: Path) -> list[dict[str, Any]]:
    file = export(dataset, name, out).file
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        return json.loads(text)
    return [json.loads(line) for line in text.splitlines()]


def rows_of(dataset: Path, config: str) -> list[dict[str, Any]]:
    return pl.read_parquet(dataset / config / "*.parquet").to_dicts()


@pytest.mark.parametrize("name", export_formats())
def test_every_row_arrives(dataset: Path, tmp_path: Path, name: str) -> None:
    rows = export_rows(dataset, name, tmp_path / "out")
    expected = len(rows_of(dataset, export_formats()[name].config))
    assert len(rows) == (expected // 2 if name == "trl-sft" else expected)
    assert len({tuple(row) for row in rows}) == 1  # the same columns in the same order


def test_trainer_formats_have_complete_texts(dataset: Path, tmp_path: Path) -> None:
    pairs = rows_of(dataset, "pairs")
    columns = ("prompt", "chosen", "rejected")
    trl = export_rows(dataset, "trl-preference", tmp_path / "trl")
    assert trl == [{name: pair[name] for name in columns} for pair in pairs]
    for row, pair in zip(export_rows(dataset, "openrlhf", tmp_path / "rlhf"), pairs, strict=True):
        means = [sum(pair[f"{side}_rewards"]) / 2 for side in ("chosen", "rejected")]
        assert row["margin"] == pytest.approx(means[0] - means[1])
    stepwise = export_rows(dataset, "trl-stepwise", tmp_path / "stepwise")
    for row, solution in zip(stepwise, rows_of(dataset, "solutions"), strict=True):
        assert "".join(row["completions"]) == "".join(solution["completions"])
        assert row["labels"] == [solution["outcome"] == "correct"] * 2


@pytest.mark.parametrize("name", ["trl-sft", "trl-unpaired"])
def test_truncated_solutions_are_not_exported_to_trainers_that_add_an_end(
    tmp_path: Path, name: str
) -> None:
    source = problem_set(1)
    texts = [f"Step 1: Way {number}. The answer is: $42$.\nStep 2" for number in range(2)]

    class Cuts(FixedSampler):
        def complete_texts(
            self, prompts: Sequence[str], spec: SamplingSpec
        ) -> list[list[Completion]]:
            reasons: tuple[FinishReason, ...] = ("stop", "length")
            completions = [
                Completion(text, reason, 9) for text, reason in zip(texts, reasons, strict=True)
            ]
            return [completions for _ in prompts]

    run = tmp_path / "run"
    small_build(run, source, sampling=sample_settings(n=2), make_sampler=lambda: Cuts({}))
    assert [row["outcome"] for row in rows_of(run, "solutions")] == ["correct"] * 2
    result = export(run, name, tmp_path / "out")
    lines = result.file.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["completion"] for line in lines] == texts[:1]
    assert result.left_out.total() == 1


@pytest.mark.parametrize("name", ["trl-sft", "trl-unpaired"])
def test_solutions_that_stop_inside_their_thinking_are_not_exported(
    tmp_path: Path, name: str
) -> None:
    """A trainer adds an end of the turn after them."""
    texts = ["<think>So 42.</think>The answer is: 42", "<think>So it is \\boxed{42}."]
    row = {"question": "20 + 22?", "answer": "42", "responses": texts}
    file = written(tmp_path / "rows.jsonl", [row])
    import_file(file, tmp_path / "in", grade_thinking=True)
    assert [row["outcome"] for row in rows_of(tmp_path / "in", "solutions")] == ["correct"] * 2
    result = export(tmp_path / "in", name, tmp_path / "out")
    lines = result.file.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["completion"] for line in lines] == texts[:1]
    [reason] = result.left_out
    assert reason.startswith("the solution stops inside its thinking")


def test_the_margin_has_the_aggregate_that_chose_the_pair() -> None:
    row = {"chosen_rewards": [0.1, 0.9], "rejected_rewards": [0.8, 0.2], "aggregate": "last"}
    assert compute_openrlhf_margin(row)["margin"] == pytest.approx(0.7)
    assert compute_openrlhf_margin({**row, "aggregate": "mean"})["margin"] == pytest.approx(0)


def test_an_export_reads_the_aggregate_of_the_pairs(tmp_path: Path) -> None:
    scored = open_dataset(paired_dataset(tmp_path))
    pairs = scored.pair(out=tmp_path / "last", aggregate="last").path
    rows = export_rows(pairs, "openrlhf", tmp_path / "out")
    for row, pair in zip(rows, rows_of(pairs, "pairs"), strict=True):
        last = [pair[f"{side}_rewards"][-1] for side in ("chosen", "rejected")]
        assert row["margin"] == pytest.approx(last[0] - last[1])


def test_monte_carlo_labels_are_exported_in_place_of_outcomes(tmp_path: Path) -> None:
    source = problem_set(1)
    wrong_answer = "Step 1: 20 + 22 = 42.\nStep 2: The answer is: 43"
    small_build(
        tmp_path / "run", source, make_sampler=lambda: fixed_sampler(source, (wrong_answer,) * 4)
    )
    label_with_rollouts(tmp_path / "run", tmp_path / "labelled")
    solution = rows_of(tmp_path / "labelled", "solutions")[0]
    assert solution["rollouts"] == [{"n": 4, "n_correct": 3}, {"n": 1, "n_correct": 0}]
    assert (solution["outcome"], solution["labels"]) == ("incorrect", [False, False])

    def first_row(name: str) -> dict[str, Any]:
        return export_rows(tmp_path / "labelled", name, tmp_path / name)[0]

    assert first_row("trl-stepwise")["labels"] == [True, False]
    assert first_row("processbench")["label"] == 1
    assert [line[-1] for line in first_row("math-shepherd")["label"].splitlines()] == ["+", "-"]
    ratings = [step["completions"][0]["rating"] for step in first_row("prm800k")["label"]["steps"]]
    assert ratings == [1, -1]


def test_what_nobody_is_to_blame_for_is_no_label(tmp_path: Path) -> None:
    small_build(tmp_path / "run", problem_set(2, answer=""))
    outcomes = {row["outcome"] for row in rows_of(tmp_path / "run", "solutions")}
    assert outcomes == {"gold_unparsed"}
    for name in ("trl-unpaired", "trl-stepwise", "math-shepherd", "prm800k", "processbench"):
        assert export_rows(tmp_path / "run", name, tmp_path / name) == []


def test_llama_factory_finds_its_columns(dataset: Path, tmp_path: Path) -> None:
    """Rename columns as the loader of LLaMA-Factory does with ``dataset_info.json``."""
    question = rows_of(dataset, "problems")[0]["question"]
    (alpaca, *_) = export_rows(dataset, "llama-factory-alpaca", tmp_path / "a")
    info = json.loads((tmp_path / "a/dataset_info.json").read_text())["fsdpo"]
    assert info["ranking"] and (tmp_path / "a" / info["file_name"]).exists()
    assert {alpaca[column] == question for column in [info["columns"]["prompt"]]} == {True}
    assert set(info["columns"].values()) == set(alpaca)
    (sharegpt, *_) = export_rows(dataset, "llama-factory-sharegpt", tmp_path / "s")
    info = json.loads((tmp_path / "s/dataset_info.json").read_text())["fsdpo"]
    assert set(info["columns"].values()) == set(sharegpt)
    tags = info["tags"]
    (turn,) = sharegpt["conversations"]
    assert turn == {tags["role_tag"]: tags["user_tag"], tags["content_tag"]: question}
    assert sharegpt["chosen"][tags["role_tag"]] == tags["assistant_tag"]


def shape(value: Any) -> Any:
    """Return the nested columns and types of a row."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


@pytest.mark.parametrize(
    ("name", "sample"),
    [
        ("math-shepherd", "openr/samples_math-shepherd.jsonl"),
        ("processbench", "processbench/gsm8k.json"),
        ("trl-stepwise", "trl/zen_standard_stepwise_supervision.jsonl"),
    ],
)
def test_rows_have_the_shape_of_published_ones(
    dataset: Path, tmp_path: Path, shared: Path, name: str, sample: str
) -> None:
    text = (shared / "data/stepwise" / sample).read_text(encoding="utf-8")
    published = json.loads(text)[0] if sample.endswith(".json") else json.loads(text.split("\n")[0])
    assert shape(export_rows(dataset, name, tmp_path / "out")[0]) == shape(published)


def test_prm800k_rows_have_the_shape_of_published_ones(
    dataset: Path, tmp_path: Path, shared: Path
) -> None:
    file = shared / "data/stepwise/openr/samples_prm800k.jsonl"
    published = shape(json.loads(file.read_text(encoding="utf-8").splitlines()[0]))
    ours = shape(export_rows(dataset, "prm800k", tmp_path / "out")[0])
    assert set(ours) == set(published) and set(ours["label"]) == set(published["label"])
    assert ours["question"] == published["question"]
    assert ours["label"]["steps"] == published["label"]["steps"]


def test_math_shepherd_texts_align(dataset: Path, tmp_path: Path) -> None:
    for row in export_rows(dataset, "math-shepherd", tmp_path / "out"):
        marks = row["input"].split("ки")
        assert len(marks) == 3
        position = 0
        for part in marks[:-1]:
            assert row["label"][position:].startswith(part)
            position += len(part) + 1
            assert row["label"][position - 1] in "+-"


def test_rows_without_words_for_them_are_counted() -> None:
    solution = {"question": "q", "completions": ["a ки b"], "labels": [True], "source": "s"}
    with pytest.raises(NotExportableError, match="the format's step tag"):
        convert_to_math_shepherd(solution)
    marked_solution = {
        **solution,
        "question": "After Step 1: add 2. What is it?",
        "completions": ["a"],
    }
    with pytest.raises(NotExportableError, match="marks the first step"):
        convert_to_math_shepherd(marked_solution)
    # An import would not find the end of the question.
    for step in ("Step 1: As in Step 1: of the hint", "In Step 1: of the hint"):
        with pytest.raises(NotExportableError, match="marks the first step"):
            convert_to_math_shepherd({**solution, "completions": [step]})
    assert convert_to_math_shepherd({**solution, "completions": ["Step 1: a"]})
    pair = {"chosen_steps": ["a", "b"], "rejected_steps": ["a"]}
    with pytest.raises(NotExportableError, match="is a prefix of the other"):
        convert_to_step_dpo(pair)


def test_step_dpo_rows_share_their_first_steps(dataset: Path, tmp_path: Path) -> None:
    pair = {
        **{"source": "s", "question": "q", "gold": "1", "chosen": "a\nb\nc", "rejected": "a\nd"},
        **{"chosen_steps": ["a\n", "b\n", "c"], "rejected_steps": ["a\n", "d"]},
    }
    row = convert_to_step_dpo(pair)
    assert (row["initial_reason_steps"], row["chosen"], row["rejected"]) == ("a\n", "b", "d")
    assert (row["full_chosen"], row["full_rejected"]) == ("b\nc", "d")
    spaced = {**pair, "rejected": "a\n\nd", "rejected_steps": ["a\n\n", "d"]}
    assert convert_to_step_dpo(spaced) == row  # white space is no difference
    columns = ["dataset", "prompt", "initial_reason_steps", "chosen", "rejected",
               "full_chosen", "full_rejected", "answer"]  # fmt: skip
    row = export_rows(dataset, "step-dpo-10k", tmp_path / "out")[0]
    assert list(row) == columns
    assert row["initial_reason_steps"] == "Step 1:" and row["chosen"].startswith(" Way ")
    assert row["full_chosen"].startswith(row["chosen"] + "\nStep 2: ")


def test_equal_solutions_are_learnt_once() -> None:
    rows = [{"prompt": p, "completion": c} for p, c in ("ax", "ax", "ay", "bx", "bx")]
    assert [row["prompt"] + row["completion"] for row in unique_rows(rows)] == ["ax", "ay", "bx"]


def test_what_a_stopped_export_has_left_is_written_again(dataset: Path, tmp_path: Path) -> None:
    out, name = tmp_path / "out", "llama-factory-sharegpt"
    rows = export(dataset, name, out).file
    contents = {file.name: file.read_bytes() for file in out.iterdir()}
    rows.rename(rows.with_name(rows.name + ".tmp"))
    export(dataset, name, out)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == contents
    rows.unlink()
    (out / "dataset_info.json").write_text("{}")  # somebody else's
    with pytest.raises(InputError, match="not empty"):
        export(dataset, name, out)


def test_refusals(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="to = 'alpaca': expected one of trl-preference"):
        export(dataset, "alpaca", tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="not empty"):
        export(dataset, "prm800k", tmp_path)
    small_build(tmp_path / "run")
    with pytest.raises(InputError, match="has no pairs, which the format trl-preference needs"):
        export(tmp_path / "run", "trl-preference", tmp_path / "out")
    torn = shutil.copytree(dataset, tmp_path / "torn")
    next((torn / "pairs").iterdir()).write_bytes(b"")
    with pytest.raises(SchemaError, match="changed since it was sealed"):
        export(torn, "trl-preference", tmp_path / "out")
    assert not (tmp_path / "out").exists()
