"""TRL trains on exported and on published datasets without changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import TOKEN, HubServer, client_env, run_client, running_hub
from paired_data import paired_dataset

from fsdpo_data.exchange.export import export
from fsdpo_data.problems.embedded import CHECKPOINT

pytestmark = pytest.mark.proof
pytest.importorskip("trl", reason="needs TRL (the extra dev)")

TRAIN_PROGRAM = """
import json, sys
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import {trainer}Trainer, {trainer}Config
rows = load_dataset({dataset!r}, {config!r}, split="train", **{options!r})
model = AutoModelForCausalLM.from_pretrained({checkpoint!r})
tokenizer = AutoTokenizer.from_pretrained({checkpoint!r})
settings = {trainer}Config(
    output_dir={out!r}, max_steps=2, per_device_train_batch_size=2, use_cpu=True, bf16=False,
    logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True,
)
trainer = {trainer}Trainer(
    model=model, args=settings, train_dataset=rows, processing_class=tokenizer
)
trainer.train()
print(json.dumps([entry["loss"] for entry in trainer.state.log_history if "loss" in entry]))
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paired_dataset(tmp_path_factory.mktemp("trl"))


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with running_hub() as server:
        yield server


def train_with_trl(
    hub: HubServer, home: Path, trainer: str, dataset: str, config: str | None, **options: str
):
    """Train two steps with TRL in a fresh process and return the losses."""
    code = TRAIN_PROGRAM.format(
        trainer=trainer,
        dataset=dataset,
        config=config,
        options=options,
        checkpoint=str(CHECKPOINT),
        out=str(home / "out"),
    )
    env = client_env(hub.url, home, HF_TOKEN=TOKEN, OMP_NUM_THREADS="1", PYTHONWARNINGS="default")
    ran = run_client(code, env)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("trainer", "name"), [("DPO", "trl-preference"), ("SFT", "trl-sft"), ("KTO", "trl-unpaired")]
)
def test_trl_trains_on_exports(
    hub: HubServer, dataset: Path, tmp_path: Path, trainer: str, name: str
) -> None:
    file = export(dataset, name, tmp_path / "out").file
    step_losses = train_with_trl(
        hub, tmp_path / "home", trainer, "json", None, data_files=str(file)
    )
    assert len(step_losses) == 2 and all(loss > 0 for loss in step_losses)


def run_commands(hub: HubServer, home: Path, *command_lines: list[str]) -> None:
    """Run each command line in a fresh process."""
    for module, *arguments in command_lines:
        argv = [module, *arguments]
        code = f"import sys; from {module}.cli.app import main; sys.argv = {argv}; main()"
        env = client_env(hub.url, home, HF_TOKEN=TOKEN, OMP_NUM_THREADS="1")
        ran = run_client(code, {**env, "PYTHONWARNINGS": "default"})
        assert ran.returncode == 0, ran.stderr[-3000:]


def test_trl_trains_on_published_pairs_by_name(
    hub: HubServer, dataset: Path, tmp_path: Path
) -> None:
    run_commands(hub, tmp_path / "home", ["fsdpo_data", "push", str(dataset), "o/r"])
    step_losses = train_with_trl(hub, tmp_path / "home", "DPO", "o/r", "pairs", revision="v1.0.0")
    assert len(step_losses) == 2
    assert step_losses[0] == pytest.approx(0.6931, abs=1e-3)  # policy and reference are the same


def test_trl_trains_on_a_dataset_built_scored_paired_and_published(
    hub: HubServer, tmp_path: Path
) -> None:
    """Run all stages: build, train a PRM, score, pair, push, pull, and train with TRL."""
    built, prm, scored, pairs = (str(tmp_path / name) for name in ("a", "prm", "b", "c"))
    home = tmp_path / "home"
    build = f"build --limit 16 --samples 6 --max-tokens 160 --engine transformers --out {built}"
    train = f"prm {built} --model tiny --batch-size 16 --held-out 0 --out {prm}"
    run_commands(
        hub,
        home,
        ["fsdpo_data", *build.split()],
        ["fsdpo_train", *train.split()],
        ["fsdpo_data", "score", built, "--prm", prm, "--out", scored],
        ["fsdpo_data", "pair", scored, "--out", pairs],
        ["fsdpo_data", "push", pairs, "o/embedded"],
        ["fsdpo_data", "pull", "o/embedded@v1.0.0", "--out", str(tmp_path / "pulled")],
        ["fsdpo_data", "diff", pairs, str(tmp_path / "pulled")],
    )
    card = hub.repos["dataset", "o/embedded"].at("v1.0.0")["README.md"].decode()
    assert "| `embedded` | apache-2.0 |" in card and "Step rewards in correct solutions" in card
    assert str(tmp_path) not in card
    step_losses = train_with_trl(hub, home, "DPO", "o/embedded", "pairs", revision="v1.0.0")
    assert step_losses[0] == pytest.approx(0.6931, abs=1e-3)
