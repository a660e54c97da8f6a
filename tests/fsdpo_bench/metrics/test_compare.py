"""Comparison of runs and datasets: paired statistics, changed problems and refused inputs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_runs import (
    TEMPLATE,
    load_pool,
    make_problem,
    make_solutions,
    write_dataset,
    write_run,
)
from click import unstyle
from fsdpo_bench.cli.app import app
from fsdpo_bench.metrics.compare import Comparison, ComparisonOptions, compare_pools
from typer.testing import CliRunner

from fsdpo_data.answers.grader import GRADER_NAME
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.statistics import mcnemar, mean_difference
from fsdpo_data.models.prompts import TemplateRef
from fsdpo_data.problems.benchmark_rows import BenchmarkRow

TASKS = {"gsm8k": 40, "gsm_ic2": 35}
DECODERS = ("greedy", "sc@4", "bon@4:min")


def two_runs(root: Path, tasks: dict[str, int] = TASKS, **changes: Any) -> tuple[Path, Path]:
    first = write_run(root / "a", tasks, chance=0.5, seed=1, decoders=DECODERS)
    return first, write_run(root / "b", tasks, chance=0.75, seed=2, decoders=DECODERS, **changes)


def compare(first: Path, second: Path, **options: Any) -> Comparison:
    return compare_pools(load_pool(first), load_pool(second), ComparisonOptions(**options))


def dataset(root: Path, outcomes: dict[int, str], **changes: Any) -> Path:
    """Write a dataset with the outcomes of each problem."""
    problems = [make_problem(number) for number in outcomes]
    rows = [
        row
        for problem, letters in zip(problems, outcomes.values(), strict=True)
        for row in make_solutions(problem, letters)
    ]
    return write_dataset(root, problems, rows, **changes)


def test_single_solutions_have_an_exact_test_and_changed_problems(tmp_path: Path) -> None:
    a = dataset(tmp_path / "a", {0: "c", 1: "c", 2: "i", 3: "i", 4: "i", 5: "g"})
    b = dataset(tmp_path / "b", {0: "c", 1: "i", 2: "c", 3: "c", 4: "u", 5: "g"})
    compared = compare(a, b)
    [delta] = compared.differences
    assert (delta.measure, delta.only_a, delta.only_b) == ("greedy", 1, 2)
    expected = replace(mean_difference([0, -1, 1, 1, 0]), p=mcnemar([-1, 1, 1]))
    assert delta.difference == expected and expected.n == 5
    changes = [(problem.answer_a, problem.answer_b, problem.better) for problem in compared.changed]
    assert changes == [("11", "7", "a"), ("7", "12", "b"), ("7", "13", "b")]


def test_means_of_samples_have_students_test(tmp_path: Path) -> None:
    a = dataset(tmp_path / "a", {0: "ccii", 1: "iiii", 2: "cccc"})
    b = dataset(tmp_path / "b", {0: "cccc", 1: "ciii", 2: "ccci"})
    by_measure = {delta.measure: delta for delta in compare(a, b).differences}
    average = by_measure["avg@4"]
    assert average.difference == mean_difference([0.5, 0.25, -0.25])
    assert average.only_a is None
    assert by_measure["sc@4"].only_b == 0 and by_measure["pass@4"].only_b == 1
    assert by_measure["pass@4"].difference.p == mcnemar([1])
    assert "pass@1" not in by_measure  # the same as avg@4


def test_numbers_of_samples_may_differ(tmp_path: Path) -> None:
    a = dataset(tmp_path / "a", {0: "cc", 1: "ic"})
    b = dataset(tmp_path / "b", {0: "cccc", 1: "icci"})
    measures = [delta.measure for delta in compare(a, b).differences]
    assert measures == ["first", "sc@2", "avg@2 / avg@4", "pass@2"]


def test_problems_on_one_base_are_compared_by_base(tmp_path: Path) -> None:
    [delta] = compare(*two_runs(tmp_path), task="gsm_ic2", decoder_a="greedy").differences
    clusters, p = delta.difference.clusters, delta.difference.p
    assert clusters == 7 and p is not None
    assert p * 2**7 == pytest.approx(round(p * 2**7))


def test_every_common_measure_of_every_benchmark_and_their_means(tmp_path: Path) -> None:
    compared = compare(*two_runs(tmp_path))
    rows = {(delta.task, delta.measure): delta for delta in compared.differences}
    measures = {*DECODERS, "avg@4", "pass@2", "pass@4"}
    assert set(rows) == {(task, name) for task in TASKS for name in measures}
    means = {mean.measure: mean.difference for mean in compared.means}
    assert set(means) == measures
    mean = means["avg@4"]
    singles = [rows[task, "avg@4"].difference.value for task in TASKS]
    assert mean.value == pytest.approx(sum(singles) / 2)
    assert mean.ci95.low < mean.value < mean.ci95.high
    assert not compared.notes


def test_two_decoders_of_one_run(tmp_path: Path) -> None:
    first, _ = two_runs(tmp_path)
    compared = compare(first, first, decoder_a="greedy", decoder_b="sc@2")
    assert compared.differences[0].measure == "greedy / sc@2"
    unchanged = [delta.difference for delta in compare(first, first).differences]
    assert all((delta.value, delta.p or 1) == (0, 1) for delta in unchanged)
    assert all(-0.5 < delta.ci95.low < 0 < delta.ci95.high for delta in unchanged)


def write_scored(root: Path, prm: str, **changes: Any) -> Path:
    """Write a dataset whose samples are equal for all reward models."""
    rows = make_solutions(make_problem(0), "ci", step_rewards=[[0.9, 0.8], [0.2, 0.1]])
    return write_dataset(root, [make_problem(0)], rows, prm=prm, **changes)


def test_a_choice_by_rewards_states_its_reward_models(tmp_path: Path) -> None:
    good, other = write_scored(tmp_path / "a", "good"), write_scored(tmp_path / "b", "other")
    compared = compare(good, other, decoder_a="bon@2:min")
    revision = "sha256:" + "b" * 64
    assert compared.notes == [
        f"the reward models of bon@2:min differ: good ({revision}) and other ({revision})"
    ]
    retrained = write_scored(tmp_path / "c", "good", score={"prm": ModelRef("good", "sha256:c")})
    [note] = compare(good, retrained, decoder_a="bon@2:min").notes
    assert note.endswith("good (sha256:c)")
    assert not compare(good, other, decoder_a="sc@2").notes
    assert not compare(good, good, decoder_a="bon@2:min").notes


def test_datasets_are_compared_by_the_default_aggregates_of_their_rewards(tmp_path: Path) -> None:
    by_outcome = write_scored(tmp_path / "a", "orm", score={"last_step_only": True})
    by_step = write_scored(tmp_path / "b", "prm")

    def chosen(first: Path, second: Path) -> list[str]:
        measures = [delta.measure for delta in compare(first, second).differences]
        return [measure for measure in measures if ":" in measure]

    assert chosen(by_outcome, by_outcome) == ["weighted@2:last", "bon@2:last"]
    assert chosen(by_outcome, by_step) == [
        "weighted@2:last",
        "weighted@2:min",
        "bon@2:last",
        "bon@2:min",
    ]
    run = write_run(tmp_path / "run", {"svamp": 3}, samples=2, decoders=["bon@2:prod"])
    samples = shutil.copytree(run / "samples", tmp_path / "c")
    assert chosen(run, samples) == ["bon@2:prod"]


def test_a_vote_weighted_by_other_rewards_than_probabilities_is_refused(tmp_path: Path) -> None:
    root = write_scored(tmp_path / "d", "log-ratio", is_probability=False)
    with pytest.raises(InputError, match=r"d are not probabilities.*one of first, sc@2, bon@2:min"):
        compare(root, root, decoder_a="sc@2", decoder_b="weighted@2:min")


def test_samples_without_rewards_are_noted_and_choose_nothing(tmp_path: Path) -> None:
    problems = [make_problem(n, [BenchmarkRow(name, n)]) for n, name in enumerate(("half", "none"))]
    rewards = ([[0.9, 0.8], None], [None, None])
    rows = [
        row
        for problem, step_rewards in zip(problems, rewards, strict=True)
        for row in make_solutions(problem, "ci", step_rewards=step_rewards)
    ]
    root = write_dataset(tmp_path / "d", problems, rows, prm="prm")
    compared = compare(root, root)
    measures = [delta.measure for delta in compared.differences if delta.task == "none"]
    assert measures == ["first", "sc@2", "avg@2", "pass@2"]
    assert compared.notes == [
        f"{side}, {text}"
        for text in (
            "half: 1 of 2 samples have no reward by prm: best-of-N takes them last, and they have "
            "no weight in votes",
            "none: no sample has a reward by prm, so no decoder chooses by its rewards",
        )
        for side in "AB"
    ]
    by_best_of_n = compare(root, root, decoder_a="bon@2:min")
    assert [delta.task for delta in by_best_of_n.differences] == ["half"]
    assert by_best_of_n.notes == compared.notes
    assert not compare(root, root, decoder_a="sc@2").notes
    with pytest.raises(InputError, match="nothing to compare: A, none: no sample has a reward"):
        compare(root, root, task="none", decoder_a="bon@2:min")


def test_one_of_several_reward_models_is_named(tmp_path: Path) -> None:
    pool = load_pool(write_scored(tmp_path / "a", "good"), write_scored(tmp_path / "b", "other"))
    with pytest.raises(InputError, match="expected one of bon@2:min by good, bon@2:min by other"):
        compare_pools(pool, pool, ComparisonOptions(decoder_a="bon@2:min"))
    options = ComparisonOptions(decoder_a="bon@2:min by other")
    compared = compare_pools(pool, pool, options)
    assert {delta.measure for delta in compared.differences} == {"bon@2:min by other"}


def test_repeated_questions_are_paired_by_occurrence(tmp_path: Path) -> None:
    problem = make_problem(0, [BenchmarkRow("asdiv", 0), BenchmarkRow("asdiv", 1)])
    a = write_dataset(tmp_path / "a", [problem], make_solutions(problem, "c"))
    b = write_dataset(tmp_path / "b", [problem], make_solutions(problem, "i"))
    [delta] = compare(a, b).differences
    assert (delta.difference.n, delta.only_a, delta.only_b) == (2, 2, 0)


def test_a_problem_with_two_places_is_one_unit(tmp_path: Path) -> None:
    benchmark_rows = [
        [BenchmarkRow("a", 0, cluster="base")],
        [BenchmarkRow("a", 1, cluster="base")],
        [BenchmarkRow("a", 2), BenchmarkRow("a", 4)],
        [BenchmarkRow("a", 3)],
    ]
    problems = [make_problem(number, entries) for number, entries in enumerate(benchmark_rows)]
    a, b = (
        write_dataset(
            tmp_path / name,
            problems,
            [make_solutions(p, o)[0] for p, o in zip(problems, outcomes, strict=True)],
        )
        for name, outcomes in {"a": "iiii", "b": "ccci"}.items()
    )
    [delta] = compare(a, b).differences
    expected = mean_difference([1, 1, 1, 0, 1], ["base", "base", "twice", "3", "twice"])
    assert delta.difference == replace(expected, p=mcnemar([2, 2, 0]))


def test_other_problem_sets_are_refused_unless_common_is_given(tmp_path: Path) -> None:
    a = dataset(tmp_path / "a", {0: "c", 1: "c", 2: "i"})
    b = dataset(tmp_path / "b", {0: "c", 2: "c"})
    with pytest.raises(InputError, match=r"2 problems are in both, 1 only in A and 0 only in B"):
        compare(a, b)
    compared = compare(a, b, common=True)
    assert compared.differences[0].difference.n == 2 and "1 only in A" in compared.notes[0]
    with pytest.raises(InputError, match="needs common problems"):
        compare(a, dataset(tmp_path / "c", {8: "c"}), common=True)


def test_common_problems_are_compared_with_themselves(tmp_path: Path) -> None:
    """The first problem of A is not in B, so the positions of the others differ."""
    a = dataset(tmp_path / "a", {0: "iiii", 1: "ccii", 2: "cccc"})
    b = dataset(tmp_path / "b", {1: "cccc", 2: "iccc"})
    differences = {delta.measure: delta for delta in compare(a, b, common=True).differences}
    assert differences["avg@4"].value_a == 0.75
    assert differences["avg@4"].difference == mean_difference([0.5, -0.25])
    assert differences["pass@4"].difference.value == 0


def test_other_differences_are_listed_in_notes(tmp_path: Path) -> None:
    template = TemplateRef(name="problem@1", digest="beeffeed")
    a = dataset(tmp_path / "a", {0: "c"})
    b = dataset(tmp_path / "b", {0: "c"}, grader="math@0", template=template)
    assert compare(a, b).notes == [
        f"the graders differ: {GRADER_NAME} and math@0",
        f"the prompt templates differ: alpaca@1 ({TEMPLATE.digest}) and problem@1 (beeffeed)",
    ]


def test_benchmarks_and_decoders_of_one_side_are_listed_in_notes(tmp_path: Path) -> None:
    common = {"gsm8k": 4, "mawps": 4}
    a = write_run(tmp_path / "a", common | {"svamp": 5}, decoders=["greedy", "sc@4"])
    b = write_run(tmp_path / "b", common | {"ocw": 4}, decoders=["sc@2", "sc@4"])
    compared = compare(a, b)
    assert {delta.task for delta in compared.differences} == {"gsm8k", "mawps"}
    assert compared.notes == [
        "benchmarks only in A, not compared: svamp",
        "benchmarks only in B, not compared: ocw",
        "decoders only in A, not compared: greedy",
        "decoders only in B, not compared: sc@2",
    ]
    assert compare(a, b, task="gsm8k", decoder_a="sc@4").notes == []
    printed = CliRunner().invoke(app, ["report", str(a), str(b)]).output
    assert "note: of a, not in all columns: svamp" in printed
    assert "note: of b, not in all columns: ocw" in printed


def test_unknown_decoders_benchmarks_and_golds_are_refused(tmp_path: Path) -> None:
    first, second = two_runs(tmp_path)
    with pytest.raises(
        InputError, match=r"decoder = 'best': a has no such decoder: expected one of greedy, sc@4"
    ):
        compare(first, second, decoder_a="best")
    with pytest.raises(InputError, match="have 4 samples each"):
        compare(first, second, decoder_a="sc@8")
    with pytest.raises(InputError, match="no common benchmark"):
        compare(first, second, task="math")
    unread = dataset(tmp_path / "c", {0: "g"})
    with pytest.raises(InputError, match="no problem counts in both"):
        compare(unread, unread)


def run_diff(*words: object, **env: str) -> str:
    result = CliRunner().invoke(app, ["diff", *map(str, words)], env={"COLUMNS": "160"} | env)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_prints_the_difference_and_the_changed_problems(tmp_path: Path) -> None:
    runs = two_runs(tmp_path)
    output = run_diff(*runs, "--show", 2, "--task", "GSM8K", "--decoder", "greedy")
    assert "B - A" in output and output.count("gold '") == 2
    content = json.loads(run_diff(*runs, "--json"))
    assert [delta["measure_a"] for delta in content["differences"]][:3] == list(DECODERS)
    assert content["changed"] and all(
        list(row) == ["task", "problem_id", "question", "gold", "answer_a", "answer_b", "better"]
        for row in content["changed"]
    )


def test_a_narrow_terminal_shows_full_names_and_leaves_columns_out(tmp_path: Path) -> None:
    words = [*two_runs(tmp_path), "--show", 0]
    output = unstyle(run_diff(*words, COLUMNS="80", FORCE_COLOR="1"))
    assert "bon@4:min" in output and max(map(len, output.splitlines())) <= 80
    assert "left out for the width of the terminal: only A, only B" in output
    assert "left out" not in unstyle(run_diff(*words, COLUMNS="120", FORCE_COLOR="1"))


def test_columns_choose_the_table_of_a_comparison(tmp_path: Path) -> None:
    words = [*two_runs(tmp_path), "--show", 0, "--decoder", "greedy"]
    output = run_diff(*words, "--columns", "benchmark,difference", "--columns", "p")
    assert output.splitlines()[0].split() == ["benchmark", "B", "-", "A", "p"]
    failed = CliRunner().invoke(app, ["diff", *map(str, words), "--columns", "pp"])
    assert "expected one of benchmark, decoder" in str(failed.exception)
