"""The comparison of two recordings reports what differs, in every part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import guard_rails
import polars as pl
import pytest
from guard_parts import describe_dataset, describe_signature, list_parts, without_seconds
from guard_rails import SKIPPED, app, are_equal, find_differences
from typer.testing import CliRunner


class PlantedDifference(NamedTuple):
    """Two records with one difference, and the lines that report it."""

    old: dict[str, Any]
    new: dict[str, Any]
    path: str
    old_text: str
    new_text: str


PLANTED_DIFFERENCES = {
    "results-recorded": PlantedDifference(
        old={"tasks": {"math": {"sc@8": {"correct": 94, "accuracy": 0.94}}}},
        new={"tasks": {"math": {"sc@8": {"correct": 93, "accuracy": 0.94}}}},
        path="tasks > math > sc@8 > correct",
        old_text="94",
        new_text="93",
    ),
    "results-tiny": PlantedDifference(
        old={"tasks": {"embedded": {"sbs@3,1": {"correct": 9, "accuracy": 0.45}}}},
        new={"tasks": {"embedded": {"sbs@3,1": {"correct": 9, "accuracy": 0.450002}}}},
        path="tasks > embedded > sbs@3,1 > accuracy",
        old_text="0.45",
        new_text="0.450002",
    ),
    "results-pools": PlantedDifference(
        old={"models": {"qwen_prm": {"value": 0.95}}},
        new={"models": {"qwen_prm": {"value": 0.95}, "math_shepherd": {"value": 0.94}}},
        path="models > math_shepherd",
        old_text="absent",
        new_text='{"value": 0.94}',
    ),
    "verdicts": PlantedDifference(
        old={"every": 1, "verdicts": {"a.jsonl#3": {"status": "correct", "answer": "4"}}},
        new={"every": 1, "verdicts": {"a.jsonl#3": {"status": "undecided", "answer": "4"}}},
        path="verdicts > a.jsonl#3 > status",
        old_text='"correct"',
        new_text='"undecided"',
    ),
    "datasets": PlantedDifference(
        old={"built": {"step_rewards": {"rows": 1, "values": [[0.25, 0.5]]}}},
        new={"built": {"step_rewards": {"rows": 1, "values": [[0.25, 0.75]]}}},
        path="built > step_rewards > values > 0 > 1",
        old_text="0.5",
        new_text="0.75",
    ),
    "commands": PlantedDifference(
        old={"fsdpo_bench run": {"--k": {"flags": ["--k"], "default": "5"}}},
        new={"fsdpo_bench run": {"--k": {"flags": ["--k", "-k"], "default": "5"}}},
        path="fsdpo_bench run > --k > flags",
        old_text='["--k"]',
        new_text='["--k", "-k"]',
    ),
    "signatures": PlantedDifference(
        old={"fsdpo_data.grade": {"gold": "str", "return": "Verdict"}},
        new={"fsdpo_data.grade": {"return": "Verdict"}},
        path="fsdpo_data.grade > gold",
        old_text='"str"',
        new_text="absent",
    ),
    "errors": PlantedDifference(
        old={"fsdpo_data build --samples 0": {"code": 1, "output": "expected at least 1."}},
        new={"fsdpo_data build --samples 0": {"code": 1, "output": "too small"}},
        path="fsdpo_data build --samples 0 > output",
        old_text='"expected at least 1."',
        new_text='"too small"',
    ),
}


def write_part(folder: Path, part: str, record: dict[str, Any]) -> str:
    folder.mkdir()
    (folder / f"{part}.json").write_text(json.dumps(record))
    return str(folder)


@pytest.mark.parametrize("part", list_parts())
def test_a_difference_is_printed_and_fails(part: str, tmp_path: Path) -> None:
    planted = PLANTED_DIFFERENCES[part]
    first = write_part(tmp_path / "first", part, planted.old)
    second = write_part(tmp_path / "second", part, planted.new)
    done = CliRunner().invoke(app, ["compare", first, second, "--only", part])
    assert done.output.splitlines() == [
        f"{part}: 1 difference",
        f"  {planted.path}",
        f"    before: {planted.old_text}",
        f"    after:  {planted.new_text}",
    ]
    assert done.exit_code == 1
    done = CliRunner().invoke(app, ["compare", first, first, "--only", part])
    assert (done.output, done.exit_code) == (f"{part}: 0 differences\n", 0)


def test_numbers_are_equal_within_a_millionth_and_counts_exactly() -> None:
    assert are_equal(0.123456, 0.123457) and not are_equal(0.123456, 0.123458)
    assert are_equal(91, 91.0) and not are_equal(91, 92)
    assert not are_equal(True, 1) and not are_equal(0.0, None)


def test_a_record_has_each_column_and_parameter_but_no_seconds(tmp_path: Path) -> None:
    tables = {"first": ["4", "7"], "second": ["4", "8"]}
    for name, answers in tables.items():
        (tmp_path / name / "problems").mkdir(parents=True)
        table = pl.DataFrame({"question": ["2+2?", "3+4?"], "answer": answers})
        table.write_parquet(tmp_path / name / "problems" / "train.parquet")
    records = [describe_dataset(tmp_path / name) for name in tables]
    assert [" > ".join(difference.path) for difference in find_differences(*records)] == [
        "columns > problems > answer > values",
        "files > problems/train.parquet",
    ]

    def first(text: str, n: int = 1) -> None: ...

    def second(text: str, *, n: int = 2) -> None: ...

    [difference] = find_differences(describe_signature(first), describe_signature(second))
    assert (difference.old, difference.new) == (
        "positional or keyword: int = 1",
        "keyword-only: int = 2",
    )
    assert without_seconds({"cost": [{"tokens": 9, "seconds": 0.1}]}) == {"cost": [{"tokens": 9}]}


def test_a_part_without_its_data_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_rails, "SHARED_DATA", tmp_path / "nowhere")
    first = write_part(tmp_path / "first", "verdicts", PLANTED_DIFFERENCES["verdicts"].old)
    done = CliRunner().invoke(app, ["compare", first, "--only", "verdicts"])
    assert done.output.startswith("verdicts: not compared, needs ../shared/data")
    assert done.exit_code == 0
    CliRunner().invoke(app, ["record", str(tmp_path / "second"), "--only", "verdicts"])
    assert SKIPPED in json.loads((tmp_path / "second" / "verdicts.json").read_text())


def test_a_folder_without_the_part_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["compare", str(tmp_path), "--only", "errors"])
    assert done.exit_code == 2 and "errors.json" in done.output
