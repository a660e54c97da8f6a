"""The notebook runs unchanged, on the embedded model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


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
