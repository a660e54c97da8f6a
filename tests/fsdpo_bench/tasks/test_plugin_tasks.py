"""Benchmarks of installed packages: entry points of the group ``fsdpo.benchmarks``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fsdpo_bench.run_folder import read_run_record

ROOT = Path(__file__).parents[3]
MODULE = """
from pathlib import Path

SUMS = Path(__file__).with_name("sums.toml")


def products_file():
    return str(SUMS.with_name("products.toml"))
"""
TASK = """
title = "{title}"
suites = ["packaged"]
count = 1
data = "{name}.jsonl"
"""
ENTRY_POINTS = """
[fsdpo.benchmarks]
sums = my_benchmarks:SUMS
products = my_benchmarks:products_file
powers = no_such_module:POWERS
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    metadata_folder = folder / "my_benchmarks-1.0.dist-info"
    metadata_folder.mkdir(parents=True)
    metadata = "Metadata-Version: 2.1\nName: my_benchmarks\nVersion: 1.0\n"
    (metadata_folder / "METADATA").write_text(metadata)
    (metadata_folder / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "my_benchmarks.py").write_text(MODULE)
    for name in ("sums", "products"):
        (folder / f"{name}.toml").write_text(TASK.format(title=name.title(), name=name))
        row = {"question": f"The {name} of 6 and 7?", "answer": "42"}
        (folder / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def run_bench(package: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    paths = (package, ROOT, ROOT / "benchmarks", ROOT / "cards")
    return subprocess.run(
        [sys.executable, "-m", "fsdpo_bench", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
    )


def test_benchmarks_of_a_package_run_by_name_and_by_suite(package: Path, tmp_path: Path) -> None:
    model = ("--model", "tiny", "--engine", "transformers", "--max-tokens", "8")
    for selection in (["--suite", "packaged"], ["--task", "Sums", "--task", "products"]):
        out = tmp_path / selection[1]
        done = run_bench(package, "run", *selection, *model, "--out", out)
        assert done.returncode == 0, done.stderr
        benchmarks = read_run_record(out).benchmarks
        assert {name: entry.problems for name, entry in benchmarks.items()} == {
            "sums": 1,
            "products": 1,
        }


def test_a_broken_package_stops_only_its_own_benchmark(package: Path) -> None:
    done = run_bench(package, "run", "--model", "tiny", "--task", "powers")
    assert done.returncode != 0
    assert "fsdpo.benchmarks: powers = no_such_module:POWERS" in done.stderr
