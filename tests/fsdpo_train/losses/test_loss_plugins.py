"""A plug-in adds a preference loss, which works like a built-in one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from preference_data import preference_rows
from prm_data import write_rows
from random_model import save_random_model

pytest.importorskip("torch")

from fsdpo_data.core.plugins import PLUGINS_VARIABLE

#: A reference-free loss that is no weighting: the hinge of SLiC on mean log-probabilities.
PLUGIN = """
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES, PreferenceLoss


def slic_loss(pairs, spec):
    chosen_P = pairs.chosen_P / pairs.chosen_tokens_P
    rejected_P = pairs.rejected_P / pairs.rejected_tokens_P
    return (1 - (chosen_P - rejected_P) / spec.beta).clamp_min(0)


PREFERENCE_LOSSES.register(
    PreferenceLoss(
        name="slic",
        summary="Hinge on mean log-probabilities",
        source="Zhao et al. 2023",
        uses_reference=False,
        pair_loss=slic_loss,
    )
)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    file = tmp_path / "slic_plugin.py"
    file.write_text(PLUGIN)
    return file


def run_dpo(
    folder: Path, out: str, plugin: Path, *options: object, processes: int = 1
) -> subprocess.CompletedProcess[str]:
    """Run ``fsdpo-train dpo --loss slic``; the processes find the plug-in in their environment."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes]
    launch = torchrun if processes > 1 else []
    line = [sys.executable, *launch, "-m", "fsdpo_train", "dpo", folder / "pairs.jsonl"]
    line += ["--model", folder / "policy", "--loss", "slic", "--lr", "1e-3", "--log-every", 1]
    line += ["--no-group-by-length", "--out", folder / out, *options]
    env = {**os.environ, "OMP_NUM_THREADS": "1", PLUGINS_VARIABLE: str(plugin)}
    return subprocess.run(list(map(str, line)), env=env, capture_output=True, text=True)


def losses(out: Path, step: int) -> list[float]:
    state = json.loads((out / f"checkpoints/checkpoint-{step}/trainer_state.json").read_text())
    return [entry["loss"] for entry in state["log_history"] if "loss" in entry]


def prepare(folder: Path) -> None:
    """Write a policy and pairs to ``folder``."""
    save_random_model(folder / "policy")
    write_rows(folder / "pairs.jsonl", preference_rows())


OPTIONS = ("--save-every", 3, "--max-steps", 6, "--save-limit", 9)


@pytest.mark.proof
def test_a_loss_of_a_plugin_trains_on_two_processes_and_resumes(
    plugin: Path, tmp_path: Path
) -> None:
    prepare(tmp_path)
    single = run_dpo(tmp_path, "single", plugin, *OPTIONS, "--batch-size", 2)
    assert single.returncode == 0, single.stderr[-3000:]
    double = run_dpo(tmp_path, "double", plugin, *OPTIONS, "--batch-size", 1, processes=2)
    assert double.returncode == 0, double.stderr[-3000:]
    expected_losses = losses(tmp_path / "single", 6)
    assert losses(tmp_path / "double", 6) == pytest.approx(expected_losses, rel=1e-3)

    changed = tmp_path / "changed" / plugin.name
    changed.parent.mkdir()
    changed.write_text(PLUGIN.replace("(1 -", "(2 -"))
    resume = [*OPTIONS, "--batch-size", 2, "--resume"]
    refused = run_dpo(tmp_path, "single", changed, *resume)
    assert refused.returncode == 1 and "these keys differ:\n  plugins: " in refused.stderr
    shutil.rmtree(tmp_path / "single/checkpoints/checkpoint-6")
    resumed = run_dpo(tmp_path, "single", plugin, *resume)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert losses(tmp_path / "single", 6) == expected_losses


def test_help_describes_the_losses_of_plugins(plugin: Path) -> None:
    """The plug-in is loaded before the help is printed, as ``--plugin`` does."""
    code = (
        f"from fsdpo_data.core.plugins import load_plugin; load_plugin({str(plugin)!r}); "
        "import sys; sys.argv = ['fsdpo-train', 'dpo', '--help']; "
        "from fsdpo_train.cli.app import main; main()"
    )
    env = {**os.environ, "COLUMNS": "200"}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    text = " ".join(ran.stdout.replace("│", " ").split())
    assert "Hinge on mean log-probabilities (Zhao et al. 2023; reads" in text
