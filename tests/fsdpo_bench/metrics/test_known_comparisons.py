"""Printed differences, columns and notes, on datasets whose every number is known by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from known_datasets import (
    KnownBenchmark,
    command,
    import_answers,
    import_responses,
    printed_notes,
    replay,
    response,
    table_rows,
)


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
    line = ["select", dataset, "--filter", "outcome = 'correct'", "--out", selected]
    command("fsdpo_data", *line)
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
