"""Report numbers: one registration adds a number to the results and to all reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from bench_runs import config, make_records, write_run
from fsdpo_bench.cli.app import app
from fsdpo_bench.report.render import write_report
from fsdpo_bench.results.numbers import NUMBERS, ReportNumber, number_rows
from fsdpo_bench.results.outcomes import ProblemResult
from typer.testing import CliRunner

from fsdpo_data.core.statistics import Mean, mean_rate


def solved_by_all_samples(results: Sequence[ProblemResult]) -> dict[str, Mean]:
    solved = [float(result.correct_samples == result.graded_samples) for result in results]
    return {"4": mean_rate(solved)}


def test_a_registered_number_is_in_the_results_and_in_every_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NUMBERS, "data", dict(NUMBERS.items()))
    NUMBERS.register(
        ReportNumber(
            name="solved_by_all_at_k",
            title="solved-by-all@{key}",
            compute=solved_by_all_samples,
            format=lambda result: f"{result.correct:g} of {result.n} problems",
        )
    )
    records = make_records({"gsm8k": 30})
    run = write_run(tmp_path / "run", config({"gsm8k": 30}), records)
    task_results = write_report(run).tasks["gsm8k"]
    solved = sum(all(sample["correct"] for sample in record["samples"]) for record in records)
    assert {"avg_at_k", "pass_at_k", "maj_at_k", "solved_by_all_at_k"} <= {*task_results.numbers}
    [row] = [row for row in number_rows(task_results, "page") if row.title == "solved-by-all@4"]
    assert (row.result.correct, row.result.n, row.result.ci95 is None) == (
        *(solved, 30),
        False,
    )
    text = f"{solved} of 30 problems"
    assert f"| GSM8K | solved-by-all@4 | {text} | 30 |" in (run / "report.md").read_text()
    page = (run / "report.html").read_text()
    assert f'<td>solved-by-all@4</td><td class="n">{text}</td>' in page
    printed = CliRunner().invoke(app, ["report", str(run)]).output
    assert "solved-by-all@4" in printed and text in printed


def test_each_output_prints_its_own_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested_numbers = {name: NUMBERS[name] for name in ("avg_at_k", "pass_at_k", "maj_at_k")}
    monkeypatch.setattr(NUMBERS, "data", tested_numbers)
    run = write_run(tmp_path / "run", config({"gsm8k": 5}), make_records({"gsm8k": 5}))
    task_results = write_report(run).tasks["gsm8k"]
    titles = {
        output: [row.title for row in number_rows(task_results, output)]
        for output in ("terminal", "page", "markdown", "hub")
    }
    assert titles["hub"] == ["avg@4"]
    # The accuracy of `sc` is also shown under the name of the metric.
    assert titles["terminal"] == ["avg@4", "maj@2", "maj@4"]
    assert titles["page"] == ["avg@4", "pass@1", "pass@2", "pass@4", "maj@2", "maj@4"]
    assert titles["markdown"] == titles["page"]
