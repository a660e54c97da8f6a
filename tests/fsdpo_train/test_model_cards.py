"""Cards of trained models pass the Hub's checks and show working commands."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fsdpo_cards import model_card
from fsdpo_cards.model import TrainingRun, TrainingSource
from hub_server import TOKEN, client_env, run_client, running_hub
from huggingface_hub import ModelCard
from jinja2 import UndefinedError
from paired_data import paired_dataset

from fsdpo_data.cli.app import app as data_app
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.problems.embedded import CHECKPOINT
from fsdpo_train.cli.app import app
from fsdpo_train.config import PrmConfig

ROWS = [{"prompt": f"Problem: {i}\nSolution:\n", "completion": f"It is {i}."} for i in range(8)]
COMMIT = "0123456789" * 4


def train(*arguments: object) -> None:
    app([str(argument) for argument in arguments], standalone_mode=False)


def run_data(*arguments: object) -> None:
    data_app([str(argument) for argument in arguments], standalone_mode=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paired_dataset(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Return a folder with a model of each stage."""
    folder = tmp_path_factory.mktemp("trained")
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    tiny = ("--model", "tiny")
    short_run = ("--max-steps", 2, "--lr", 1e-3, "--no-group-by-length")
    train(
        "prm",
        data,
        *tiny,
        "--held-out",
        0.6,
        "--grad-accum",
        1,
        *short_run,
        "--out",
        folder / "prm",
    )
    train("dpo", data, *tiny, "--loss", "dpo", *short_run, "--out", folder / "dpo")
    train("sft", rows, "--from-config", CHECKPOINT, *short_run, "--out", folder / "sft")
    return folder


def card_of(models: Path, stage: str) -> str:
    return (models / stage / "README.md").read_text(encoding="utf-8")


def command_of(card: str, stage: str) -> list[str]:
    """Return the arguments of the training command that a card shows."""
    match = re.search(rf"^fsdpo-train ({stage} .*?)\n```", card, re.S | re.M)
    assert match
    return shlex.split(match[1].replace("\\\n", " "))


def test_the_hubs_own_checks_pass(models: Path, tmp_path: Path) -> None:
    code = (
        "import pathlib\n"
        "from huggingface_hub import ModelCard\n"
        "for stage in ('prm', 'dpo', 'sft'):\n"
        f"    card = ModelCard(pathlib.Path({str(models)!r}, stage, 'README.md').read_text())\n"
        "    card.validate()\n"
        "    print(card.data.pipeline_tag, len(card.data.eval_results or []))\n"
    )
    with running_hub() as hub:
        ran = run_client(code, client_env(hub.url, tmp_path / "home", HF_TOKEN=TOKEN))
        assert hub.requests == ["POST /api/validate-yaml"] * 3
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "token-classification 3",
        "text-generation 0",
        "text-generation 0",
    ]


def test_evaluation_results_are_in_the_model_index(models: Path) -> None:
    card = ModelCard(card_of(models, "prm"))
    match = re.search(r"^\| ranking_auc \| ([\d.]+) \|$", card.content, re.M)
    assert match
    accuracy, auc, ranking = card.data.eval_results
    assert (accuracy.metric_type, auc.metric_type) == ("accuracy", "roc_auc")
    assert ranking.metric_value == pytest.approx(float(match[1]), abs=1e-4)
    assert ranking.dataset_name == "pairs, problems held out of training"


@pytest.mark.parametrize("stage", ["prm", "dpo", "sft"])
def test_cards_show_no_local_paths(models: Path, stage: str) -> None:
    card = card_of(models, stage)
    for path in (str(models.parent), str(Path.home()) + "/", str(CHECKPOINT.parent)):
        assert path not in card


@pytest.mark.parametrize("stage", ["prm", "dpo", "sft"])
def test_the_command_of_a_card_trains_the_same_model(
    models: Path, data: Path, tmp_path: Path, stage: str
) -> None:
    replacements = {
        "pairs": data,
        "rows.jsonl": models / "rows.jsonl",
        "checkpoint": CHECKPOINT,
        f"runs/{stage}": tmp_path / "again",
    }
    arguments = command_of(card_of(models, stage), stage)
    assert set(arguments) & set(replacements)
    train(*(replacements.get(argument, argument) for argument in arguments))
    for name in (f"{stage}.json", "model.safetensors"):
        first, second = (folder / name for folder in (models / stage, tmp_path / "again"))
        assert first.read_bytes() == second.read_bytes()


