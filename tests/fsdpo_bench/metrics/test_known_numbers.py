"""Printed numbers with their denominators, on datasets whose every number is known by hand.

The comment next to a number has the calculation by hand. A problem counts at each of its places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from bench_runs import make_entry, make_problem, make_solutions, write_dataset, write_run, written
from known_datasets import (
    KnownBenchmark,
    command,
    import_answers,
    import_responses,
    printed_notes,
    replay,
    replay_command,
    response,
    table_rows,
)

from fsdpo_data.cli.response_printing import print_series
from fsdpo_data.core.sampling import Completion
from fsdpo_data.exchange.outputs import GradedResponse, summarize_by_series
from fsdpo_data.exchange.response_formats import RecordedResponse
from fsdpo_data.grading.pool import TIMED_OUT_VERDICT

#: A benchmark that lists a problem twice, in two groups. The first answers are right at the two
#: places of 1+1; the majority, too.
FRUITS = KnownBenchmark(
    "fruits",
    [
        {"question": "1+1?", "answer": "2", "level": "easy"},
        {"question": "1+1?", "answer": "2", "level": "easy"},
        {"question": "2+2?", "answer": "4", "level": "hard"},
    ],
    {"1+1?": [2, 2, 3], "2+2?": [5, 5, 4]},
    {"groups": {"level": ["level"]}},
)


def report(*paths: object) -> list[tuple[str, ...]]:
    """Return the rows that ``fsdpo-bench report`` prints, without intervals."""
    return table_rows(command("fsdpo_bench", "report", *paths))


def reward_results(dataset: Path, folder: Path) -> Any:
    """Write the report of a dataset into a folder; return its statistics of step rewards."""
    command("fsdpo_bench", "report", dataset, "--out", folder)
    [statistics] = json.loads((folder / "results.json").read_text())["rewards"].values()
    return statistics


# Solutions without steps


@pytest.fixture(scope="module")
def with_empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset with an empty solution, whose product of step rewards would be 1."""
    rows = [
        response(1, None, []),
        response(1, 11, [0.9, 0.8], candidate_index=1),
        response(2, 12, [0.9]),
        response(2, 7, [0.2], candidate_index=1),
    ]
    return import_responses(tmp_path_factory.mktemp("empty") / "ds", rows, "--prm-name", "prm")


def test_an_empty_solution_has_no_reward_in_reports(with_empty: Path) -> None:
    rows = report(with_empty)
    # Best-of-2 takes the samples with 0.72 and 0.9, which are correct: 2 of 2 problems.
    for name in ("mean", "min", "prod", "last"):
        assert (f"bon@2:{name}", "100.0", "2", "2", "unknown", "4") in rows
        assert (f"weighted@2:{name}", "100.0", "2", "2", "unknown", "4") in rows
    # Problem 2 alone has two rewarded samples. ECE by product: (0.28 + 0.1 + 0.2) / 3; Brier score:
    # (0.28² + 0.1² + 0.2²) / 3. By mean: (0.15 + 0.1 + 0.2) / 3 and (0.15² + 0.1² + 0.2²) / 3.
    assert ("prod", "1.000", "1", "0.193", "0.043") in rows
    assert ("prm", "mean", "1.000", "1", "0.150", "0.024") in rows


def test_an_empty_solution_has_no_reward_in_other_commands(
    with_empty: Path, tmp_path: Path
) -> None:
    rows = table_rows(command("fsdpo_bench", "prm", with_empty))
    assert ("solutions", "3 of 2 problems") in rows
    # One of the two samples of each problem is correct, and best-of-2 finds it.
    assert ("prod", "50.0", "100.0") in rows and ("a perfect PRM", "50.0", "100.0") in rows
    summary = command("fsdpo_data", "inspect", with_empty)
    assert "3 solutions, 1 unscored (empty, too long or failed)" in summary
    with pytest.raises(AssertionError, match="reward dropped 2 problems and 4 solutions"):
        command(
            *("fsdpo_data", "select", with_empty, "--reward", "0.99..1"),
            *("--aggregate", "prod", "--out", tmp_path / "selected"),
        )


