"""Every stage of `make real` at toy size, with the embedded model, and its tables."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from evidence_problems import write_problems
from fsdpo_bench.recipes.load import load_recipes

from fsdpo_data.problems.embedded import CHECKPOINT

EVIDENCE = Path(__file__).parents[2] / "benchmarks/evidence"
RECIPE = EVIDENCE / "real.toml"
RESULTS = EVIDENCE.parent / "measured/real"
sys.path.insert(0, str(EVIDENCE))
import real_tables  # noqa: E402

#: Values for minutes on a CPU; the other values are those of the row `gpu`.
TOY_VALUES = {
    "engine": "--engine transformers",
    "gpus": "0",
    "dtype": "--dtype float32",
    "template": "problem",
    "train_problems": "12",
    "samples": "4",
    "max_tokens": "128",
    "select_options": "--per-problem 2",
    "test_problems": "6",
    "policy_problems": "4",
    "policy_samples": "2",
    "prm_options": "--max-steps 1",
    "policy_options": "--max-steps 1",
    "pair_options": "--no-require-outcome",
}


def run_script(*arguments: object) -> str:
    """Run `real.py` and return its output."""
    command = [sys.executable, str(EVIDENCE / "real.py"), *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-5000:]
    return process.stdout


def run_recipe(row: str, values: dict[str, str], stages: list[str] | None = None) -> Any:
    """Run a size of the recipe in the root of the repository, as `make real` does."""
    command = [sys.executable, "-m", "fsdpo_bench", "recipe", str(RECIPE), "--row", row]
    command += [word for item in values.items() for word in ("--set", "=".join(item))]
    command += [word for stage in stages or () for word in ("--stage", stage)]
    return subprocess.run(command, capture_output=True, text=True, cwd=EVIDENCE.parents[1])


@pytest.mark.proof
def test_every_stage_of_a_gpu_runs_at_toy_size(tmp_path: Path) -> None:
    write_problems(tmp_path / "problems")
    values = TOY_VALUES | {
        "model": str(CHECKPOINT),
        "folder": str(tmp_path / "run"),
        "results": str(tmp_path / "results"),
        "train_file": str(tmp_path / "problems/train.jsonl"),
        "test_file": str(tmp_path / "problems/test.jsonl"),
        "processbench_file": str(tmp_path / "problems/processbench.json"),
    }
    [recipe] = load_recipes(str(RECIPE), ["gpu"])
    names = [stage.name for stage in recipe.stages if "-seed1" not in stage.name]
    process = run_recipe("gpu", values, names)
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-5000:]
    assert all(f"{name}: done" in process.stdout for name in names)
    assert re.search(r"estimated time of the next \d+ long stages: \d", process.stdout)
    _, _, tables = process.stdout.partition("| choice (6 problems)")
    assert "| best of 4: PQM on Monte-Carlo labels |" in tables
    assert "| Full-Step-DPO, γ 4 | 1 |" in tables and "(4 rows)" in tables
    assert "| train the reward model on outcomes |" in tables
    second = run_recipe("gpu", values, names)
    assert second.stdout.count("fsdpo-data build") == 0
    assert tables.partition("| stage |")[0] in second.stdout


@pytest.mark.proof
@pytest.mark.filterwarnings("default")
def test_the_real_model_goes_through_every_stage(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    model = tmp_path / "model"
    process = run_recipe("smoke", {"folder": str(tmp_path / "run"), "model": str(model)})
    if f"stage model ended with exit code {os.EX_UNAVAILABLE}" in process.stderr:
        pytest.skip("the packages with the model cannot be downloaded here")
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-5000:]
    assert "(4 rows)" in process.stdout
    config = json.loads((model / "config.json").read_text())
    assert config["vocab_size"] == 151_936 and "quantization_config" not in config


PAGE_SIZES = [size for size in ("cpu", "gpu") if (RESULTS / size).exists()]


@pytest.mark.parametrize("size", PAGE_SIZES)
def test_the_page_has_the_tables_of_the_numbers(size: str) -> None:
    page = (EVIDENCE.parents[1] / "docs/evidence-first-run.md").read_text(encoding="utf-8")
    tables = [
        table for table in run_script("tables", RESULTS / size).split("\n\n") if table.strip()
    ]
    assert tables and all(table.strip() in page for table in tables)


def test_comparisons_of_one_seed_have_no_columns_over_seeds(tmp_path: Path) -> None:
    def table_of(seeds: range) -> str:
        header = "policy,seed,problem_id,greedy,correct,samples,vote,tokens,cut_off"
        rows = [
            f"{policy},{seed},p{problem},,{(problem + seed + len(policy)) % 3},4,0,9,0"
            for policy in ("dpo", "full-step")
            for seed in seeds
            for problem in range(6)
        ]
        (tmp_path / "policies.csv").write_text("\n".join([header, *rows]) + "\n")
        return real_tables.policy_table(tmp_path)

    assert "| difference (points) | detectable |" in table_of(range(1))
    assert "| by seed | 95 % over seeds | detectable |" in table_of(range(2))


#: The stage of each measured row of the page on hardware, by machine and work.
HARDWARE_STAGES = {
    ("cpu", "Monte-Carlo labels of 300 solutions, two continuations per step, vLLM"): "labelled",
    ("cpu", "train a PRM on 1,199 solutions, one epoch"): "prm-outcome",
    ("gpu", "train a PRM on 1,199 solutions, one epoch"): "prm-outcome",
    ("cpu", "step rewards of 1,200 solutions"): "scored",
    ("gpu", "step rewards of 1,200 solutions"): "scored",
    ("cpu", "DPO on 246 pairs, two epochs"): "dpo-seed0",
    ("cpu", "4 samples of each of 200 problems, vLLM"): "dpo-seed0-test",
}


def test_the_page_on_hardware_has_the_costs_of_the_stages() -> None:
    """Memory in gigabytes and minutes of the last complete run of each stage."""
    page = (EVIDENCE.parents[1] / "docs/reference/hardware.md").read_text(encoding="utf-8")
    costs = {}
    for size in PAGE_SIZES:
        with (RESULTS / size / "stages.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["status"] == "done":
                    gigabytes = f"{int(row['gpu_mb'] or row['peak_mb']) / 1000:.1f}"
                    on_gpu = " on the GPU" if row["gpu_mb"] else ""
                    minutes = f"{float(row['seconds']) / 60:.1f} minutes"
                    costs[f"{size}/{row['stage']}"] = [f"{gigabytes}{on_gpu}", minutes]
    rows = [
        line.strip("| ").split(" | ")
        for line in page.splitlines()
        if line.startswith("| 0.5B |") and line.endswith("| measured |")
    ]
    assert len(rows) == len(HARDWARE_STAGES)
    for _, work, machine, memory, minutes, _ in rows:
        size = "cpu" if machine == "two CPU cores" else "gpu"
        assert [memory, minutes] == costs[f"{size}/{HARDWARE_STAGES[size, work]}"], work


def test_choices_and_policies_are_those_of_the_samples(tmp_path: Path) -> None:
    """The tables follow from rows that are computed by hand."""
    rows = {
        "choices.csv": (
            "choice,problem_id,value",
            "greedy,{},{}",
            "average,{},0.5",
            "vote,{},0",
            "most likely,{},0",
            "outcome: best,{},{}",
            "outcome: ranking AUC,{},0.75",
        ),
        "policies.csv": (
            "policy,seed,problem_id,greedy,correct,samples,vote,tokens,cut_off",
            "start,0,{},0,1,4,0,400,1",
            "dpo,0,{},1,2,4,1,800,0",
            "dpo,1,{},1,3,4,1,800,0",
        ),
    }
    for name, (header, *lines) in rows.items():
        text = [line.format(f"p{index}", index % 2) for index in range(4) for line in lines]
        (tmp_path / name).write_text("\n".join([header, *text]) + "\n", encoding="utf-8")
    tables = real_tables.render_tables(tmp_path, 8)
    assert "| best of 8: cross-entropy on outcomes | 50.0 [15.0, 85.0] | +50.0 [" in tables
    assert "| 0.750 [" in tables and "(4 problems)" in tables
    assert "| DPO | 2 | 100.0 [" in tables and "| 200 | 0.0 |" in tables
    assert "| the model before training | 1 |" in tables and "| 100 | 25.0 |" in tables
    comparison = "| DPO | the model before training | +37.5 ["
    assert comparison in tables and "| +25.0, +50.0 | [" in tables
