"""Training prompts of a sealed dataset know their question."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from paired_data import paired_dataset

pytest.importorskip("torch")
from fsdpo_data.core.sampling import Prompt
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_train.trainer.row_formats import PRM_ROWS
from fsdpo_train.trainer.row_source import open_source


def test_prompts_have_the_questions_of_their_problems(tmp_path: Path) -> None:
    root = paired_dataset(tmp_path / "data")
    files = read_manifest(root).config_paths(root, "problems")
    problems = scan_rows("problems", files).collect()
    questions = dict(problems.select("problem_id", "question").iter_rows())
    rows = [row for _, row in open_source(root, PRM_ROWS).rows()]
    assert rows
    for row in rows:
        assert isinstance(row["prompt"], Prompt)
        assert row["prompt"].question == questions[row["problem_id"]]


def test_a_copy_without_problems_has_plain_prompts(tmp_path: Path) -> None:
    root = paired_dataset(tmp_path / "data")
    shutil.rmtree(root / "problems")
    source = open_source(root, PRM_ROWS, allow_benchmark=True)
    assert not any(isinstance(row["prompt"], Prompt) for _, row in source.rows())
