"""Edited records and configs of a run are refused with a message that names the error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from bench_runs import config, make_records, write_run
from fsdpo_bench.cli.app import app
from fsdpo_bench.runs.records import read_config, read_records
from typer.testing import CliRunner

from fsdpo_data.core.errors import InputError

TASKS = {"math": 4, "ocw": 3}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    return write_run(folder / "run", config(TASKS), make_records(TASKS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": [{}]}, r"math\.jsonl, problem math0000/0: samples\.0\.answer: Field required"),
        ({"gold": 5}, "gold: Input should be a valid string"),
        ({"task": "ocw"}, "a record of 'ocw', expected 'math'"),
    ],
)
def test_invalid_records_are_named(
    run: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    shutil.copytree(run, tmp_path / "run")
    file = tmp_path / "run/records/math.jsonl"
    first, *other_lines = file.read_text().splitlines(keepends=True)
    file.write_text(json.dumps(json.loads(first) | change) + "\n" + "".join(other_lines))
    with pytest.raises(InputError, match=message):
        list(read_records(tmp_path / "run"))


@pytest.mark.parametrize("tolerance", [float("inf"), float("nan"), -1, 1])
def test_an_invalid_tolerance_is_refused(run: Path, tmp_path: Path, tolerance: float) -> None:
    shutil.copytree(run, tmp_path / "run")
    run_config = read_config(run).to_json()
    run_config["tasks"]["math"]["tolerance"] = tolerance
    (tmp_path / "run/config.json").write_text(json.dumps(run_config))
    with pytest.raises(InputError, match=r"tasks\.math\.tolerance"):
        read_config(tmp_path / "run")


def test_a_task_name_cannot_point_outside_the_run(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    run_config = read_config(run).to_json()
    run_config["tasks"] = {"../../evil": run_config["tasks"]["math"]}
    (tmp_path / "run/config.json").write_text(json.dumps(run_config))
    with pytest.raises(InputError, match=r"tasks\.\.\./\.\./evil"):
        read_config(tmp_path / "run")


def test_a_record_without_one_of_the_decoders_cannot_be_compared(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    file = tmp_path / "run/records/math.jsonl"
    *other_lines, last = file.read_text().splitlines(keepends=True)
    record = json.loads(last)
    del record["decoded"]["greedy"]
    file.write_text("".join(other_lines) + json.dumps(record) + "\n")
    result = CliRunner().invoke(app, ["diff", str(run), str(tmp_path / "run")])
    assert "the record has other decoders than the first problem" in str(result.exception)
