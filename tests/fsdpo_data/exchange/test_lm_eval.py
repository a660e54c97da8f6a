"""Reading of files that lm-evaluation-harness writes with ``--log_samples``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_runs import written
from recorded_imports import import_file
from recorded_rows import lm_eval
from typer.testing import CliRunner

from fsdpo_data.cli.app import app
from fsdpo_data.core.errors import InputError
from fsdpo_data.exchange.outputs import read_outputs

#: The reference solution is the target; two filters read the same response.
GSM8K = {
    "doc_id": 0,
    "doc": {"question": "16 - 3 - 4 eggs at $2 each?", "answer": "9 * 2 = <<9*2=18>>18\n#### 18"},
    "target": "9 * 2 = <<9*2=18>>18\n#### 18",
    "arguments": {
        "gen_args_0": {
            "arg_0": "Question: 16 - 3 - 4 eggs at $2 each?\nAnswer:",
            "arg_1": {"until": ["Question:", "</s>", "<|im_end|>"], "do_sample": False},
        }
    },
    "resps": [[" She sells 9 eggs for $18.\n#### 18"]],
    "filtered_resps": ["18"],
    "filter": "strict-match",
    "metrics": ["exact_match"],
    "doc_hash": "0" * 64,
    "prompt_hash": "1" * 64,
    "target_hash": "2" * 64,
    "exact_match": 1.0,
}
LENIENT = {"filter": "flexible-extract", "filtered_resps": ["18"]}
WRONG = {
    "doc_id": 1,
    "doc": {"question": "2 + 2?", "answer": "#### 4"},
    "target": "#### 4",
    "resps": [[" It is 5."]],
    "filtered_resps": ["[invalid]"],
    "exact_match": 0.0,
}
#: The target is only the gold, and there are two metrics.
MINERVA = {
    "doc_id": 0,
    "doc": {"problem": "Half?", "level": "Level 1", "solution": r"$\boxed{\frac12}$."}
    | {"type": "Algebra", "answer": r"\frac{1}{2}"},
    "target": r"\frac{1}{2}",
    "resps": [[r"So $\boxed{0.5}$. I hope it is correct."]],
    "filtered_resps": [r"So $\boxed{0.5}$. I hope it is correct."],
    "filter": "none",
    "metrics": ["exact_match", "math_verify"],
    "exact_match": 0,
    "math_verify": 1,
}
#: Three responses (``repeats: 3``); two of the three filters vote.
VOTED = GSM8K | {"resps": [["#### 18", "#### 17", "18"]], "target": "18", "exact_match": 0.0}


@pytest.fixture
def grade_rows(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    def grade(rows: list[dict[str, Any]], *options: str) -> list[dict[str, Any]]:
        file = written(tmp_path / "samples_task_2026-01-01T00-00-00.000000.jsonl", rows)
        done = CliRunner().invoke(app, ["grade", str(file), "--json", "--workers", "1", *options])
        assert done.exit_code == 0, done.output
        return list(json.loads(done.stdout))

    return grade


def test_a_document_with_several_filters_counts_once(grade_rows: Callable[..., Any]) -> None:
    """The file has one row per filter; the score of the first filter is compared."""
    second = GSM8K | WRONG
    [series] = grade_rows([GSM8K, second, GSM8K | LENIENT, second | LENIENT | {"exact_match": 1.0}])
    assert (series["n"], series["correct"]) == (2, 1)
    assert (series["recorded_correct"], series["disputed"]) == (1, 0)


def test_the_responses_of_several_seeds_are_samples(tmp_path: Path) -> None:
    """Files and rows of another seed have the same documents; equal responses count, too."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    other = GSM8K | {"resps": [["#### 17"]]}
    written(folder / "samples_task_seed1.jsonl", [GSM8K, GSM8K | LENIENT])
    seeds = [other, other | LENIENT, GSM8K, GSM8K | LENIENT]
    written(folder / "samples_task_seeds.jsonl", seeds)
    written(folder / "samples_task_seed4.jsonl", [GSM8K, other | LENIENT])
    _, rows = import_file(folder, tmp_path / "out")
    outcomes = [row["outcome"] for row in rows]
    assert outcomes == ["correct", "correct", "incorrect", "incorrect", "correct"]


