"""A dataset on the Hub is checked by its manifest, as the directory that was pushed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hub_server import TOKEN, client_env, run_client, running_hub
from paired_data import paired_dataset
from step_dpo_rows import STEP_DPO_ROWS

from fsdpo_data.dataset.manifest import read_manifest

pytest.importorskip("torch")

COMMAND = "import sys\nfrom fsdpo_data.cli.app import main\nsys.argv = {0!r}\nmain()\n"
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
        print(sorted(row["prompt"].question for _, row in source.rows())[0])
    except InputError as error:
        print(error)
"""


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
        for code in (*(COMMAND.format(["fsdpo-data", *words]) for words in commands), OPEN):
            ran = run_client(code, env)
            assert ran.returncode == 0, ran.stderr[-3000:]
    digest_line, question, refusal = ran.stdout.splitlines()
    assert digest_line == f"{read_manifest(paired).digest} made-up-prm@sha256:0"
    assert question.startswith("What is 20 + 22")
    assert "the imported pairs of o/imported@" in refusal