def test_the_card_describes_the_origin_of_the_data(models: Path) -> None:
    card = card_of(models, "dpo")
    for line in (
        "| problems | `test`, split `train`, at `1` |",
        "| step rewards | `made-up-prm` at `sha256:0`, engine none, dtype float32 |",
        "| `test` | unknown |",
        "in 0 and shorter in 0 of 12 pairs",
        "The problems have not been compared with benchmarks.",
    ):
        assert line in card


def make_run(**changes: Any) -> TrainingRun:
    report = {"rows": 1, "tokens": 2, "steps": 3, "loss": 0.5, "too_long": 0, "unusable": 0}
    run = TrainingRun(
        stage="sft",
        name="mine",
        model=f"org/base@{COMMIT}",
        sources=[TrainingSource(f"org/rows@{COMMIT}", rows=1)],
        report=report,
        options={"lr": "1"},
        command=f"fsdpo-train sft org/rows@{COMMIT} --model org/base@{COMMIT}",
    )
    return replace(run, **changes)


def test_hub_models_and_datasets_are_linked_with_their_commit() -> None:
    card = ModelCard(model_card(make_run()))
    assert card.data.base_model == "org/base" and card.data.datasets == ["org/rows"]
    assert f"```bash\n{make_run().command}\n```" in card.content


def test_an_undefined_field_is_an_error() -> None:
    report = {"rows": 1, "tokens": 2, "steps": 3, "too_long": 0, "unusable": 0}
    with pytest.raises(UndefinedError, match="loss"):
        model_card(make_run(report=report))


LABEL_KINDS = {
    "rollouts": "estimates from 2 continuations of each step",
    "search": "a binary search for the first error with 2 continuations",
    "judge": "the fraction of 2 critiques of a judge",
    "imported": "imported from the format `processbench`",
}


@pytest.mark.parametrize("kind", LABEL_KINDS)
def test_the_card_states_what_the_labels_are(kind: str, data: Path, tmp_path: Path) -> None:
    labelled = tmp_path / "labelled"
    if kind == "imported":
        rows = [
            {"problem": f"{n} + 4?", "steps": ["First.", f"It is {n + 4}."], "label": n % 3 - 1}
            for n in range(6)
        ]
        file = tmp_path / "rows.json"
        file.write_text(json.dumps(rows))
        run_data("import", file, "--from", "processbench", "--out", labelled)
    else:
        search = ("--search", "first-error") if kind == "search" else ()
        run_data("label", data, "--rollouts", 2, "--model", "tiny", *search, "--out", labelled)
    if kind == "judge":
        manifest = read_manifest(labelled)
        [entry] = [entry for entry in manifest.stages if entry.name == "label"]
        entry.options["judge"] = {"name": "j", "digest": "d", "meaning": "probability"}
        (labelled / "manifest.json").write_text(manifest.to_json())
    short_run = ("--max-steps", 1, "--held-out", 0, "--no-group-by-length")
    train("prm", labelled, "--model", "tiny", *short_run, "--out", tmp_path / "prm")
    card = " ".join((tmp_path / "prm/README.md").read_text(encoding="utf-8").split())
    assert f"labels {'are ' if kind != 'search' else 'come from '}{LABEL_KINDS[kind]}" in card


def test_a_model_and_its_start_model_may_have_one_name(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command of the card has the name of a model without its folders."""
    start = tmp_path / "models/policy"
    shutil.copytree(CHECKPOINT, start)
    monkeypatch.chdir(tmp_path)
    short_run = ("--max-steps", 1, "--held-out", 0, "--no-group-by-length")
    train("prm", data, "--model", start, *short_run, "--out", "policy")
    assert "--model policy" in (tmp_path / "policy/README.md").read_text(encoding="utf-8")


def test_an_output_may_have_the_short_name_of_a_model() -> None:
    config = PrmConfig(data=("rows.jsonl",), model="tiny", out=Path("tiny"))
    assert config.out == Path("tiny")