def test_an_empty_solution_is_in_no_pair(with_empty: Path, tmp_path: Path) -> None:
    command("fsdpo_data", "pair", with_empty, "--aggregate", "prod", "--out", tmp_path / "pairs")
    pairs = pl.read_parquet(tmp_path / "pairs/pairs/*.parquet")
    assert [chosen[-1] for chosen in pairs["chosen_steps"]] == ["The answer is 12."]


def test_a_dataset_of_empty_solutions_has_no_rewards_for_pairs(tmp_path: Path) -> None:
    dataset = import_responses(tmp_path / "ds", [response(1, None, [])], "--prm-name", "prm")
    with pytest.raises(AssertionError, match="has no step rewards"):
        command("fsdpo_data", "pair", dataset, "--out", tmp_path / "pairs")


# Step rewards


def test_a_stored_reward_is_in_the_bin_of_its_number(tmp_path: Path) -> None:
    """The stored 0.7 is 0.699999988, as is the mean of the stored 0.5 and 0.9."""
    rows = [response(1, 11, [0.7]), response(2, 7, [0.6])]
    dataset = import_responses(tmp_path / "ds", rows, "--prm-name", "prm")
    # 0.7 and 0.6 are in different bins: (|1 - 0.7| + |0 - 0.6|) / 2. In one bin: |0.65 - 0.5|.
    assert ("prm", "mean", "–", "0", "0.450", "0.225") in report(dataset)
    statistics = reward_results(dataset, tmp_path / "page")
    assert statistics["calibration"]["expected_error"] == pytest.approx(0.45)
    assert [entry["low"] for entry in statistics["calibration"]["bins"]] == [0.6, 0.7]
    assert statistics["distribution"]["correct"][7] == statistics["distribution"]["wrong"][6] == 1
    rows = [response(1, 11, [0.5, 0.9]), response(2, 7, [0.6])]
    dataset = import_responses(tmp_path / "means", rows, "--prm-name", "prm")
    # The same by the mean. By the minimum: (|1 - 0.5| + |0 - 0.6|) / 2.
    assert ("prm", "mean", "–", "0", "0.450", "0.225") in report(dataset)
    assert ("min (default)", "–", "0", "0.550", "0.305") in report(dataset)


def test_rewards_that_are_no_probabilities_have_no_calibration(tmp_path: Path) -> None:
    rows = [response(1, 11, [1.5]), response(2, 7, [0.5])]
    dataset = import_responses(tmp_path / "ds", rows, "--prm-name", "prm")
    statistics = reward_results(dataset, tmp_path / "page")
    assert statistics["calibration"] is statistics["distribution"] is statistics["quality"] is None
    assert ("prm", "mean", "–", "0", "–", "–") in report(dataset)
    for name in ("report.md", "report.html"):
        text = (tmp_path / "page" / name).read_text()
        assert "alibration error" not in text and "in correct solutions" not in text
    assert "2 solutions, 1 correct" in (tmp_path / "page/report.md").read_text()


# Benchmarks


@pytest.fixture(scope="module")
def fruits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return replay(tmp_path_factory.mktemp("fruits") / "fruits", [FRUITS])


