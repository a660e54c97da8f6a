"""Imports of recorded outputs and of step labels for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from fsdpo_data.core.command_line import make_options
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.validate import validate
from fsdpo_data.exchange.formats import get_step_label_format
from fsdpo_data.exchange.import_options import ImportOutputsOptions
from fsdpo_data.exchange.importing import import_training_rows, run_import
from fsdpo_data.exchange.row_import import ImportResult


def import_file(file: Path, out: Path, **options: Any) -> tuple[Manifest, list[dict[str, Any]]]:
    """Import a file; return the manifest and the solutions, joined with their problems."""
    manifest, _ = run_import(
        make_options(ImportOutputsOptions, {"file": file, "out": out, "workers": 1} | options),
        NO_PROGRESS,
    )
    validate(out)
    problems = pl.read_parquet(out / "problems/*.parquet")
    solutions = pl.read_parquet(out / "solutions/*.parquet")
    rows = solutions.join(problems, on="problem_id", how="left", maintain_order="left")
    return manifest, rows.rename({"answer_right": "gold"}).to_dicts()


def import_labels(
    source: str | Path, name: str, out: Path, **options: Any
) -> tuple[Manifest, ImportResult]:
    """Import step labels in the format ``name`` as a dataset."""
    import_options = make_options(ImportOutputsOptions, {"file": source, "out": out} | options)
    return run_import(import_options, NO_PROGRESS, get_step_label_format(name))


def import_label_rows(source: str | Path, name: str, out: Path) -> ImportResult:
    """Import step labels in the format ``name`` as a file of training rows."""
    options = make_options(ImportOutputsOptions, {"file": source, "out": out})
    return import_training_rows(options, get_step_label_format(name))


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]
