"""Wrong calls of users: each ends in a message that names the mistake and the next step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fsdpo_bench.cli.app import app as bench_app
from helpers import small_build
from random_model import save_random_model
from typer.testing import CliRunner

from fsdpo_data.cli.app import app as data_app
from fsdpo_train.cli.app import app as train_app

pytest.importorskip("torch")

APPS = {"fsdpo-data": data_app, "fsdpo-train": train_app, "fsdpo-bench": bench_app}
UNKNOWN_OPTION = 2  #: Exit code for a command line that cannot be read.
#: Calls in a folder with the dataset `data`, the language model `policy`, the pairs `plain.jsonl`
#: and an empty folder `runs`; each with words of its message, in their order.
CALLS = {
    "fsdpo-train prm runs/nope --model tiny --out new": (
        "DATA runs/nope: no such file or directory. Expected a dataset with solutions, or a .jsonl "
        "or .parquet file with the columns prompt, completions, labels."
    ),
    "fsdpo-train prm nobody/nope --model tiny --out new": (
        "no such file or directory: nobody/nope; cannot reach the Hugging Face Hub"
    ),
    "fsdpo-train dpo nope.jsonl --model tiny --out new": (
        "nope.jsonl: no such file or directory. Expected a dataset with pairs"
    ),
    "fsdpo-train sft plaim.jsonl --model tiny --out new": "Nearest: plain.jsonl.",
    "fsdpo-data score data --prm runs/nope --out new": (
        "--prm runs/nope: no such file or directory. Expected a model directory"
    ),
    "fsdpo-data score data --prm tiny --out new": (
        "--prm tiny: the model is a language model (Qwen2ForCausalLM), not a reward model"
    ),
    "fsdpo-data score data --prm data --out new": "--prm data: the directory is a dataset",
    "fsdpo-bench run --task embedded --model data": (
        "--model data: the directory is a dataset, not a model"
    ),
    "fsdpo-bench run --model tiny --limit 20": "no benchmark is named. Set --task or --suite",
    "fsdpo-bench run --task mth --model tiny": "--task mth: expected one of gsm8k",
    "fsdpo-bench report nope": "no such file or directory: nope. Expected a dataset",
    "fsdpo-data grade data --out data": "--out data: this is the dataset that the command reads",
    "fsdpo-train prm data --model tiny --out data": "--out data: this is the training data",
    "fsdpo-train prm data --model ./policy --out policy": "--out policy: this is the start model",
    "fsdpo-train prm data --model tiny --out policy": (
        "--out policy: the directory holds other files (config.json"
    ),
    "fsdpo-train dpo data --model tiny --out new": (
        "the dataset has no pairs. Score and pair it first: fsdpo-data score data"
    ),
    "fsdpo-train dpo plain.jsonl --model tiny --out new": (
        "use a loss without steps, such as --loss dpo"
    ),
    "fsdpo-train dpo plain.jsonl --model tiny --out new --loss sipo": "--loss sipo: expected",
    "fsdpo-train dpo plain.jsonl --model tiny --out new --loss dpo --attention flex": (
        "--attention flex: FlexAttention has gradients on GPUs only"
    ),
    "fsdpo-train prm data --out new --per-device-train-batch-size 4": (
        "No such option: --per-device-train-batch-size (Possible options: --batch-size)"
    ),
    "fsdpo-data pair data --out new --plugin mine.py": (
        "No such option: --plugin (Possible options: --plugin before the command)"
    ),
    "fsdpo-train prm data --out new --num_train_epochs 4": "(Possible options: --epochs)",
    "fsdpo-train prm data --out new --learning-rate 0": "--lr 0: expected more than 0",
    "fsdpo-data build --problems gsm9k": "no source 'gsm9k': expected embedded",
    "fsdpo-data build --problems rows.jsonl --out new": "no such file or directory: rows.jsonl",
    "fsdpo-data build --model qwen2-7b-stf": "Nearest short names: qwen2-7b-sft",
    "fsdpo-data build --model plain.jsonl --out new": "this is a file. Expected a model directory",
    "fsdpo-data grade data --judge judge.toml --out new": "judge.toml: the file cannot be read",
    "fsdpo-data export data --to trl --out new": "--to trl: expected one of trl-preference",
    "fsdpo-data inspect policy": "policy holds no dataset (manifest.json is missing)",
    "fsdpo-data pair data --out new": "has no step rewards",
}


def make_inputs(folder: Path) -> None:
    """Write the inputs of the calls."""
    small_build(folder / "data")
    save_random_model(folder / "policy")
    pair = {"prompt": "1 + 1?", "chosen": "It is 2.", "rejected": "It is 3."}
    (folder / "plain.jsonl").write_text(json.dumps(pair) + "\n")
    (folder / "runs").mkdir()


def call(line: str) -> tuple[int, str]:
    """Run a command line in this process; return its exit code and its message."""
    program, *words = line.split()
    result = CliRunner().invoke(APPS[program], words, env={"COLUMNS": "200"})
    message = result.output
    if isinstance(result.exception, Exception):  # `run_app` prints it after `error:`
        message = f"{message}error: {result.exception}"
    return result.exit_code, " ".join(message.replace("│", " ").split())


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calls")
    make_inputs(folder)
    return folder


@pytest.mark.parametrize("line", CALLS)
def test_a_wrong_call_names_the_mistake(
    line: str, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(inputs)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    old_files = sorted(inputs.rglob("*"))
    code, message = call(line)
    assert CALLS[line] in message
    assert code == (UNKNOWN_OPTION if "No such option" in message else 1)
    assert "Traceback" not in message
    assert sorted(inputs.rglob("*")) == old_files, "the call left files"


def test_names_that_are_not_near_are_not_suggested(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(inputs)
    for line in (
        "fsdpo-train dpo zebra.jsonl --model tiny --out new",
        "fsdpo-train dpo plain.jsonl --model tiny --out new --loss zebra",
    ):
        assert "Nearest" not in call(line)[1]
