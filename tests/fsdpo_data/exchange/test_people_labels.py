"""Step labels by people: every label of the published files is on its step, and is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from helpers import statistics_of
from recorded_imports import import_labels

import fsdpo_data as fd
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.exchange.formats import get_step_label_format
from fsdpo_data.exchange.step_label_formats import StepLabelFields
from fsdpo_data.stages.import_labels import ImportRecord, ImportSettings

SETTINGS = ImportSettings(format="fields", meaning="", drops="")


def expected_solutions(
    rows: list[dict[str, Any]], problem: str, steps: str, index: str
) -> list[tuple[str, tuple[str, ...], tuple[float, ...]]]:
    """Return problem, steps and labels of each row, up to the first wrong step."""
    solutions = []
    for row in rows:
        first_error = row[index]
        end = len(row[steps]) if first_error is None else first_error + 1
        labels = [1.0] * end
        if first_error is not None:
            labels[-1] = 0.0
        kept_steps = tuple(step.strip() for step in row[steps][:end])
        solutions.append((row[problem].strip(), kept_steps, tuple(labels)))
    return sorted(solutions)


@pytest.mark.parametrize(
    ("file", "name", "columns", "counts"),
    [
        (
            "verify_then_generate/dataset.json",
            "verify-then-generate",
            ("problem", "student_incorrect_solution", "incorrect_index"),
            (1002, 1772, 1002),
        ),
        (
            "bigbench_mistake/multistep_arithmetic.jsonl",
            "bigbench-mistake",
            ("input", "steps", "mistake_index"),
            (300, 855, 238),
        ),
    ],
)
def test_every_label_of_the_published_file_is_on_its_step(
    shared: Path,
    tmp_path: Path,
    file: str,
    name: str,
    columns: tuple[str, str, str],
    counts: tuple[int, int, int],
) -> None:
    source = shared / "data/stepwise" / file
    text = source.read_text(encoding="utf-8")
    lines = text.splitlines()
    rows = json.loads(text) if source.suffix == ".json" else [json.loads(line) for line in lines]
    manifest, result = import_labels(source, name, tmp_path / "labels")
    assert not result.quarantined
    stats = manifest.get("import", ImportRecord).counts
    assert (stats.rows, *statistics_of(tmp_path / "labels").imported_steps) == counts
    dataset = fd.open_dataset(tmp_path / "labels").validate()
    solutions = dataset.solutions().collect().join(dataset.problems().collect(), on="problem_id")
    imported = [
        (
            row["question"],
            tuple(step.strip() for step in row["completions"]),
            tuple(row["imported_labels"]),
        )
        for row in solutions.to_dicts()
    ]
    assert sorted(imported) == expected_solutions(rows, *columns)
    golds = solutions["answer_right"].to_list()
    assert all(golds) and not any("\n" in gold for gold in golds)


@pytest.mark.parametrize(
    ("options", "row", "steps", "labels"),
    [
        ({"first_error": "e", "first_step": 1}, {"e": 2}, ["a", "b"], [True, False]),
        ({"first_error": "e", "first_step": 1}, {"e": "1"}, ["a"], [False]),
        ({"first_error": "e"}, {"e": 2.0}, ["a", "b", "c"], [True, True, False]),
        ({"first_error": "e"}, {"e": -1}, ["a", "b", "c"], [True] * 3),
        ({"first_error": "e"}, {"e": "N/A"}, ["a", "b", "c"], [True] * 3),
        ({"label": ("l",)}, {"l": [1, "-", 0.5]}, ["a", "b", "c"], [True, False, 0.5]),
        (
            {"label": ("l",), "right_labels": ("ok", "1"), "wrong_labels": ("-1", "false")},
            {"l": ["ok", -1, False]},
            ["a", "b", "c"],
            [True, False, False],
        ),
    ],
)
def test_named_fields(
    options: dict[str, Any], row: dict[str, Any], steps: list[str], labels: list[float]
) -> None:
    reader = StepLabelFields(
        settings=SETTINGS,
        problem="q.text",
        steps="lines.text",
        ends_at_first_error="first_error" in options,
        **options,
    )
    lines = [{"text": "a"}, {"text": "b"}, {"text": "c"}]
    (solution,) = reader.read({"q": {"text": "2+2?"}, "lines": lines, **row})
    # What is cut after the first error ends like any other step.
    response = "".join(step + "\n" for step in steps)
    assert solution.question == "2+2?"
    assert solution.completion.text == (response if len(steps) < len(lines) else response.rstrip())
    assert list(solution.completion.imported_labels) == labels


@pytest.mark.parametrize(
    ("options", "row", "message"),
    [
        ({"first_error": "e"}, {"e": 3}, "e 3 of 3 steps, which start at 0"),
        ({"first_error": "e", "first_step": 1}, {"e": 0}, "which start at 1"),
        ({"first_error": "e"}, {"e": True}, "e True of 3 steps"),
        ({"first_error": "e"}, {"e": "late"}, "e 'late' of 3 steps"),
        ({"first_error": "e"}, {"e": 1.5}, "e 1.5 of 3 steps"),
        ({"label": ("l",)}, {"l": [1, 0]}, "3 steps and 2 labels"),
        ({"label": ("l",)}, {"l": "++-"}, "the labels are one text"),
        (
            {"label": ("l",), "right_labels": ("ok",), "wrong_labels": ("bad",)},
            {"l": ["ok", "so", "bad"]},
            "label 'so', expected one of ok, bad",
        ),
    ],
)
def test_invalid_labels_have_a_reason(
    options: dict[str, Any], row: dict[str, Any], message: str
) -> None:
    reader = StepLabelFields(settings=SETTINGS, problem="q", steps="s", **options)
    with pytest.raises(UnusableRowError, match=message):
        list(reader.read({"q": "2+2?", "s": ["a", "b", "c"], **row}))


def write_rows(path: Path) -> Path:
    rows = [
        {"q": "2+2?", "s": ["a", "b"], "first": 1, "gold": 4},
        {"q": "3+3?", "s": ["c", "d"], "first": None, "gold": "6"},
        {"q": "4+4?", "s": ["e"], "first": 7, "gold": "8"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_command_reads_named_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(write_rows(tmp_path / "mine.jsonl"))
    words = ("import", source, "--from", "fields", "--question-field", "q", "--steps-field", "s")
    words += ("--first-error-field", "first", "--gold-field", "gold", "--first-step", "1")
    code, text, _ = run(capsys, *words, "--out", str(tmp_path / "mine"))
    assert code == 0
    assert "wrote 2 solutions of 3 rows" in text and "2 right steps, 1 wrong" in text
    assert "labels: first is the first wrong step, counted from 1" in text
    dataset = fd.open_dataset(tmp_path / "mine").validate()
    assert dataset.problems().collect()["answer"].to_list() == ["4", "6"]
    rows = tmp_path / "rows.jsonl"
    code, text, _ = run(capsys, *words, "--out", str(rows))
    assert code == 0 and json.loads(rows.read_text().splitlines()[0])["labels"] == [False]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--from fields --steps-field s --label-field l", "--question-field"),
        ("--from fields --question-field q --label-field l", "--steps-field"),
        ("--from fields --question-field q --steps-field s", "expected either the field"),
        (
            "--from fields --question-field q --steps-field s --label-field l "
            "--first-error-field e",
            "expected either the field",
        ),
        (
            "--from fields --question-field q --steps-field s --label-field l --right-label ok",
            "or none",
        ),
        ("--from prm800k --label-field l", "the format prm800k does not read this option"),
        ("--from outputs --first-error-field e", "or use one that reads it: fields."),
        ("--from prm800k --model-name x", "or use one that reads it: outputs."),
        ("--from fields --question-field q --steps-field s --label-field l --scores x", "outputs"),
    ],
)
def test_options_that_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    source = str(write_rows(tmp_path / "mine.jsonl"))
    code, _, error = run(capsys, "import", source, *words.split(), "--out", str(tmp_path / "new"))
    assert code and message in error
    assert not (tmp_path / "new").exists()


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InputError, match="source = 'mine': expected one of trl-stepwise, math"):
        get_step_label_format("mine")
