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
from bench_runs import make_problem, make_solutions, write_dataset
from known_datasets import (
    KnownBenchmark,
    command,
    import_responses,
    replay,
    response,
    table_rows,
)

from fsdpo_data.cli.response_printing import print_series
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
    """The stored 0.7 is 0.699999988, and the mean of the stored 0.1 and 0.5 is below 0.3."""
    rows = [response(1, 11, [0.7]), response(2, 7, [0.6])]
    dataset = import_responses(tmp_path / "ds", rows, "--prm-name", "prm")
    # 0.7 and 0.6 are in different bins: (|1 - 0.7| + |0 - 0.6|) / 2. In one bin: |0.65 - 0.5|.
    assert ("prm", "mean", "–", "0", "0.450", "0.225") in report(dataset)
    statistics = reward_results(dataset, tmp_path / "page")
    assert statistics["calibration"]["expected_error"] == pytest.approx(0.45)
    assert [entry["low"] for entry in statistics["calibration"]["bins"]] == [0.6, 0.7]
    assert statistics["distribution"]["correct"][7] == statistics["distribution"]["wrong"][6] == 1
    means = [response(1, 11, [0.1, 0.5]), response(2, 7, [0.2])]
    dataset = import_responses(tmp_path / "means", means, "--prm-name", "prm")
    # (|1 - 0.3| + |0 - 0.2|) / 2; in one bin: |0.25 - 0.5|.
    assert ("prm", "mean", "–", "0", "0.450", "0.265") in report(dataset)


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
    assert "blind: no problem counts (no readable gold answer)" in output
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
    recorded = RecordedResponse(gold="1", response="The answer is 1.", question=str(question))
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


# Comparisons


def import_answers(folder: Path, answers: dict[int, Sequence[object]], *options: object) -> Path:
    """Import the answers to each problem; problem N has the gold answer 10 + N."""
    rows = [
        response(problem, answer, candidate_index=index)
        for problem, problem_answers in answers.items()
        for index, answer in enumerate(problem_answers)
    ]
    return import_responses(folder, rows, *options)


def printed_notes(output: str) -> list[str]:
    return [line[len("note: ") :] for line in output.splitlines() if line.startswith("note: ")]


def both_notes(a: Path, b: Path) -> list[str]:
    """Return the notes of ``diff``, which are also those of a report with two columns."""
    notes = printed_notes(command("fsdpo_bench", "diff", a, b, "--show", 0))
    assert printed_notes(command("fsdpo_bench", "report", a, b)) == notes
    return notes


def test_a_comparison_names_the_settings_of_samples_that_differ(tmp_path: Path) -> None:
    answers: dict[int, Sequence[object]] = {1: [11, 11], 2: [12, 7]}
    first = import_answers(tmp_path / "a", answers, "--temperature", 0.7)
    second = import_answers(tmp_path / "b", answers, "--temperature", 1, "--grade-thinking")
    assert both_notes(first, second) == [
        "the settings `grade_thinking` differ: false and true",
        "the sampling temperatures differ: 0.7 and 1.0",
    ]
    third = import_answers(tmp_path / "c", answers, "--top-p", 0.9, "--segmenter", "newline")
    assert both_notes(first, third) == [
        "the sampling temperatures differ: 0.7 and unknown",
        "the settings `sampling.top_p` differ: unknown and 0.9",
        "the settings `segmenter` differ: recorded and newline@1",
    ]


def test_a_comparison_names_the_graders_and_selections_that_differ(tmp_path: Path) -> None:
    """A tolerance of half of the gold answer makes the wrong answer 7 to 12 right."""
    dataset = import_answers(tmp_path / "a", {1: [11, 11], 2: [12, 7]})
    tolerant = tmp_path / "tolerant"
    command("fsdpo_data", "grade", dataset, "--grader", "math@6+tolerance=0.5", "--out", tolerant)
    output = command("fsdpo_bench", "diff", dataset, tolerant, "--show", 0)
    # 3 of 4 samples are right, and all with the tolerance.
    assert ("avg@2", "75.0", "100.0", "+25.0", "0.5000", "2") in table_rows(output)
    assert printed_notes(output) == ["the graders differ: math@6 and math@6+tolerance=0.5"]
    selected = tmp_path / "selected"
    command("fsdpo_data", "select", dataset, "--outcome", "correct", "--out", selected)
    notes = printed_notes(command("fsdpo_bench", "diff", dataset, selected, "--show", 0))
    assert [note.partition(":")[0] for note in notes] == ["the settings `select` differ"]


