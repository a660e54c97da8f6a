"""Numbers in JSON files and in the output of ``--json`` are numbers, never texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from fsdpo_bench.cli.app import app as bench_app
from typer.testing import CliRunner

from fsdpo_data.cli.app import app as data_app
from fsdpo_train.cli.app import app as train_app
from fsdpo_train.config import DpoConfig, PrmConfig, SftConfig, TrainConfig

APPS = {"fsdpo-data": data_app, "fsdpo-train": train_app, "fsdpo-bench": bench_app}
#: Keys of texts that a model or a user wrote, of metadata of problems, and of digests and versions.
TEXT_KEYS = {
    *("answer", "gold", "question", "prompt", "text", "steps", "completions", "choice"),
    *("digest", "config_digest", "manifest_digest", "revision", "sha256", "problem_id", "version"),
    *("schema_version", "text_sha256", "parent", "data", "metadata"),
}
#: Files of other programs, whose formats are theirs.
FOREIGN_FILES = {"tokenizer.json", "tokenizer_config.json"}


def number_texts(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path and the value of each text that is a number, at any depth."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in TEXT_KEYS:
                yield from number_texts(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from number_texts(item, f"{path}[{index}]")
    elif isinstance(value, str):
        try:
            float(value)
        except ValueError:
            is_number = value in ("True", "False", "None", "true", "false", "null")
        else:
            is_number = True
        if is_number:
            yield f"{path} = {value!r}"


@pytest.mark.parametrize("config_class", [SftConfig, PrmConfig, DpoConfig])
def test_the_record_of_a_training_has_json_values(config_class: type[TrainConfig]) -> None:
    config = config_class(data=Path("runs/data"), out=Path("runs/out"), model="tiny", epochs=2)
    identity = config.identity()
    assert json.loads(json.dumps(identity)) == identity
    assert not [*number_texts(identity)]


@pytest.mark.proof
def test_no_number_is_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    common = "--save-every 2 --log-every 1 --max-steps 2 --grad-accum 1"
    bench = "--model tiny --task embedded --limit 4 --k 2 --max-tokens 32 --device cpu"
    lines = [
        "fsdpo-data build --model tiny --limit 8 --samples 4 --out data",
        f"fsdpo-train prm data --model tiny --eval-every 1 --held-out 0.3 {common} --out prm",
        "fsdpo-data score data --prm prm --out scored",
        "fsdpo-data pair scored --out pairs",
        f"fsdpo-train dpo pairs --model tiny {common} --out policy",
        "fsdpo-data export pairs --to trl-sft --out rows",
        f"fsdpo-train sft rows/sft.jsonl --model tiny {common} --out sft",
        "fsdpo-data validate pairs --json",
        "fsdpo-data diff data pairs --json",
        f"fsdpo-bench run {bench} --decoder greedy,bon,sc,weighted --prm prm --out a --json",
        f"fsdpo-bench run {bench} --decoder greedy,sc --seed 1 --out b --json",
        "fsdpo-bench diff a b --json",
        "fsdpo-bench report a --json",
        "fsdpo-bench prm scored --json",
    ]
    for line in lines:
        program, *words = line.split()
        done = CliRunner().invoke(APPS[program], words)
        assert done.exit_code == 0, (line, done.output, done.exception)
        if words[-1] == "--json":
            assert not [*number_texts(json.loads(done.stdout))], line
    files = [file for file in tmp_path.rglob("*.json*") if file.name not in FOREIGN_FILES]
    names = {file.name for file in files}
    assert {"trainer_state.json", "results.json", "manifest.json", "dpo.json", "prm.json"} <= names
    for file in files:
        text = file.read_text(encoding="utf-8")
        values = (
            [json.loads(text)] if file.suffix == ".json" else map(json.loads, text.splitlines())
        )
        assert not [*number_texts([*values])], file
