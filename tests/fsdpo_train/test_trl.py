"""TRL trains on what is exported and on what is published, as it is."""

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

TRAIN = """
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
print(json.dumps([each["loss"] for each in trainer.state.log_history if "loss" in each]))
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paired_dataset(tmp_path_factory.mktemp("trl"))


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with running_hub() as server:
        yield server


def losses(
    hub: HubServer, home: Path, trainer: str, dataset: str, config: str | None, **options: str
):
    """Train two steps in a fresh process; return the losses."""
    code = TRAIN.format(
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
    found = losses(hub, tmp_path / "home", trainer, "json", None, data_files=str(file))
    assert len(found) == 2 and all(loss > 0 for loss in found)


def commands(hub: HubServer, home: Path, *listed: list[str]) -> None:
    """Run command lines, each in a fresh process of its own."""
    for module, *arguments in listed:
        argv = [module, *arguments]
        code = f"import sys; from {module}.cli.app import main; sys.argv = {argv}; main()"
        env = client_env(hub.url, home, HF_TOKEN=TOKEN, OMP_NUM_THREADS="1")
        ran = run_client(code, {**env, "PYTHONWARNINGS": "default"})
        assert ran.returncode == 0, ran.stderr[-3000:]


def test_trl_trains_on_published_pairs_by_name(
    hub: HubServer, dataset: Path, tmp_path: Path
) -> None:
    commands(hub, tmp_path / "home", ["fsdpo_data", "push", str(dataset), "o/r"])
    found = losses(hub, tmp_path / "home", "DPO", "o/r", "pairs", revision="v1.0")
    assert len(found) == 2
    assert found[0] == pytest.approx(0.6931, abs=1e-3)  # policy and reference are the same


def test_from_problems_to_training_on_what_was_published(hub: HubServer, tmp_path: Path) -> None:
    """Build, train a reward model, score, pair, push, pull, load by name, train."""
    built, prm, scored, pairs = (str(tmp_path / name) for name in ("a", "prm", "b", "c"))
    home = tmp_path / "home"
    build = f"build --limit 16 --samples 6 --max-tokens 160 --engine transformers --out {built}"
    train = f"prm {built} --model tiny --batch-size 16 --held-out 0 --out {prm}"
    commands(
        hub,
        home,
        ["fsdpo_data", *build.split()],
        ["fsdpo_train", *train.split()],
        ["fsdpo_data", "score", built, "--prm", prm, "--out", scored],
        ["fsdpo_data", "pair", scored, "--out", pairs],
        ["fsdpo_data", "push", pairs, "o/embedded"],
        ["fsdpo_data", "pull", "o/embedded@v1.0", "--out", str(tmp_path / "pulled")],
        ["fsdpo_data", "diff", pairs, str(tmp_path / "pulled")],
    )
    card = hub.repos["dataset", "o/embedded"].at("v1.0")["README.md"].decode()
    assert "| `embedded` | apache-2.0 |" in card and "Step rewards in correct solutions" in card
    assert str(tmp_path) not in card
    found = losses(hub, home, "DPO", "o/embedded", "pairs", revision="v1.0")
    assert found[0] == pytest.approx(0.6931, abs=1e-3)
