"""Decoders next to the baselines that need no reward model."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from bench_runs import config, make_records, read_rows, write_run
from fsdpo_bench.cli.app import app
from fsdpo_bench.results.baselines import ChoiceAccuracy, compare_choices
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError
from fsdpo_data.models.resolve import resolve_weights
from fsdpo_data.problems.embedded import PROMPT
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import write_solution

TASKS = {"math": 12}


def make_run(folder: Path, chance: float = 0.6, seed: int = 0) -> Path:
    return write_run(folder, config(TASKS), make_records(TASKS, chance, seed))


def by_name(rows: list[ChoiceAccuracy]) -> dict[str, ChoiceAccuracy]:
    return {row.choice.name: row for row in rows}


def test_the_rows_are_decoders_between_an_average_sample_and_a_perfect_choice(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path / "run")
    rows = by_name(compare_choices([run], []))
    assert list(rows) == ["greedy", "sbs@2,1", "avg@4", "sc@2", "sc@4", "bon@4:min", "pass@4"]
    records = read_rows(run)
    verdicts = [[sample["correct"] for sample in record["samples"]] for record in records]
    [average] = rows["avg@4"].accuracies
    assert average.value == pytest.approx(sum(map(sum, verdicts)) / 48)
    [perfect] = rows["pass@4"].accuracies
    assert perfect.value == pytest.approx(sum(map(any, verdicts)) / 12)
    [best] = rows["bon@4:min"].accuracies
    correct = sum(record["decoded"]["bon@4:min"]["correct"] for record in records)
    assert best.value == pytest.approx(correct / 12)
    assert average.ci95 and average.ci95[0] < average.value < average.ci95[1]
    assert all(row.difference is None for row in rows.values())


def test_differences_of_two_runs_are_paired(tmp_path: Path) -> None:
    first = make_run(tmp_path / "a", chance=0.3)
    second = make_run(tmp_path / "b", chance=0.8, seed=1)
    rows = by_name(compare_choices([first, second], []))
    for row in rows.values():
        a, b = (accuracy.value for accuracy in row.accuracies)
        assert a is not None and b is not None and row.difference is not None
        low, high = row.difference.ci95
        assert row.difference.value == pytest.approx(b - a)
        assert low <= row.difference.value <= high
    unchanged = by_name(compare_choices([first, first], []))
    assert all(row.difference and row.difference.value == 0 for row in unchanged.values())


def test_other_problems_and_other_numbers_of_runs_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    other = write_run(tmp_path / "other", config({"math": 3}), make_records({"math": 3}))
    with pytest.raises(InputError, match="different problems"):
        compare_choices([run, other], [])
    with pytest.raises(InputError, match="expected one or two"):
        compare_choices([run] * 3, [])
    with pytest.raises(InputError, match="1 models for 2 runs"):
        compare_choices([run, run], ["tiny"])
    empty = write_run(tmp_path / "empty", config(TASKS), [])
    with pytest.raises(InputError, match="no records"):
        compare_choices([empty], [])


def test_the_choice_by_likelihood_takes_the_most_likely_sample_of_the_policy(
    tmp_path: Path,
) -> None:
    revision = resolve_weights("tiny").ref.revision
    run_config = config(TASKS) | {"model": {"name": "tiny", "revision": revision}}
    records = make_records(TASKS)
    problems = make_problems("test", len(records))
    for record, problem in zip(records, problems, strict=True):
        record["prompt"] = PROMPT.format(question=problem.question)
        solution = write_solution(problem, random.Random(0))
        for index, sample in enumerate(record["samples"]):
            sample["steps"] = solution if index == 2 else [step[::-1] for step in solution]
            sample["text"] = "".join(sample["steps"])
            sample["rewards"] = None
            sample["correct"] = index == 2
    run = write_run(tmp_path / "run", run_config, records)
    [likely] = by_name(compare_choices([run], ["tiny"]))["likely@4"].accuracies
    assert likely.value == 1


def test_a_policy_that_did_not_write_the_samples_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(InputError, match="another model"):
        compare_choices([run], ["tiny"])


def test_the_command_prints_a_table_with_intervals_and_json(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "before"), make_run(tmp_path / "after", chance=0.9)
    words = ["baselines", str(first), str(second)]
    output = CliRunner().invoke(app, words, env={"COLUMNS": "160"}).output
    assert "12 problems, with 95 % intervals" in output
    for expected in (
        "before",
        "after",
        "difference",
        "an average sample",
        "of 4 samples",
        "bon@4:min",
    ):
        assert expected in output
    rows = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert rows[0]["choice"]["name"] == "greedy" and len(rows[0]["accuracies"]) == 2
