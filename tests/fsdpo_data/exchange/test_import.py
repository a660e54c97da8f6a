"""Imports: other people's step labels become rows to learn from, or are set aside with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from paired_data import paired_dataset

from fsdpo_data.core.errors import InputError
from fsdpo_data.exchange.export import export
from fsdpo_data.exchange.stepwise import READERS, Imported, import_rows, quarantine


def imported(source: Path, name: str, out: Path) -> tuple[Imported, list[dict[str, Any]]]:
    found = import_rows(source, name, out)
    return found, lines(out)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", [name for name in READERS if name != "step-dpo-10k"])
def test_what_is_exported_comes_back(tmp_path: Path, name: str) -> None:
    dataset = paired_dataset(tmp_path)
    file = export(dataset, name, tmp_path / "export").file
    found, rows = imported(file, name, tmp_path / "rows.jsonl")
    solutions = pl.read_parquet(dataset / "solutions/*.parquet").to_dicts()
    assert found.read == found.rows == len(solutions) and not found.set_aside
    for row, solution in zip(rows, solutions, strict=True):
        # ProcessBench says nothing of the steps after the first wrong one.
        known = 1 if name == "processbench" and not solution["labels"][0] else 2
        assert row["labels"] == solution["labels"][:known]
        assert row["prompt"] == solution["prompt"]
        assert "".join(row["completions"]) == "".join(solution["completions"][:known]).rstrip()


def test_math_shepherd_as_published(shared: Path, tmp_path: Path) -> None:
    source = shared / "data/stepwise/openr/samples_math-shepherd.jsonl"
    found, rows = imported(source, "math-shepherd", tmp_path / "rows.jsonl")
    assert found.read == found.rows == 7
    first = rows[0]
    assert first["problem"].endswith("than clarinet lessons in a year?")
    assert first["completions"][0].startswith("Step 1: Janet spends 3 hours + 5 hours")
    assert first["completions"][-1].endswith("The answer is: 13520")
    assert not any("ки" in step for row in rows for step in row["completions"])
    tags = [row["input"].count("ки") for row in lines(source)]
    assert [len(row["labels"]) for row in rows] == tags
    assert not any(row["labels"][-1] for row in rows)  # all seven end wrong


def test_prm800k_as_published(shared: Path, tmp_path: Path) -> None:
    source = shared / "data/stepwise/openr/samples_prm800k.jsonl"
    found, rows = imported(source, "prm800k", tmp_path / "rows.jsonl")
    assert found.read == 6 and not found.set_aside
    published = lines(source)
    rated = sum(
        each["rating"] is not None
        for row in published
        for step in row["label"]["steps"]
        for each in step["completions"] or []
    )
    followed = sum(
        step["chosen_completion"] is not None for row in published for step in row["label"]["steps"]
    )
    ends = sum(
        row["label"]["steps"][-1]["chosen_completion"] is not None
        or row["label"]["steps"][-1]["human_completion"] is not None
        for row in published
    )
    assert found.rows == rated - followed + ends
    assert {rating for row in rows for rating in row["ratings"]} == {-1, 0, 1}
    assert all(
        label == (rating >= 0)
        for row in rows
        for label, rating in zip(row["labels"], row["ratings"], strict=True)
    )
    assert rows[0]["completions"][0].startswith("Let's call the price of a pencil p")
    assert rows[0]["answer"] == "29"


@pytest.mark.parametrize(("file", "count"), [("gsm8k", 400), ("math", 1000)])
def test_processbench_as_published(shared: Path, tmp_path: Path, file: str, count: int) -> None:
    source = shared / f"data/stepwise/processbench/{file}.json"
    found, rows = imported(source, "processbench", tmp_path / "rows.jsonl")
    assert found.read == found.rows == count
    published = json.loads(source.read_text(encoding="utf-8"))
    for row, told in zip(rows, published, strict=True):
        first = row["labels"].index(False) if False in row["labels"] else -1
        assert first == told["label"]


def test_step_dpo_exports_come_back_to_the_step_that_differs(tmp_path: Path) -> None:
    dataset = paired_dataset(tmp_path)
    file = export(dataset, "step-dpo-10k", tmp_path / "export").file
    found, rows = imported(file, "step-dpo-10k", tmp_path / "rows.jsonl")
    pairs = pl.read_parquet(dataset / "pairs/*.parquet").to_dicts()
    assert found.rows == 2 * found.read == 2 * len(pairs)
    for pair, chosen, rejected in zip(pairs, rows[::2], rows[1::2], strict=True):
        assert chosen["prompt"] == rejected["prompt"] == pair["prompt"]
        assert chosen["completions"] == [pair["chosen_steps"][0].rstrip()]
        assert rejected["completions"] == [pair["rejected_steps"][0].rstrip()]
        assert (chosen["labels"], rejected["labels"]) == ([True], [False])


@pytest.mark.parametrize(
    ("initial", "steps"),
    [
        ("Let's think step by step. \nStep 1:", ["Let's think step by step. \nStep 1: x"]),
        ("Let's think step by step. Step 1:", ["Let's think step by step. Step 1: x"]),
        ("Hm.\nStep 1: a\nb\nStep 2:", ["Hm.\nStep 1: a\nb\n", "Step 2: x"]),
        ("Step 1: a\n", ["Step 1: a\n", "x"]),
        ("", ["x"]),
    ],
)
def test_step_dpo_prefixes_as_published(tmp_path: Path, initial: str, steps: list[str]) -> None:
    """The forms that its prefixes have; the texts after the step that differs are not read."""
    row = {"dataset": "MATH_Rephrased", "prompt": "q", "initial_reason_steps": initial,
           "chosen": " x", "rejected": " y ", "full_chosen": " x\nz", "full_rejected": " y",
           "answer": "1"}  # fmt: skip
    source = write(tmp_path / "source.jsonl", row, {**row, "rejected": " \n"})
    found, (right, wrong) = imported(source, "step-dpo-10k", tmp_path / "rows.jsonl")
    assert right["completions"] == steps
    assert wrong["completions"] == [*steps[:-1], steps[-1].replace("x", "y")]
    assert right["labels"] == [True] * len(steps)
    assert wrong["labels"] == [*right["labels"][:-1], False]
    assert right["problem"] == "q" and right["answer"] == "1"
    assert [each["reason"] for each in found.set_aside] == ["rejected is empty"]


def test_step_dpo_texts_as_published(shared: Path, tmp_path: Path) -> None:
    """The rows at hand lack their prefixes; with the shortest, each text is one step."""
    rows = lines(shared / "data/train/math_step_dpo_10k/sample_10_rows_3_fields.jsonl")
    initial = {"initial_reason_steps": "Let's think step by step. \nStep 1:", "answer": "?"}
    source = write(tmp_path / "source.jsonl", *({**row, **initial} for row in rows))
    found, made = imported(source, "step-dpo-10k", tmp_path / "rows.jsonl")
    assert found.rows == 20 and found.steps == {True: 10, False: 10}
    for row, right, wrong in zip(rows, made[::2], made[1::2], strict=True):
        for side, one in (("chosen", right), ("rejected", wrong)):
            assert one["completions"] == [(initial["initial_reason_steps"] + row[side]).strip()]


def test_trl_rows_stay_as_they_are(shared: Path, tmp_path: Path) -> None:
    source = shared / "data/stepwise/trl/zen_standard_stepwise_supervision.jsonl"
    found, rows = imported(source, "trl-stepwise", tmp_path / "rows.jsonl")
    assert rows == lines(source)
    assert found.rows == 19


def test_trl_rows_may_say_how_sure_a_label_is(tmp_path: Path) -> None:
    row = {"prompt": "p", "completions": ["a", "b"], "labels": [0.625, False]}
    found, rows = imported(write(tmp_path / "s.jsonl", row), "trl-stepwise", tmp_path / "r.jsonl")
    assert rows == [row] and found.steps == {True: 1, False: 1}


def test_what_cannot_be_read_is_set_aside(tmp_path: Path) -> None:
    good = {"input": "q Step 1: 1 + 1 ки", "label": "q Step 1: 1 + 1 +", "task": "t"}
    bad = [
        {**good, "label": "q Step 1: 1 + 2 +"},
        {**good, "label": "q Step 1: 1 + 1 ?"},
        {**good, "input": "q 1 ки", "label": "q 1 +"},
        {**good, "input": good["input"] + " more", "label": good["label"] + " more"},
        {"input": 5, "label": ""},
        {"text": "x"},
        ["no", "object"],
    ]
    source = write(tmp_path / "source.jsonl", good, *bad)
    out = tmp_path / "rows.jsonl"
    found, rows = imported(source, "math-shepherd", out)
    assert len(rows) == 1 and rows[0]["labels"] == [True]
    aside = lines(quarantine(out))
    assert [row["row"] for row in aside] == [2, 3, 4, 5, 6, 7, 8]
    assert [row["reason"] for row in aside[:4]] == [
        "input and label are not the same text",
        "input and label are not the same text",
        'no "Step 1:" ends the problem',
        "there is text after the last mark",
    ]
    assert found.read == 8


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        (
            "trl-stepwise",
            {"prompt": "p", "completions": ["a"], "labels": []},
            "1 completions and 0",
        ),
        ("trl-stepwise", {"prompt": "p", "completions": ["a"], "labels": [1.7]}, "label 1.7"),
        ("processbench", {"problem": "p", "steps": ["a"], "label": 1}, "label 1 of 1 steps"),
        ("prm800k", {"question": {}, "label": {"steps": []}}, "KeyError: 'problem'"),
    ],
)
def test_a_file_with_nothing_of_the_form(
    tmp_path: Path, name: str, row: dict[str, Any], reason: str
) -> None:
    source = write(tmp_path / "source.jsonl", row)
    with pytest.raises(InputError, match=f"none of its 1 rows is of the form {name}.*{reason}"):
        import_rows(source, name, tmp_path / "rows.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["source.jsonl"]


def test_refusals(tmp_path: Path) -> None:
    source = write(tmp_path / "source.jsonl", {})
    with pytest.raises(InputError, match="source = 'csv': expected one of trl-stepwise, math"):
        import_rows(source, "csv", tmp_path / "rows.jsonl")
    with pytest.raises(InputError, match=r"expected a new file ending in \.jsonl"):
        import_rows(source, "prm800k", source)
