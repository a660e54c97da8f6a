"""Gold answers that are complete solutions: the hint, and the extraction of final answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fsdpo_bench.benchmark_run import prepare_run, run_benchmarks
from fsdpo_bench.run_options import RunOptions
from fsdpo_bench.tasks.load import load_task
from fsdpo_bench.tasks.own_rows import RowOptions
from fsdpo_bench.tasks.table import get_task
from gold_checks import check_golds
from made_runs import solutions, written

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.benchmark_rows import benchmark_rows
from fsdpo_data.problems.golds import is_solution, read_gold
from fsdpo_data.problems.load import load_problems
from fsdpo_data.problems.row_formats import RowReading

ROWS = [
    {
        "question": f"What is {number} + 10?",
        "answer": f"We add ten to {number}. This gives {number + 10}, so the sum is "
        f"$\\boxed{{{number + 10}}}$.",
        "topic": ("sums", "more sums")[number % 2],
        "grade": 1 + number % 3,
        "response": f"The answer is {number + 10}.",
    }
    for number in range(20)
]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("Natalia sold 48/2 = 24 clips in May.\nAltogether she sold 72.\n#### 72", "72"),
        (
            "We have $x^2 = 4$. Since $x$ is positive, it is $\\boxed{\\frac{4}{2}}$.",
            "\\frac{4}{2}",
        ),
    ],
)
def test_a_solution_is_recognised_and_its_answer_is_extracted(gold: str, answer: str) -> None:
    assert is_solution(gold) and read_gold(gold) == answer


@pytest.mark.parametrize(
    "gold",
    [
        "42",
        "$\\boxed{42}$",
        "x = 1, y = 2, z = 3, and w = 4; no other solution",
        "#### 3",
    ],
)
def test_an_answer_is_not_a_solution(gold: str) -> None:
    assert not is_solution(gold)


#: Solutions that mark no answer.
UNMARKED_ROWS = [
    row | {"answer": f"We add ten to {row['question'][8:]} Then the sum is a larger number."}
    for row in ROWS
]


def test_a_benchmark_of_solutions_has_their_final_answers_as_golds(tmp_path: Path) -> None:
    file = written(tmp_path / "my.jsonl", ROWS)
    loaded = load_task(get_task(str(file)))
    assert not loaded.warnings and loaded.problems[3].answer == "13"
    assert check_golds(get_task(str(file))).has_passed


def test_a_benchmark_of_solutions_without_marks_says_so(tmp_path: Path) -> None:
    file = written(tmp_path / "my.jsonl", UNMARKED_ROWS)
    [warning] = load_task(get_task(str(file))).warnings
    assert "20 of 20 gold answers look like complete solutions" in warning
    report = check_golds(get_task(str(file)))
    assert not report.has_passed
    assert any("look like complete solutions" in entry.description for entry in report.findings)
    toml = tmp_path / "my.toml"
    toml.write_text(
        'data = "my.jsonl"\nformats = [{ question = ["question"], answer = "answer", '
        'gold = "extract" }]\n'
    )
    with pytest.raises(InputError, match="does not mark its final answer"):
        load_task(get_task(str(toml)))


def test_a_build_from_solutions_has_their_final_answers_as_golds(tmp_path: Path) -> None:
    rows = [{"problem": row["question"], "answer": row["answer"]} for row in ROWS]
    file = written(tmp_path / "train.jsonl", rows)
    problem_set = load_problems([str(file)])
    assert not problem_set.warnings and problem_set.problems[3].answer == "13"
    as_given = load_problems([str(file)], reading=RowReading(gold="as-given"))
    assert as_given.problems[3].answer == rows[3]["answer"]
    [warning] = as_given.warnings
    assert "20 of 20 gold answers look like complete solutions" in warning


def test_subjects_levels_and_metric_of_a_file_are_options_of_run(tmp_path: Path) -> None:
    file = written(tmp_path / "my.jsonl", [row | {"id": index} for index, row in enumerate(ROWS)])
    recorded = written(
        tmp_path / "recorded.jsonl",
        [
            {
                "prompt": get_template("problem").render(str(row["question"])),
                "completions": [{"text": row["response"], "finish_reason": "stop"}] * 2,
            }
            for row in ROWS
        ],
    )
    options = RunOptions(
        engine=SamplerOptions(engine="replay", replay=recorded),
        task=(str(file),),
        template="problem",
        rows=RowOptions(metric="avg@2", subject_field="topic", level_field="grade", gold="extract"),
        out=tmp_path / "run",
    )
    run = prepare_run(options)
    assert run.record.decoders == ["first", "sc@2"]
    assert run.record.benchmarks["my"].task.metric == "avg@2"
    problem_places = [
        benchmark_rows(p.metadata)[0] for p in run.parts["samples"].job.source.problems
    ]
    assert {problem_place.groups["subject"] for problem_place in problem_places} == {
        "sums",
        "more sums",
    }
    assert [problem_place.groups["level"] for problem_place in problem_places] == [
        str(row["grade"]) for row in ROWS
    ]
    rows = solutions(run_benchmarks(options), "samples")
    assert {row["outcome"] for samples in rows.values() for row in samples} == {"correct"}


def test_a_field_that_no_row_has_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "my.jsonl", ROWS)
    values: dict[str, Any] = {"model": "tiny", "task": (str(file),), "template": "problem"}
    with pytest.raises(InputError) as refused:
        prepare_run(RunOptions(**values, rows=RowOptions(level_field="grad", gold="extract")))
    assert "level_field = 'grad': no row of my.jsonl has this field" in str(refused.value)
    assert str(refused.value).endswith("Nearest: grade.")
    with pytest.raises(InputError, match="subject_field = 'subject': no row"):
        prepare_run(RunOptions(**values, rows=RowOptions(subject_field="subject", gold="extract")))


def test_data_is_for_benchmarks_without_problems_of_their_own(tmp_path: Path) -> None:
    rows = [{"question": "1 + 1?", "answer": "2"}]
    file = written(tmp_path / "my.jsonl", rows)
    data = written(tmp_path / "asdiv.jsonl", rows)
    for tasks in ((str(file),), ("embedded",), (str(file), "embedded")):
        with pytest.raises(InputError, match=r"data = .*asdiv.jsonl'\): a file as `task` contains"):
            prepare_run(RunOptions(model="tiny", task=tasks, data=data))


def test_options_of_rows_need_a_file_of_rows() -> None:
    with pytest.raises(InputError, match="needs a file of your own rows"):
        RowOptions(level_field="level").apply([get_task("gsm8k")])
    with pytest.raises(InputError, match="expected greedy, avg@K or maj@K"):
        RowOptions(metric="avg")