def test_a_problem_with_two_places_counts_twice_and_costs_once(fruits: Path) -> None:
    rows = report(fruits)
    # 10 tokens for each of the 2 prompts; the 3 places count.
    assert ("fruits", "first", "66.7", "2", "3", "20", "0") in rows
    assert ("sc@3", "66.7", "2", "3", "60", "0") in rows
    assert ("avg@3", "55.6", "3") in rows  # (2/3 + 2/3 + 1/3) / 3
    assert [rows[index + 1] for index in range(len(rows)) if rows[index][0] == "level"] == [
        ("easy", "first", "100.0", "2")
    ]
    assert ("hard", "first", "0.0", "1") in rows
    page = (fruits / "report.html").read_text()
    # 20 tokens of 2 problems, and 60 of 2.
    assert "10 tokens per problem" in page and "30 tokens per problem" in page
    markdown = (fruits / "report.md").read_text()
    # pass@2: 1, 1 and 1 - C(2, 2) / C(3, 2) = 2/3.
    assert re.search(r"\| fruits \| pass@2 \| 88\.9 \[[^|]*\| 3 \|", markdown)
    card = (fruits / "README.md").read_text()
    assert re.search(r"\| fruits \| sc@3 \| 66\.7 %[^|]*\| 2 \| 3 \|", card)
    assert "| fruits | 3 of 3 |" in card and "| sc@3 | 60 | 0 |" in card


def test_a_problem_of_two_benchmarks_counts_in_both_and_costs_once(tmp_path: Path) -> None:
    """Problem 1+1 has the answers 2 and 3 in both benchmarks, and 2+2 two right ones in one."""
    rows = [{"question": "1+1?", "answer": "2"}, {"question": "2+2?", "answer": "4"}]
    answers = {"1+1?": [2, 3], "2+2?": [4, 4]}
    small = KnownBenchmark("small", rows[:1], {"1+1?": [2, 3]})
    run = replay(tmp_path / "two", [small, KnownBenchmark("large", rows, answers)])
    printed = report(run)
    assert ("small", "first", "100.0", "1", "1", "10", "0") in printed
    assert ("large", "first", "100.0", "2", "2", "20", "0") in printed
    assert ("avg@2", "50.0", "1") in printed and ("avg@2", "75.0", "2") in printed
    assert ("mean of this run", "first", "100.0", "3") in printed  # (1 + 1) / 2, over 1 + 2
    costs = (run / "report.md").read_text().partition("## Cost")[2]
    # Over both benchmarks, one or two samples with 10 tokens for each of the 2 prompts.
    assert "| first | 20 | 0 |" in costs and "| sc@2 | 40 | 0 |" in costs
    assert "| samples | 40 | 0 |" in costs
    page = (run / "report.html").read_text()
    assert re.findall(r"(\d+) tokens per problem", page) == ["10", "20", "10", "20"]


@pytest.mark.parametrize("is_in_rounds", [False, True])
def test_a_recording_in_rounds_has_as_many_samples_as_rounds(
    tmp_path: Path, is_in_rounds: bool
) -> None:
    """The second round starts after the 120 lines of the first one."""
    rows = [{"question": f"{number}+1?", "answer": str(number + 1)} for number in range(120)]
    # The first answer is right, and the second one wrong.
    answers = {str(row["question"]): [row["answer"], -1] for row in rows}
    benchmark = KnownBenchmark("many", rows, answers)
    run = replay(tmp_path / "many", [benchmark], is_in_rounds=is_in_rounds)
    printed = report(run)
    assert ("many", "first", "100.0", "120", "120", "1,200", "0") in printed
    assert ("avg@2", "50.0", "120") in printed


def test_prompts_with_unequal_completions_are_refused(tmp_path: Path) -> None:
    """The first prompt has one completion, so that it alone would look like greedy decoding."""
    benchmark = KnownBenchmark("some", FRUITS.rows, {"1+1?": [2], "2+2?": [5, 5, 4]})
    with pytest.raises(AssertionError, match=r"has 1 completions of the prompt .*, but 3 are"):
        replay(tmp_path / "some", [benchmark])