def tolerant_benchmark(**keys: Any) -> KnownBenchmark:
    """Return two problems; 100 is within 5 % of 101."""
    rows = [{"question": "1+1?", "answer": "2"}, {"question": "100+1?", "answer": "101"}]
    return KnownBenchmark("sums", rows, {"1+1?": [2], "100+1?": [100]}, keys)


def test_a_comparison_names_the_tolerances_of_benchmarks_that_differ(tmp_path: Path) -> None:
    exact = replay(tmp_path / "a", [tolerant_benchmark()])
    tolerant = replay(tmp_path / "b", [tolerant_benchmark(tolerance=0.05)])
    output = command("fsdpo_bench", "diff", exact, tolerant, "--show", 0)
    assert ("sums", "greedy", "50.0", "100.0", "+50.0", "0", "1", "1.0000", "2") in table_rows(
        output
    )
    assert printed_notes(output) == [
        "sums: the tolerances of 2 of 2 common problems differ, such as none and 0.05"
    ]
    # The strict score is that of the exact benchmark.
    assert re.search(
        r"without tolerance 50\.0 .* \| 100\.0 [^|]*\| 2 \| 2 \|",
        (tolerant / "report.md").read_text(),
    )


def test_a_comparison_names_the_reward_models_that_differ(tmp_path: Path) -> None:
    rows = [response(1, 11, [0.9]), response(1, 7, [0.2], candidate_index=1)]
    first = import_responses(tmp_path / "a", rows, "--prm-name", "one", "--temperature", 0.5)
    second = import_responses(tmp_path / "b", rows, "--prm-name", "two", "--temperature", 0.6)
    [_, note] = printed_notes(command("fsdpo_bench", "diff", first, second))
    assert note == (
        "the reward models of weighted@2:min, bon@2:min differ: one (unknown) and two (unknown)"
    )
    [_, note] = printed_notes(command("fsdpo_bench", "report", first, second))
    assert note.startswith("the reward models of weighted@1:mean,") and note.endswith(
        "differ: one (unknown) and two (unknown)"
    )


def test_columns_say_what_they_leave_out(tmp_path: Path) -> None:
    """Problem 3 has one sample in A, and problem 2 has one in B, so two problems count in each."""
    first = import_answers(tmp_path / "a", {1: [11, 11], 2: [12, 7], 3: [13]})
    second = import_answers(tmp_path / "b", {1: [11, 11], 2: [12], 3: [13, 7]})
    output = command("fsdpo_bench", "report", first, second)
    # (1 + 1/2) / 2 in both, over different problems, so there is no difference.
    assert ("avg@2", "an average sample", "75.0", "75.0") in table_rows(output)
    assert "problems: a 2, b 2" in output
    assert printed_notes(output) == [
        "a leaves out 1 problems of responses (fewer samples)",
        "b leaves out 1 problems of responses (fewer samples)",
        "responses: 1 problems are in both, 1 only in a and 1 only in b",
    ]
    notes = printed_notes(command("fsdpo_bench", "diff", first, second, "--common", "--show", 0))
    assert notes == [
        "responses: 1 problems are in both, 1 only in A and 1 only in B",
        "A leaves out 1 problems of responses (fewer samples)",
        "B leaves out 1 problems of responses (fewer samples)",
    ]


def test_datasets_without_common_problems_have_columns(tmp_path: Path) -> None:
    first = import_answers(tmp_path / "a", {1: [11]})
    second = import_answers(tmp_path / "b", {2: [7]})
    output = command("fsdpo_bench", "report", first, second)
    assert ("greedy", "one solution by greedy decoding", "100.0", "0.0") in table_rows(output)
    assert printed_notes(output) == [
        "responses: 0 problems are in both, 1 only in a and 1 only in b"
    ]


def test_columns_name_the_decoders_of_one_side(tmp_path: Path) -> None:
    first = import_answers(tmp_path / "a", {1: [11, 11]})
    second = import_answers(tmp_path / "b", {1: [11, 7, 7]})
    notes = printed_notes(command("fsdpo_bench", "report", first, second))
    assert notes == ["of b, not in all columns: sc@3"]


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
