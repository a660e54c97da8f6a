"""Steps of Ray Data: the example of the page gives the solutions of a build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from pages import blocks

import fsdpo_data as fd

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/howto/pipelines.md").read_text(encoding="utf-8")
#: Ray's imports warn.
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("default")]


def test_the_example_of_ray_data_gives_the_solutions_of_a_build(tmp_path: Path) -> None:
    code = [block.body for block in blocks(PAGE) if block.language == "python"]
    build, _, ray_data = code
    start = "import ray; ray.init('local', num_cpus=2, include_dashboard=False)\n"
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    for body in (build, start + ray_data):
        ran = subprocess.run(
            [sys.executable, "-c", body],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr[-2000:]
    rows = pl.read_ndjson(tmp_path / "runs/rows-of-ray/*.json")
    dataset = fd.open_dataset(tmp_path / "runs/eight-problems")
    questions = dataset.problems().select("problem_id", "question")
    solutions = dataset.solutions().join(questions, on="problem_id").collect()
    assert len(rows) == len(solutions) == 16
    order = ["question", "sample_index"]
    rows, solutions = rows.sort(order), solutions.sort(order)
    assert rows["response"].to_list() == solutions["completions"].list.join("").to_list()
    for column, solution_column in (("outcome", "outcome"), ("extracted_answer", "answer")):
        assert rows[column].to_list() == solutions[solution_column].to_list()
    for column in ("prompt", "finish_reason", "n_tokens"):
        assert rows[column].to_list() == solutions[column].to_list()