def test_a_mean_over_benchmarks_is_of_all_benchmarks(tmp_path: Path) -> None:
    rows = [{"question": "Which?", "answer": ""}]
    blind = KnownBenchmark("blind", rows, {"Which?": [1, 2, 3]}, {"missing_golds": 1})
    run = replay(tmp_path / "two", [FRUITS, blind])
    output = command("fsdpo_bench", "report", run)
    assert ("blind", "first", "–", "0", "0", "10", "0") in table_rows(output)
    assert ("mean of this run", "first", "–", "3") in table_rows(output)
    assert "blind: no problem counts (no readable gold answer, or no graded solution)" in output
    seen = KnownBenchmark("seen", [{"question": "3+3?", "answer": "6"}], {"3+3?": [7, 7, 7]})
    printed = report(replay(tmp_path / "both", [FRUITS, seen]))
    # (2/3 + 0) / 2, over 3 + 1 problems.
    assert ("mean of this run", "first", "33.3", "4") in printed


def changed_benchmark(base_question: str) -> KnownBenchmark:
    """Return a benchmark with one problem that derives from a problem of another benchmark."""
    row = {"question": "1+1 in words?", "answer": "2", "seed": base_question, "kind": "words"}
    keys = {"groups": {"kind": ["kind"]}, "base_task": "base", "cluster": "seed"}
    return KnownBenchmark("changed", [row], {row["question"]: [3]}, keys)


BASE = KnownBenchmark("base", [{"question": "1+1?", "answer": "2"}], {"1+1?": [2]})


def test_an_accuracy_drop_is_over_the_problems_with_a_base(tmp_path: Path) -> None:
    output = command(
        "fsdpo_bench", "report", replay(tmp_path / "drop", [BASE, changed_benchmark("1+1?")])
    )
    assert "changed: accuracy drop from the original questions, by kind" in output
    assert ("words", "greedy", "100.0", "1") in table_rows(output)  # 1 - 0, over 1 problem


def test_an_accuracy_drop_over_nothing_is_no_table_but_a_warning(tmp_path: Path) -> None:
    run = replay(tmp_path / "drop", [BASE, changed_benchmark("number 1")])
    output = command("fsdpo_bench", "report", run)
    assert "by kind" in output and "accuracy drop from the original" not in output
    assert "changed has no accuracy drop from base" in output
    assert "accuracy drop" not in (run / "report.md").read_text()
    assert "accuracy drop" not in (run / "report.html").read_text()


# Grader failures


def make_graded(question: int, status: str) -> GradedResponse:
    """Return a response to one of many questions, with a verdict."""
    recorded = RecordedResponse("1", Completion("The answer is 1.", "stop"), question=str(question))
    verdict = TIMED_OUT_VERDICT.__class__(status, "1", "worker-lost")  # type: ignore[arg-type]
    return GradedResponse(recorded, verdict)


def test_the_upper_bound_of_a_file_counts_timeouts(capsys: pytest.CaptureFixture[str]) -> None:
    statuses = ["correct", "incorrect", "undecided", "timed_out", "gold_unparsed"]
    responses = [make_graded(number, status) for number, status in enumerate(statuses)]
    [scores] = summarize_by_series(responses)
    # The unreadable gold does not count: 1 of 4 is correct, at most 3 of 4.
    assert (scores["correct"], scores["upper_bound"], scores["n"]) == (1, 3, 4)
    print_series([scores])
    rows = table_rows(capsys.readouterr().out)
    assert ("all, undecided as correct", "3", "75.0 %") in rows


def test_the_upper_bound_of_a_report_counts_timeouts(tmp_path: Path) -> None:
    problems = [make_problem(number) for number in range(5)]
    solutions = [
        solution
        for problem, letter in zip(problems, "ciutg", strict=True)
        for solution in make_solutions(problem, letter)
    ]
    rows = report(write_dataset(tmp_path / "ds", problems, solutions))
    # As in a file: 1 of 4, at most 3 of 4.
    assert ("made", "greedy", "25.0", "1", "4", "100", "0") in rows
    assert ("greedy, undecided as correct", "75.0", "3") in rows