def test_each_unusable_row_of_a_document_is_quarantined(tmp_path: Path) -> None:
    golds = written(tmp_path / "golds.jsonl", [GSM8K["doc"] | {"answer": "18"}])
    other = WRONG | {"filter": "strict-match"}
    rows = [other, GSM8K, other | LENIENT, GSM8K | LENIENT]
    file, out = written(tmp_path / "samples_task_2026-01-01.jsonl", rows), tmp_path / "out"
    _, [solution] = import_file(file, out, problems=str(golds))
    assert solution["gold"] == "18"
    quarantined = (out / "quarantine.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in quarantined] == [1, 3]


def test_old_files_without_filter_names_are_read(grade_rows: Callable[..., Any]) -> None:
    old = {key: value for key, value in GSM8K.items() if key not in ("filter", "metrics")}
    assert [series["n"] for series in grade_rows([old, old | {"exact_match": 0.0}])] == [1]


def test_concatenated_files_of_several_subjects_are_read(grade_rows: Callable[..., Any]) -> None:
    other = MINERVA | {"doc": {"problem": "A quarter?"}, "target": "1/4"}
    assert [(series["n"], series["correct"]) for series in grade_rows([MINERVA, other])] == [(2, 1)]


def test_a_score_over_several_samples_is_not_a_verdict_per_sample(
    grade_rows: Callable[..., Any],
) -> None:
    rows = [VOTED | {"filter": name} for name in ("score-first", "maj@64", "maj@8")]
    series_list = grade_rows(rows)
    assert [series["series"] for series in series_list] == ["sample 0", "sample 1", "sample 2"]
    assert [series["correct"] for series in series_list] == [1, 0, 1]
    assert {series["recorded_correct"] for series in series_list} == {None}


def test_published_and_computed_verdicts_are_both_reported(grade_rows: Callable[..., Any]) -> None:
    """lm-eval compares strings, so 0.5 does not match \\frac12."""
    [series] = grade_rows([MINERVA])
    assert (series["correct"], series["recorded_correct"], series["disputed"]) == (1, 0, 1)


@pytest.mark.parametrize(
    ("row", "gold", "question"),
    [
        (GSM8K, "18", "16 - 3 - 4 eggs at $2 each?"),
        (MINERVA, r"\frac{1}{2}", "Half?"),
        (MINERVA | {"target": MINERVA["doc"]["solution"]}, r"\frac12", "Half?"),  # type: ignore[index]
        (GSM8K | {"doc": {"body": "b", "question": "q"}, "target": "9 (cats)"}, "9 (cats)", "b q"),
        (GSM8K | {"doc": {"Body": "b.", "Question": "q"}, "target": "3.0"}, "3.0", "b. q"),
    ],
)
def test_golds_and_questions_are_found(
    tmp_path: Path, row: dict[str, Any], gold: str, question: str
) -> None:
    [recorded] = read_outputs(written(tmp_path / "samples.jsonl", [row]))
    assert (recorded.gold, recorded.question) == (gold, question)


def test_samples_can_be_imported_as_a_dataset(tmp_path: Path) -> None:
    file = written(tmp_path / "samples.jsonl", [VOTED])
    manifest, rows = import_file(file, tmp_path / "out")
    assert manifest.rows.problems == 1 and len(rows) == 3
    assert [row["outcome"] for row in rows].count("correct") == 2


@pytest.mark.parametrize(
    ("resps", "message"),
    [
        ([], "row 1: the row has no response; expected one in the format of lm-eval"),
        ([[]], "row 1: the row has no response; expected one in the format of lm-eval"),
        ([[["-3.25", "False"]], [["-1.5", "True"]]], "row 1: resps holds log-likelihoods"),
        (None, "row 1: the row does not have the format of lm-evaluation-harness samples"),
    ],
)
def test_rows_without_responses_are_named(tmp_path: Path, resps: Any, message: str) -> None:
    file = written(tmp_path / "samples.jsonl", [GSM8K | {"resps": resps}])
    with pytest.raises(InputError, match=message):
        read_outputs(file)


def test_the_table_has_a_row_for_undecided_answers(tmp_path: Path) -> None:
    rows = [
        {"question": "1", "gold": "20", "response": r"\boxed{20}"},
        {"question": "2", "gold": "20", "response": r"\boxed{\foo{20}{1}}"},
    ]
    for count, is_shown in ((1, False), (2, True)):
        file = written(tmp_path / f"{count}.jsonl", rows[:count])
        done = CliRunner().invoke(app, ["grade", str(file), "--workers", "1"])
        assert done.exit_code == 0, done.output
        assert ("undecided as correct" in done.stdout) == is_shown


def test_an_unknown_question_is_not_taken_for_an_example_of_its_prompt(tmp_path: Path) -> None:
    golds = written(tmp_path / "golds.jsonl", [{"question": "2+2?", "answer": "4"}])
    example = "Q: 2+2?\nA: 4\n\n"
    rows = [
        lm_eval(
            doc_id=index,
            doc={"question": question},
            arguments={"gen_args_0": {"arg_0": f"{example}Q: {question}\nA:"}},
        )
        for index, question in enumerate(("2+2?", "5+5?"))
    ]
    file = written(tmp_path / "theirs.jsonl", rows)
    _, solutions = import_file(file, tmp_path / "out", problems=[str(golds)])
    assert {row["prompt"] for row in solutions} == {f"{example}Q: 2+2?\nA:"}
    [unusable] = (tmp_path / "out/quarantine.jsonl").read_text().splitlines()
    assert "the question matches no problem" in unusable
