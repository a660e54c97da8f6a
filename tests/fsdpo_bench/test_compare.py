"""Comparison of runs: paired statistics, changed problems and refused inputs."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from bench_runs import config, make_records, write_run
from click import unstyle
from fsdpo_bench.cli.app import app
from fsdpo_bench.results.compare import ComparisonOptions, compare_runs
from typer.testing import CliRunner

from fsdpo_data.answers.grader import GRADER_NAME
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.statistics import mcnemar

TASKS = {"gsm8k": 80, "gsm_ic2": 70}


def two_runs(root: Path, tasks: dict[str, int] = TASKS, **changes: Any) -> tuple[Path, Path]:
    first = write_run(root / "a", config(tasks), make_records(tasks, chance=0.5, seed=1))
    second = write_run(
        root / "b", {**config(tasks), **changes}, make_records(tasks, chance=0.75, seed=2)
    )
    return first, second


def test_counts_and_p_value_are_computed_from_pairs(tmp_path: Path) -> None:
    a, b = (make_records(TASKS, chance=c, seed=s) for c, s in ((0.5, 1), (0.75, 2)))
    compared = compare_runs(
        *two_runs(tmp_path), ComparisonOptions(task="gsm8k", decoder_a="greedy")
    )
    [delta] = compared.deltas
    verdicts = [
        (first["decoded"]["greedy"]["correct"], second["decoded"]["greedy"]["correct"])
        for first, second in zip(a, b, strict=True)
        if first["task"] == "gsm8k"
    ]
    assert delta.only_a == verdicts.count((True, False)) > 0
    assert delta.only_b == verdicts.count((False, True)) > 0
    assert delta.difference == pytest.approx((delta.only_b - delta.only_a) / 80)
    assert delta.ci95[0] < delta.difference < delta.ci95[1]
    assert delta.p == mcnemar([-1] * delta.only_a + [1] * delta.only_b)
    assert len(compared.changed) == delta.only_a + delta.only_b
    for change in compared.changed:
        right = change.answer_a
        wrong = change.answer_b
        right, wrong = (right, wrong) if change.better == "a" else (wrong, right)
        assert right == change.gold != wrong


def test_problems_on_one_base_are_compared_by_base(tmp_path: Path) -> None:
    compared = compare_runs(
        *two_runs(tmp_path), ComparisonOptions(task="gsm_ic2", decoder_a="greedy")
    )
    [delta] = compared.deltas
    assert delta.clusters == 7
    assert delta.p != mcnemar([-1] * delta.only_a + [1] * delta.only_b)
    assert delta.p * 2**7 == pytest.approx(round(delta.p * 2**7))


def test_every_common_decoder_of_every_common_benchmark_is_compared(tmp_path: Path) -> None:
    compared = compare_runs(*two_runs(tmp_path), ComparisonOptions())
    assert {delta.task for delta in compared.deltas} == set(TASKS)
    assert len(compared.deltas) == 10
    assert not compared.notes


def test_two_decoders_of_one_run(tmp_path: Path) -> None:
    first, _ = two_runs(tmp_path)
    [delta, _] = compare_runs(
        first, first, ComparisonOptions(decoder_a="greedy", decoder_b="sc@4")
    ).deltas
    assert (delta.measure_a, delta.measure_b) == ("greedy", "sc@4")
    assert delta.only_b > 0


def test_a_run_against_itself_has_no_difference(tmp_path: Path) -> None:
    first, _ = two_runs(tmp_path)
    for delta in compare_runs(first, first, ComparisonOptions()).deltas:
        assert (delta.difference, delta.p) == (0, 1)
        assert -0.5 < delta.ci95[0] < 0 < delta.ci95[1] == pytest.approx(-delta.ci95[0])


def test_other_problem_sets_are_refused_unless_common_is_given(tmp_path: Path) -> None:
    first, _ = two_runs(tmp_path, {"gsm8k": 30})
    fewer = write_run(tmp_path / "c", config({"gsm8k": 20}), make_records({"gsm8k": 20}))
    with pytest.raises(InputError, match=r"20 problems are in both runs, 10 only in the first"):
        compare_runs(first, fewer, ComparisonOptions())
    compared = compare_runs(first, fewer, ComparisonOptions(common=True))
    assert compared.deltas[0].n == 20
    assert "10 only in the first" in compared.notes[0]
    other = make_records({"gsm8k": 5})
    for record in other:
        record["problem_id"] += "x"
    stranger = write_run(tmp_path / "d", config({"gsm8k": 5}), other)
    with pytest.raises(InputError, match="needs common problems"):
        compare_runs(first, stranger, ComparisonOptions(common=True))


def test_repeated_questions_are_paired_by_occurrence(tmp_path: Path) -> None:
    records = make_records({"asdiv": 4})
    twice = copy.deepcopy(records[0])
    twice["row"] = 4
    twice["decoded"]["greedy"]["correct"] = not records[0]["decoded"]["greedy"]["correct"]
    run = write_run(tmp_path / "a", config({"asdiv": 5}), [*records, twice])
    [delta, *_] = compare_runs(run, run, ComparisonOptions()).deltas
    assert (delta.n, delta.only_a, delta.only_b) == (5, 0, 0)


def test_a_problem_that_does_not_count_in_one_run_counts_in_neither(tmp_path: Path) -> None:
    records = make_records({"gsm8k": 6})
    run = write_run(tmp_path / "a", config({"gsm8k": 6}), records)
    unread = copy.deepcopy(records)
    unread[0]["decoded"]["greedy"].update(correct=None, status="gold_unparsed")
    other = write_run(tmp_path / "b", config({"gsm8k": 6}), unread)
    assert compare_runs(run, other, ComparisonOptions(decoder_a="greedy")).deltas[0].n == 5


def test_other_differences_are_listed_in_notes(tmp_path: Path) -> None:
    template = {"name": "problem@1", "digest": "beeffeed"}
    first, second = two_runs(tmp_path, grader="math@0", template=template)
    notes = compare_runs(first, second, ComparisonOptions()).notes
    assert notes == [
        f"the graders differ: {GRADER_NAME} and math@0",
        "the prompt templates differ: alpaca@1 (feedbeef) and problem@1 (beeffeed)",
    ]


def test_unknown_decoders_benchmarks_and_runs_are_refused(tmp_path: Path) -> None:
    first, second = two_runs(tmp_path)
    with pytest.raises(InputError, match=r"no decoder 'bon@99:min' .* greedy, sc@2"):
        compare_runs(first, second, ComparisonOptions(decoder_a="bon@99:min"))
    with pytest.raises(InputError, match="no common benchmark"):
        compare_runs(first, second, ComparisonOptions(task="math"))
    with pytest.raises(InputError, match="fsdpo-bench run"):
        compare_runs(first, tmp_path, ComparisonOptions())


def test_the_command_prints_the_difference_and_the_changed_problems(tmp_path: Path) -> None:
    first, second = two_runs(tmp_path)
    arguments = ["diff", str(first), str(second), "--show", "2", "--task", "GSM8K"]
    result = CliRunner().invoke(app, [*arguments, "--decoder", "greedy"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    assert "B - A" in result.output
    assert result.output.count("gold '") == 2
    json_result = CliRunner().invoke(app, [*arguments, "--json"])
    deltas = json.loads(json_result.output)["deltas"]
    assert [delta["measure_a"] for delta in deltas] == list(config(TASKS)["decoders"])


def test_avg_at_k_and_pass_at_k_are_paired(tmp_path: Path) -> None:
    a, b = (make_records(TASKS, chance=c, seed=s) for c, s in ((0.5, 1), (0.75, 2)))
    means = {
        (mean.task, mean.measure): mean
        for mean in compare_runs(*two_runs(tmp_path), ComparisonOptions()).means
    }

    def accuracies(records: list[dict[str, Any]], task: str) -> list[float]:
        return [
            sum(sample["correct"] for sample in record["samples"]) / 4
            for record in records
            if record["task"] == task
        ]

    average = means["gsm8k", "avg@4"]
    expected = sum(accuracies(b, "gsm8k")) / 80 - sum(accuracies(a, "gsm8k")) / 80
    assert average.difference == pytest.approx(expected)
    assert average.difference > 0.15
    assert 0 < average.ci95[0] < average.difference < average.ci95[1]
    assert average.p is not None and average.p < 0.001
    assert means["gsm_ic2", "avg@4"].clusters == 7
    assert {"pass@2", "pass@4"} <= {measure for _, measure in means}
    assert ("gsm8k", "pass@1") not in means  # the same as avg@4
    overall = means["mean", "avg@4"]
    assert overall.difference == pytest.approx(
        (average.difference + means["gsm_ic2", "avg@4"].difference) / 2
    )
    assert overall.ci95[0] < overall.difference < overall.ci95[1] and overall.p is None
    assert ("mean", "greedy") in means and ("mean", "bon@4:min") in means


def test_runs_with_other_numbers_of_samples_compare_their_averages(tmp_path: Path) -> None:
    few, many = (
        write_run(
            tmp_path / str(n),
            config({"gsm8k": 30}),
            make_records({"gsm8k": 30}, samples=n),
        )
        for n in (4, 8)
    )
    measures = [mean.measure for mean in compare_runs(few, many, ComparisonOptions()).means]
    samples_and_pass = [name for name in measures if name.startswith(("avg@", "pass@"))]
    assert samples_and_pass == ["avg@4 / avg@8", "pass@2", "pass@4"]


def test_the_command_prints_means_and_their_overall_mean(tmp_path: Path) -> None:
    arguments = ["diff", *map(str, two_runs(tmp_path)), "--show", "0"]
    output = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"}).output
    lines = [line.split() for line in output.splitlines()]
    assert sum("avg@4" in line for line in lines) == 3
    assert any(line[:2] == ["mean", "greedy"] for line in lines)
    json_result = CliRunner().invoke(app, [*arguments, "--json"])
    assert {mean["task"] for mean in json.loads(json_result.output)["means"]} == {*TASKS, "mean"}


def test_a_narrow_terminal_shows_full_names_and_leaves_columns_out(tmp_path: Path) -> None:
    arguments = ["diff", *map(str, two_runs(tmp_path)), "--show", "0"]
    terminal = {"COLUMNS": "80", "FORCE_COLOR": "1"}
    output = unstyle(CliRunner().invoke(app, arguments, env=terminal).output)
    rows = output.splitlines()
    assert "bon@4:min" in output and max(map(len, rows)) <= 80
    assert "left out for the width of the terminal: only A, only B" in output
    wide = unstyle(CliRunner().invoke(app, arguments, env=terminal | {"COLUMNS": "120"}).output)
    assert "only A" in wide and "left out" not in wide


def test_columns_choose_the_table_of_a_comparison(tmp_path: Path) -> None:
    arguments = ["diff", *map(str, two_runs(tmp_path)), "--show", "0", "--decoder", "greedy"]
    chosen = ["--columns", "benchmark,difference", "--columns", "p"]
    output = CliRunner().invoke(app, [*arguments, *chosen]).output
    assert output.splitlines()[0].split() == ["benchmark", "B", "-", "A", "p"]
    failed = CliRunner().invoke(app, [*arguments, "--columns", "pp"])
    assert "expected one of benchmark, decoder" in str(failed.exception)


def test_inspect_says_how_to_see_all_samples(tmp_path: Path) -> None:
    run, _ = two_runs(tmp_path, {"math": 1})
    output = CliRunner().invoke(app, ["inspect", str(run), "--samples", "3"]).output
    assert "\n3 of 4 samples of this problem; --samples 4 shows all\n" in output
    output = CliRunner().invoke(app, ["inspect", str(run), "--samples", "4"]).output
    assert "shows all" not in output


def test_inspect_prints_chosen_columns(tmp_path: Path) -> None:
    run, _ = two_runs(tmp_path, {"math": 6})
    arguments = ["inspect", str(run), "--columns", "row,gold,outcome,subject"]
    lines = CliRunner().invoke(app, [*arguments, "--count", "4"]).output.splitlines()
    assert lines[0].split() == ["row", "gold", "outcome", "subject"]
    assert lines[1].split()[::3] == ["0", "Algebra"] and len(lines) == 6
    assert lines[-1] == "matching problems: 6; --count 6 shows all"
    [row, *_] = CliRunner().invoke(app, [*arguments, "--json"]).output.splitlines()
    assert json.loads(row).keys() == {"row", "gold", "outcome", "subject"}
    failed = CliRunner().invoke(app, ["inspect", str(run), "--columns", "topic"])
    assert "expected one of task, row" in str(failed.exception)
