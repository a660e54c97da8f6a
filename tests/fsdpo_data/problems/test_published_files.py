"""Tests with published files: every row becomes a problem, or is quarantined."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.problems.hub_datasets import DATASETS
from fsdpo_data.problems.load import ProblemSet, load_problems, problems_digest


def test_gsm8k_as_published(shared: Path) -> None:
    path = shared / "data/train/gsm8k/train.jsonl"
    problem_set = load_problems([str(path)])
    assert len(problem_set.problems) == 7473
    assert problem_set.quarantined_rows == problem_set.warnings == []
    assert problem_set.source_refs[0].revision == f"sha256:{file_sha256(path)}"
    golds = [problem.answer for problem in problem_set.problems]
    assert sum("," in gold for gold in golds) == 79
    assert sum(gold.startswith("-") for gold in golds) == 3
    assert (
        sum("\u2028" in json.dumps(p.to_row(), ensure_ascii=False) for p in problem_set.problems)
        == 1
    )
    assert digest_of(problem_set) == DATASETS["gsm8k"].digests["train"]


def test_math_as_published(shared: Path) -> None:
    problem_set = load_problems([str(shared / "data/train/math")])
    assert len(problem_set.problems) == 7498
    assert [
        (Path(row.source).name, row.row, row.reason) for row in problem_set.quarantined_rows
    ] == [
        ("number_theory.jsonl", 850, "the solution's \\boxed is empty"),
        ("number_theory.jsonl", 852, "the solution's \\boxed is empty"),
    ]
    algebra = [problem for problem in problem_set.problems if problem.source == "algebra.jsonl"]
    assert [algebra[line - 1].answer for line in (1656, 1708)] == ["2", "9"]  # \boxed 2
    assert sum(problem.metadata["level"] == "Level ?" for problem in problem_set.problems) == 2
    assert digest_of(problem_set) == DATASETS["math"].digests["train"]


def digest_of(problem_set: ProblemSet) -> str:
    return problems_digest([problem.id for problem in problem_set.problems])


@pytest.mark.parametrize(
    ("file", "problems", "aside_rows"),
    [
        ("gsm8k/test.jsonl", 1319, []),
        ("math/test.jsonl", 5000, []),
        ("math500/test.jsonl", 500, []),
        ("ocw/test.jsonl", 272, []),
        ("ocw/variants/qwen_minerva_math_test.jsonl", 272, []),
        ("gk2023/test.jsonl", 383, [168, 193]),  # no answer in the source
        ("asdiv/test.jsonl", 2214, [677]),  # twice the same
        ("gsm_ic2/base/gsm8k_validation.jsonl", 1000, []),
        # Several answers, as a list.
        ("math/annotations/mario_eval_math_testset_annotation.json", 4996, [334, 2717, 2913, 2937]),
    ],
)
def test_benchmarks_of_these_forms(
    shared: Path, file: str, problems: int, aside_rows: list[int]
) -> None:
    problem_set = load_problems([str(shared / "data/benchmarks" / file)], split="test")
    assert len(problem_set.problems) == problems
    assert [row.row for row in problem_set.quarantined_rows] == aside_rows


def test_three_writers_of_gsm8k_agree(shared: Path) -> None:
    folder = shared / "data/benchmarks/gsm8k"
    files = ["test.jsonl", "variants/deepseek_math_test.jsonl",
             "variants/step_dpo_GSM8K_test_data.jsonl"]  # fmt: skip
    digests = {digest_of(load_problems([str(folder / file)], split="test")) for file in files}
    assert digests == {DATASETS["gsm8k"].digests["test"]}
    math_test = load_problems([str(shared / "data/benchmarks/math/test.jsonl")], split="test")
    assert digest_of(math_test) == DATASETS["math"].digests["test"]


def test_step_dpo_rows_without_their_answer_are_refused(shared: Path) -> None:
    path = shared / "data/train/math_step_dpo_10k/sample_10_rows_3_fields.jsonl"
    with pytest.raises(InputError, match=r"none of its 10 rows .*: chosen, prompt, rejected\."):
        load_problems([str(path)])
