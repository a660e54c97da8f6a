"""MR-MATH with the scores of two reward models: the recorded numbers, and the table of the page."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from fsdpo_data import grade
from fsdpo_data.core.row_files import read_records

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "evidence"))

import reasoneval  # noqa: E402

RESULTS = list(csv.DictReader(reasoneval.RESULTS.read_text(encoding="utf-8").splitlines()))


def test_the_joined_import_gives_the_recorded_numbers(shared: Path, tmp_path: Path) -> None:
    numbers = reasoneval.measure(shared / "data/stepwise/reasoneval", tmp_path)
    assert reasoneval.update_results(numbers) == RESULTS


def test_the_recorded_columns_agree_and_are_on_the_page() -> None:
    published = [row for row in RESULTS if row["authors"]]
    assert len(published) == 16 and all(row["authors"] == row["ours"] for row in published)
    page = (ROOT / "docs/howto/measure-prm.md").read_text(encoding="utf-8")
    assert reasoneval.format_table(RESULTS) in page


def test_two_final_answers_that_the_file_calls_correct_are_wrong(shared: Path) -> None:
    file = shared / "data/stepwise/reasoneval/mr-math_invalid_errors.jsonl"
    rows = [record.fields for record in read_records(file)]
    wrong = [
        row["ground_truth_answer"]
        for row in rows
        if grade(row["ground_truth_answer"], row["model_output"]).status != "correct"
    ]
    assert len(rows) == 159 and wrong == [r"\cot x", r"\cot x"]
    assert {row["model_output_answer_correctness"] for row in rows} == {"correct"}
