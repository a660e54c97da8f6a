"""Tests of the records of ``results.json``: they are validated, and keep the bytes of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench_runs import config, make_records, make_results, write_run
from fsdpo_bench.report.render import write_report
from fsdpo_bench.results.result_types import Results, read_results
from fsdpo_bench.runs.records import read_config
from pydantic import ValidationError

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.statistics import Mean

TASKS = {"math": 8, "ocw": 6, "gsm_ic2": 9}


def test_results_are_read_as_the_records_that_were_written(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", config(TASKS), make_records(TASKS))
    results = write_report(run)
    file = run / "results.json"
    assert read_results(file) == results
    assert read_results(file).to_text() == file.read_text()
    assert results.rewards is not None
    assert isinstance(results.rewards.ranking_auc["min"], Mean)


def test_the_config_of_results_keeps_the_values_and_the_order_of_its_file(tmp_path: Path) -> None:
    run_config = {"a_later_field": [1], **config(TASKS)}
    run = write_run(tmp_path / "run", run_config, make_records(TASKS))
    assert json.dumps(read_config(run).to_json()) == json.dumps(
        run_config | {"tasks": {name: run_config["tasks"][name] for name in sorted_names(run)}}
    )
    text = json.dumps(write_report(run).to_json()["run"])
    assert text == json.dumps(read_config(run).to_json())


def sorted_names(run: Path) -> list[str]:
    """Return the benchmarks of a run in the order of the reports."""
    return list(read_config(run).tasks)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 2),
        (("tasks", "math", "decoders", "greedy", "accuracy"), "high"),
        (("tasks", "math", "decoders", "greedy", "cost", "tokens"), "many"),
        (("tasks", "math", "pass_at_k", "1", "n"), None),
        (("rewards", "ranking_auc", "min", "n"), "x"),
        (("rewards", "calibration", "bins", 0, "from"), None),
        (("run", "grader"), 3),
    ],
)
def test_invalid_results_are_refused(
    tmp_path: Path, path: tuple[str | int, ...], value: object
) -> None:
    content: Any = make_results(make_records(TASKS), config(TASKS)).to_json()
    content = json.loads(json.dumps(content))
    entry = content
    for key in path[:-1]:
        entry = entry[key]
    entry[path[-1]] = value
    (tmp_path / "results.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"results\.json: expected results"):
        read_results(tmp_path / "results.json")


def test_results_cannot_be_changed() -> None:
    results = make_results(make_records({"math": 3}), config({"math": 3}))
    with pytest.raises(ValidationError, match="frozen"):
        results.version = 1  # type: ignore[misc]
    assert Results.model_validate_json(results.to_text()) == results
