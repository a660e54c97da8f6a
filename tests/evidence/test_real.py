"""Every stage of `make real` at toy size, with the embedded model, and its tables."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fsdpo_data.problems.embedded import CHECKPOINT
from fsdpo_data.problems.embedded.generator import make_problems

EVIDENCE = Path(__file__).parents[2] / "benchmarks/evidence"
RESULTS = EVIDENCE.parent / "measured/real"
sys.path.insert(0, str(EVIDENCE))
import real_run  # noqa: E402
import real_stages  # noqa: E402
import real_tables  # noqa: E402

#: Sizes for a minute on a CPU; the other values are those of `gpu.toml`.
TOY_SIZES = {
    "jobs": 2,
    "shards": 2,
    "dtype": "float32",
    "template": "problem",
    "train_problems": 12,
    "samples": 4,
    "max_tokens": 128,
    "rollouts": 2,
    "select_options": "--per-problem 2",
    "test_problems": 6,
    "policy_problems": 4,
    "policy_samples": 2,
    "seeds": [0],
}
TOY_OPTIONS = {
    "prm_options": "--max-steps 1",
    "policy_options": "--max-steps 1",
    "pair_options": "--no-require-outcome",
}


def write_toml(sizes: dict[str, object], file: Path) -> None:
    """Write sizes as a TOML file; JSON values are TOML values."""
    lines = []
    # Tables come last.
    for name, value in sorted(sizes.items(), key=lambda item: isinstance(item[1], dict)):
        if isinstance(value, dict):
            lines += [f"[{name}]", *(f"{key} = {json.dumps(item)}" for key, item in value.items())]
        else:
            lines.append(f"{name} = {json.dumps(value)}")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_problems(folder: Path) -> None:
    """Write generated training and test problems, and rows in ProcessBench's format."""
    folder.mkdir()
    for split in ("train", "test"):
        rows = [problem.to_row() for problem in make_problems(split, 20, 0)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    rows = [
        {"id": f"row-{index}", "problem": f"What is {index} + 1?", "label": label}
        | {"steps": [f"{index} + 1 = {index + 1}", f"It is {index + 2}."]}
        for index, label in enumerate((1, -1, 0, -1))
    ]
    (folder / "processbench.json").write_text(json.dumps(rows), encoding="utf-8")


def run_script(*arguments: object) -> str:
    """Run `real.py` and return its output."""
    command = [sys.executable, str(EVIDENCE / "real.py"), *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-5000:]
    return process.stdout


@pytest.mark.proof
def test_every_stage_of_a_gpu_runs_at_toy_size(tmp_path: Path) -> None:
    sizes = tomllib.loads((EVIDENCE / "real/gpu.toml").read_text(encoding="utf-8"))
    write_toml(sizes | TOY_SIZES | TOY_OPTIONS, tmp_path / "toy.toml")
    write_problems(tmp_path / "problems")
    arguments = ("run", tmp_path / "toy.toml", "--model", CHECKPOINT)
    folders = ("--out", tmp_path / "runs [1]", "--results", tmp_path / "results")
    printed = run_script(*arguments, "--problems", tmp_path / "problems", *folders)
    for prm in sizes["prms"]:
        assert f"prm-{prm}: done" in printed
    for policy in sizes["policies"]:
        assert f"{policy}-seed0-greedy: done" in printed
    _, _, tables = printed.partition("| choice (6 problems)")
    assert "| best of 4: PQM on Monte-Carlo labels |" in tables
    assert "| Full-Step-DPO, γ 4 | 1 |" in tables and "(4 rows)" in tables
    second = run_script(*arguments, "--problems", tmp_path / "problems", *folders)
    assert "$ " not in second and second.strip() in printed


@pytest.mark.proof
@pytest.mark.filterwarnings("default")
def test_the_real_model_goes_through_every_stage(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    command = [sys.executable, str(EVIDENCE / "real.py"), "run", "smoke", "--out", str(tmp_path)]
    command += ["--results", str(tmp_path / "results")]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode == os.EX_UNAVAILABLE:
        pytest.skip(process.stderr.strip().splitlines()[-1])
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-5000:]
    assert "(4 rows)" in process.stdout
    config = json.loads((tmp_path / "qwen2.5-coder-0.5b-instruct/config.json").read_text())
    assert config["vocab_size"] == 151_936 and "quantization_config" not in config


PAGE_SIZES = [size for size in ("cpu", "gpu") if (RESULTS / size).exists()]


@pytest.mark.parametrize("size", PAGE_SIZES)
def test_the_page_has_the_tables_of_the_numbers(size: str) -> None:
    page = (EVIDENCE.parents[1] / "docs/evidence.md").read_text(encoding="utf-8")
    tables = [table for table in run_script("tables", size).split("\n\n") if table.strip()]
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
        return real_tables.policy_table(tmp_path, 4)

    assert "| difference (points) | detectable |" in table_of(range(1))
    assert "| by seed | 95 % over seeds | detectable |" in table_of(range(2))


def test_stages_have_titles_in_words() -> None:
    """Also stages without a row on the page; numbers come from the recorded command."""
    cpu, gpu = (real_stages.read_sizes(size) for size in ("cpu", "gpu"))
    build = "fsdpo-data build --split train --limit 400 --samples 8 --shard 2/3"
    for name, command, sizes, title in (
        ("samples-shard2", build, gpu, "8 samples of each of 400 training problems, part 2 of 3"),
        ("labelled-shard1", "label --shard 1/3", gpu, "Monte-Carlo labels, 2 con"),
        (
            "test-pqm",
            "score",
            cpu,
            "score 300 × 8 test samples, model on Monte-Carlo labels, with PQM",
        ),
        ("full-step-4-seed1", "dpo", gpu, "train Full-Step-DPO, γ 4, seed 1"),
        (
            "step-dpo-seed0-greedy",
            "fsdpo-data build --split test --limit 200 --samples 1",
            cpu,
            "one greedy solution of each of 200 test problems: Step-DPO",
        ),
    ):
        assert real_tables.stage_title(name, command, sizes).startswith(title)
    for size in PAGE_SIZES:
        table = run_script("tables", size).partition("| stage |")[2]
        assert not re.search(r"^\| [^|]*(rollouts|-seed|-test|\.jsonl?)", table, flags=re.M)


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


def test_a_stage_that_takes_too_long_stops_alone(tmp_path: Path) -> None:
    """The stages that need it are not run; the others are."""
    stages = [
        make_stage("slow", "import time; time.sleep(60)"),
        make_stage("quick", "open(sys.argv[-1], 'w').close()"),
        make_stage("child", "open(sys.argv[-1], 'w').close()", needs=("slow",)),
    ]
    sizes = real_stages.read_sizes("smoke").model_copy(
        update={"minutes": {"other": 0.1}, "jobs": 2}
    )
    runner = real_run.StageRunner(sizes, tmp_path, tmp_path / "results")
    assert runner.run(stages, []) == 2
    assert (tmp_path / "quick").exists() and not (tmp_path / "child").exists()
    rows = (tmp_path / "results/stages.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 3
    assert any(row.startswith("slow,stopped after 0.1 minutes,") for row in rows)
    assert runner.run(stages, ["quick"]) == 0


def make_stage(name: str, code: str, needs: tuple[str, ...] = ()) -> Any:
    command = (sys.executable, "-c", f"import sys; {code}")
    return real_stages.EvidenceStage(name, "other", command, needs)


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
    tables = real_tables.render_tables(tmp_path, real_stages.read_sizes("cpu"))
    assert "| best of 8: cross-entropy on outcomes | 50.0 [15.0, 85.0] | +50.0 [" in tables
    assert "| 0.750 [" in tables and "(4 problems)" in tables
    assert "| DPO | 2 | 100.0 [" in tables and "| 200 | 0.0 |" in tables
    assert "| the model before training | 1 |" in tables and "| 100 | 25.0 |" in tables
    comparison = "| DPO | the model before training | +37.5 ["
    assert comparison in tables and "| +25.0, +50.0 | [" in tables
