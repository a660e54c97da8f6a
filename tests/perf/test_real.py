"""A pretrained model, whose weights are in a Python package, goes through every stage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.cpu_bf16.weights import has_bfloat16_products

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

SCRIPT = Path(__file__).parents[2] / "benchmarks/perf/real.py"
#: Largest relative error of a planned memory.
MAX_ERROR = 0.2
#: Easy enough that a model of 135 million parameters gets some right.
PROBLEMS = {
    "Tom has 3 apples and buys 4 more. How many apples does Tom have?": "3 + 4 = 7.\n#### 7",
    "What is 2 + 2?": "2 + 2 = 4.\n#### 4",
    "A box holds 5 pens. How many pens are in 2 boxes?": "5 * 2 = 10.\n#### 10",
    "Ann had 9 cookies and ate 2. How many are left?": "9 - 2 = 7.\n#### 7",
}


def test_a_pretrained_model_goes_through_every_stage(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    file = tmp_path / "problems.jsonl"
    rows = [{"question": question, "answer": solution} for question, solution in PROBLEMS.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, SCRIPT, "--problems", file, "--limit", 4, "--samples", 4]
    command += ["--tokens", 96, "--out", tmp_path / "real"]
    process = subprocess.run(
        [str(argument) for argument in command], capture_output=True, text=True
    )
    if process.returncode == os.EX_UNAVAILABLE:
        pytest.skip(process.stderr.strip().splitlines()[-1])
    assert process.returncode == 0, process.stdout + process.stderr[-4000:]
    table = [row.split() for row in process.stdout.splitlines()[1:]]
    stages = [cells[0] for cells in table]
    sft, prm, dpo = (
        [f"{argument}-float32", f"{argument}-bfloat16"] for argument in ("sft", "prm", "dpo")
    )
    assert stages == ["built", *sft, *prm, "scored", "pairs", *dpo]
    measured_stages = [cells for cells in table if cells[0] != "pairs" and "skipped:" not in cells]
    for *_, peak_megabytes, planned_megabytes in measured_stages:
        assert float(planned_megabytes) == pytest.approx(float(peak_megabytes), rel=MAX_ERROR)
    manifest = validate(tmp_path / "real/pairs")
    assert manifest.rows.solutions == 16 and manifest.pairs is not None and manifest.pairs.pairs
    assert manifest.outcomes["correct"] >= 1 and manifest.spec.template.name == "chat-boxed@1"
    built = json.loads((tmp_path / "real/model/config.json").read_text())
    assert built["vocab_size"] == 49152 and "quantization_config" not in built
    second_process = subprocess.run(
        [str(argument) for argument in command], capture_output=True, text=True
    )
    n_done = 9 if has_bfloat16_products() else 6
    assert second_process.stdout.count("done") == n_done, second_process.stderr