@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_order_of_rows_does_not_decide_what_is_measured(
    tmp_path: Path, is_reversed: bool
) -> None:
    """One problem has two samples, and one has three: two samples of both are measured."""
    answers: dict[int, Sequence[object]] = {1: [11, 7], 2: [7, 12, 12]}
    if is_reversed:
        answers = dict(reversed(answers.items()))
    rows = report(import_answers(tmp_path / "ds", answers))
    # The first two samples of each problem: (1/2 + 1/2) / 2. The first ones: (1 + 0) / 2.
    assert ("avg@2", "50.0", "2") in rows
    assert ("responses", "first", "50.0", "1", "2") in rows


# One dataset with everything


@pytest.fixture(scope="module")
def mixed_samples(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return equal samples with the step rewards of two models; those of ``two`` are 1 - r.

    ====== ============ ========================= ==============================
    problem answers      outcomes                  step rewards of ``one``
    ====== ============ ========================= ==============================
    1       11, 7, 11    right, wrong, right       [0.9, 0.8], [0.3], [0.6]
    2       7, 12, 7     wrong, right, wrong       [0.9], [0.4], [0.2, 0.1]
    3       none, 13, 13 empty, truncated, right   [], [0.5], [0.1]
    4       1, 1, 2      undecided                 [0.7], [0.7], [0.2]
    ====== ============ ========================= ==============================
    """
    folder = tmp_path_factory.mktemp("mixed")
    unreadable = {"gold": "see the figure"}
    rows = [
        *(response(1, 11, [0.9, 0.8]), response(1, 7, [0.3]), response(1, 11, [0.6])),
        *(response(2, 7, [0.9]), response(2, 12, [0.4]), response(2, 7, [0.2, 0.1])),
        *(response(3, None, []), response(3, 13, [0.5], finish_reason="length")),
        *(response(3, 13, [0.1]), response(4, 1, [0.7], **unreadable)),
        *(response(4, 1, [0.7], **unreadable), response(4, 2, [0.2], **unreadable)),
    ]
    datasets = []
    for model, sign in (("one", 1), ("two", -1)):
        scores = []
        texts = []
        for index, row in enumerate(rows):
            key = {"problem_id": row["problem_id"], "candidate_index": index % 3}
            rewards = row["step_scores"]
            if sign < 0:
                rewards = [round(1 - reward, 6) for reward in rewards]
            scores.append({**key, "step_scores": rewards})
            texts.append({name: row[name] for name in row if name != "step_scores"} | key)
        scores_file = written(folder / f"{model}.jsonl", scores)
        options = ("--scores", scores_file, "--prm-name", model, "--temperature", 0.7)
        datasets.append(import_responses(folder / model, texts, *options))
    return datasets[0], datasets[1]


#: The rows of the report of ``mixed_samples``, with the calculation of their numbers.
MIXED_REPORT = [
    # Right, wrong, empty, undecided: 1 of 4, or 2 of 4 if the undecided answer is right.
    ("responses", "first", "25.0", "1", "4", "unknown", "0"),
    ("first, undecided as correct", "50.0", "2"),
    # The votes elect 11, 7, 13 and 1.
    ("sc@3", "50.0", "2", "4", "unknown", "0"),
    ("sc@3, undecided as correct", "75.0", "3"),
    # 0.85 + 0.6 > 0.3; 0.9 + 0.15 > 0.4; 13; 1. By the other model: 0.15 + 0.4 < 0.7, and so on.
    ("weighted@3:mean by one", "50.0", "2", "4", "unknown", "12"),
    ("weighted@3:mean by two", "25.0", "1", "4", "unknown", "12"),
    # The highest products: 0.72 (right), 0.9 (wrong), 0.5 (right), 0.7 (undecided). By the other
    # model: 0.7 (wrong), 0.8 * 0.9 (wrong), 0.9 (right), 0.8 (undecided).
    ("bon@3:prod by one", "50.0", "2", "4", "unknown", "12"),
    ("bon@3:prod by two", "25.0", "1", "4", "unknown", "12"),
    ("bon@3:prod by two, undecided as correct", "50.0", "2"),
    ("avg@3", "41.7", "4"),  # (2 + 1 + 2 + 0) of 12
    # Over the pairs of samples: (2/3 + 1/3 + 1 + 0) / 4 at N = 2; ties go to the earlier sample.
    ("sc", "41.7", "50.0", "50.0"),
    # 0.85 and 0.6 are right: 1. 0.4 is above 0.15 alone: 1/3. Empty solutions are last: 1. 0.
    ("bon, mean", "one", "41.7", "58.3", "50.0"),
    # 0.15, 0.7, 0.4: 1/3. 0.1, 0.6, 0.85: 1/3. 1. 0.
    ("two", "41.7", "41.7", "25.0"),
    ("a perfect choice (pass@N)", "41.7", "66.7", "75.0"),  # (1 + 2/3 + 1 + 0) / 4 at N = 2
    # Problem 1: both right ones are above 0.3. Problem 2: 0.4 is above 0.15 and below 0.9. The
    # others have no wrong, or no right, rewarded sample: (1 + 1/2) / 2. ECE over 11 samples, by
    # tenths: (0.15 + 0.3 + 0.4 + 0.9 + 0.6 + 0.75 + 0.5 + 1.4 + 0.2) / 11. Brier: 3.545 / 11.
    ("one", "mean", "0.750", "2", "0.473", "0.322"),
    ("two", "mean", "0.250", "2", "0.482", "0.322"),
    # Pairs: 2 * 1 and 1 * 2; the truncated solution is in none. Margins: 0.55, 0.3, -0.5 and 0.25.
    # The weights of [0.9, 0.8] at γ 0.5 are 0.5125 and 0.4875, those of [0.2, 0.1] the reverse.
    ("one", "mean", "4", "4", "2", "0.150", "0.012 / 0.012"),
    ("two", "mean", "4", "4", "2", "-0.150", "0.012 / 0.012"),
]


def test_the_report_of_a_mixed_dataset(mixed_samples: tuple[Path, Path], tmp_path: Path) -> None:
    rows = report(*mixed_samples, "--gamma", 0.5, "--out", tmp_path / "page")
    assert [row for row in MIXED_REPORT if row not in rows] == []
    markdown = (tmp_path / "page/report.md").read_text()
    page = (tmp_path / "page/report.html").read_text()
    for text in (markdown, page):
        # All but the empty one of the 12 samples have rewards, and 5 of them are right.
        assert "11 solutions, 5" in text
        assert "alibration error" in text
    # 13 steps: for each tenth, the sum of the rewards, and the number of steps in right solutions.
    steps = {0.1: (0.2, 1), 0.2: (0.4, 0), 0.3: (0.3, 0), 0.4: (0.4, 1), 0.5: (0.5, 1)}
    steps |= {0.6: (0.6, 1), 0.7: (1.4, 0), 0.8: (0.8, 1), 0.9: (1.8, 1)}
    error = sum(abs(total - right) for total, right in steps.values()) / 13
    assert f"calibration error of steps {error:.3f}" in markdown
    assert f"calibration error of the steps is {error:.3f}" in page
    for low, (total, right) in steps.items():
        n_steps = round(total / low)
        percent = 100 * right / n_steps
        row = f"| {low:.1f}–{low + 0.1:.1f} | {n_steps} | {low:.3f} | {percent:.1f} ["
        assert row in markdown


def test_other_commands_on_a_mixed_dataset(mixed_samples: tuple[Path, Path]) -> None:
    dataset = mixed_samples[0]
    rows = table_rows(command("fsdpo_bench", "prm", dataset))
    assert ("solutions", "11 of 4 problems") in rows
    assert ("ranking AUC, mean", "0.750", "(2 problems)") in rows
    assert ("mean", "41.7", "58.3") in rows and ("a perfect PRM", "41.7", "66.7") in rows
    numbers = {
        # The three undecided answers of a problem count as wrong: 3 of 4 have a right sample.
        "accuracy": ("41.7 %", "(5 of 12; 3 undecided count as wrong)"),
        "pass@3": ("75.0 %", "(3 of 4)"),
        "mixed problems": ("3", "(with correct and incorrect samples, which can form pairs)"),
        "outcomes": ("5 correct, 3 incorrect, 1 no answer, 3 undecided",),
        # 13 steps, of which the 3 of undecided solutions have no label: 6 of 10.
        "step labels": ("13 steps, 60.0 % positive",),
        "truncated": ("1", "(8.3 %)"),
        "unique": ("10", "(83.3 %)"),  # the problems have 3, 3, 2 and 2 texts
    }
    rows = table_rows(command("fsdpo_data", "inspect", dataset))
    card = (dataset / "README.md").read_text()
    for name, cells in numbers.items():
        assert (name, *cells) in rows
        assert f"| {name} | {cells[0]}" in card
    assert "11 solutions, 1 unscored" in card and "0.750" in card
    # The bars of outcomes; of labelled steps; of right solutions by the tenth of a step reward.
    for bar in (r"correct +█+ +5", r"undecided +█+ +3", r"positive +█+.* +6", r"unlabelled +█+ +3"):
        assert re.search(bar, card)
    plots = re.findall(r"Step rewards in \w+ solutions:\n\n```text\n(.*?)```", card, re.DOTALL)
    right_steps, other_steps = plots
    assert re.findall(r"0\.(\d)–\S+ +█* +([1-9])", right_steps) == [
        (str(tenth), "1") for tenth in (1, 4, 5, 6, 8, 9)
    ]
    assert dict(re.findall(r"0\.(\d)–\S+ +█+ +([1-9])", other_steps)) == {
        "1": "1",
        "2": "2",
        "3": "1",
        "7": "2",
        "9": "1",
    }


def test_a_file_of_responses_has_the_numbers_of_its_dataset(
    mixed_samples: tuple[Path, Path],
) -> None:
    file = mixed_samples[0].with_name("one-rows") / "responses.jsonl"
    rows = table_rows(command("fsdpo_data", "grade", file))
    # 5 of 12, and with the 3 undecided ones 8.
    outcomes = "3 incorrect, 1 no answer, 3 undecided"
    assert ("all", "5", "12", "41.7 %", "5", "5", "–", "–", outcomes) in rows
    assert ("all, undecided as correct", "8", "66.7 %") in rows


def test_merged_shards_have_the_numbers_of_one_run(tmp_path: Path) -> None:
    """The shards share the two problems, of which one has two places."""
    words = replay_command(tmp_path / "fruits", [FRUITS])
    shards = [tmp_path / "shard-1", tmp_path / "shard-2"]
    for number, shard in enumerate(shards, start=1):
        command(*words, "--shard", f"{number}/2", "--out", shard)
    merged = command("fsdpo_bench", "merge", *shards, "--out", tmp_path / "merged")
    rows = table_rows(merged)
    # As in the complete run: 2 of 3 places, and 3 * 10 tokens for each of the 2 problems.
    assert ("sc@3", "66.7", "2", "3", "60", "0") in rows
    assert ("avg@3", "55.6", "3") in rows and ("hard", "first", "0.0", "1") in rows


def test_a_failed_problem_is_left_out_and_counted(tmp_path: Path) -> None:
    """The run has five problems, and an engine refused one of them."""
    run = write_run(
        tmp_path / "run",
        {"gsm8k": 4},
        chance=1.0,
        decoders=["greedy"],
        entries={"gsm8k": make_entry("gsm8k", 5)},
    )
    output = command("fsdpo_bench", "report", run)
    assert "gsm8k: 1 problems are left out (failed)" in output
    assert ("GSM8K", "greedy", "100.0", "4", "4") in [row[:5] for row in table_rows(output)]
    notes = printed_notes(command("fsdpo_bench", "diff", run, run, "--show", 0))
    assert notes == [f"{side} leaves out 1 problems of gsm8k (failed)" for side in "AB"]
    assert "1 problems of GSM8K do not count" in (run / "README.md").read_text()
