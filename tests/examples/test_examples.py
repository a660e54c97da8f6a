"""The notebook runs unchanged, and the dataset of a real model can be made again."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fsdpo_data.dataset.manifest import read_manifest

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str, *arguments: object, cwd: Path) -> str:
    line = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.proof
def test_the_notebook_runs_and_holds_no_outputs(tmp_path: Path) -> None:
    """Cell after cell in one process, as a kernel runs them."""
    cells = json.loads((EXAMPLES / "quickstart.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    script = tmp_path / "notebook.py"
    sources = ["".join(cell["source"]) for cell in code]
    script.write_text("\n\n".join(sources), encoding="utf-8")
    assert "chosen" in example(str(script), cwd=tmp_path)
    assert (tmp_path / "runs/notebook/policy/config.json").exists()


@pytest.mark.proof
@pytest.mark.short_proof
def test_the_dataset_of_a_real_model_comes_from_its_responses(tmp_path: Path) -> None:
    """The commands of `make examples` give the dataset, which is small."""
    name = "gsm8k-qwen-0.5b"
    makefile = (EXAMPLES.parent / "Makefile").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^examples:.*\n((?:\t.*\n)+)", makefile, flags=re.M)
    commands = recipe.replace("\\\n", " ").replace("$(EXAMPLE)", name).replace("$(BIN)/", "")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shutil.copy(EXAMPLES / f"{name}.jsonl.gz", tmp_path)
    for command in commands.strip().splitlines():
        subprocess.run(command, shell=True, check=True, cwd=tmp_path, env=environment)
    manifest, committed = (read_manifest(folder / name) for folder in (tmp_path, EXAMPLES))
    assert manifest.digest == committed.digest
    assert committed.rows.problems == 150
    assert committed.is_written("step_rewards") and committed.is_written("pairs")
    files = [file for file in (EXAMPLES / name).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 3e6
