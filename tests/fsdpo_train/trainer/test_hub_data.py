"""A dataset on the Hub is checked by its manifest, as the directory that was pushed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grown import grow
from hub_server import TOKEN, client_env, run_client, running_hub
from paired_data import paired_dataset
from random_model import save_random_model
from step_dpo_rows import STEP_DPO_ROWS

from fsdpo_data.dataset.manifest import read_manifest

pytest.importorskip("torch")

COMMAND = "import sys\nfrom {0}.cli.app import main\nsys.argv = {1!r}\nmain()\n"
OPEN = """
from fsdpo_data.core.errors import InputError
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES
from fsdpo_train.preference.pairs import open_pairs
from fsdpo_train.prm.data import open_solutions
for name in ("o/paired", "o/imported"):
    try:
        [source] = open_pairs([name], PREFERENCE_LOSSES["dpo"]).sources
        print(source.manifest.digest, source.provenance["prm"])
        [source] = open_solutions([name]).sources
        print(sorted(row["question"] for _, row in source.rows())[0])
    except InputError as error:
        print(error)
"""


def data_command(words: Sequence[str]) -> str:
    """Return a program that runs `fsdpo-data`."""
    return COMMAND.format("fsdpo_data", ["fsdpo-data", *words])


def test_a_dataset_on_the_hub_has_the_checks_of_its_manifest(tmp_path: Path) -> None:
    paired = paired_dataset(tmp_path / "paired")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in STEP_DPO_ROWS))
    imported = tmp_path / "imported"
    commands = [
        ["import", str(rows), "--from", "step-dpo-10k", "--out", str(imported)],
        ["push", str(paired), "o/paired"],
        ["push", str(imported), "o/imported"],
    ]
    with running_hub() as hub:
        env = client_env(hub.url, tmp_path / "home", HF_TOKEN=TOKEN, PYTHONWARNINGS="default")
        for code in (*(data_command(words) for words in commands), OPEN):
            ran = run_client(code, env)
            assert ran.returncode == 0, ran.stderr[-3000:]
    digest_line, question, refusal = ran.stdout.splitlines()
    assert digest_line == f"{read_manifest(paired).digest} made-up-prm@sha256:0"
    assert question.startswith("What is 20 + 22")
    assert "the imported pairs of o/imported@" in refusal


def test_a_newer_dataset_is_pushed_pulled_and_trained_on(tmp_path: Path) -> None:
    """A dataset of schema 1.1 keeps its columns, and trains like one of this release."""
    plain = paired_dataset(tmp_path / "plain")
    columns = {"solutions": {"confidence": pa.float64()}, "pairs": {"note": pa.string()}}
    newer = grow(plain, tmp_path / "newer", columns, version="1.1", licence_notes={"text": "MIT"})
    policy = save_random_model(tmp_path / "policy")
    commands = [data_command(["push", str(newer), "o/newer"])]
    pull = ["pull", "o/newer@v1.1.0", "--out", str(tmp_path / "pulled")]
    commands.append(data_command(pull))
    for data in (str(plain), "o/newer@v1.1.0"):
        out = tmp_path / f"trained on {data.rpartition('/')[2]}"
        words = ["dpo", data, "--model", str(policy), "--out", str(out)]
        words += ["--max-steps", "2", "--lr", "1e-3", "--batch-size", "2"]
        commands.append(COMMAND.format("fsdpo_train", ["fsdpo-train", *words]))
    with running_hub() as hub:
        env = client_env(hub.url, tmp_path / "home", HF_TOKEN=TOKEN, PYTHONWARNINGS="default")
        for code in commands:
            ran = run_client(code, env)
            assert ran.returncode == 0, ran.stderr[-3000:]
    for config, names in columns.items():
        [file] = (tmp_path / "pulled" / config).glob("*.parquet")
        assert {*names} <= set(pq.read_schema(file).names)
        assert file.read_bytes() == (newer / config / file.name).read_bytes()
    weights = [file.read_bytes() for file in sorted(tmp_path.glob("trained on */*.safetensors"))]
    assert len(weights) == 2 and weights[0] == weights[1]
