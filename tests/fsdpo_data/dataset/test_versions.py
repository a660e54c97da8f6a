"""Tests of the schema version, of the frozen dataset, and of diffs."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grown import grow
from helpers import small_build
from paired_data import paired_dataset

from fsdpo_data.cli.app import main
from fsdpo_data.core.errors import SchemaError, StoreError
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.diff import ConfigDiff, diff_datasets, option_changes
from fsdpo_data.dataset.manifest import FileEntry, files_digest, read_manifest
from fsdpo_data.dataset.schema import SCHEMA_VERSION, VERSION_KEY, digest_bytes
from fsdpo_data.dataset.validate import validate
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.publish.pull import pull_dataset
from fsdpo_data.stages.pair import PairStage

DATA = Path(__file__).parents[2] / "data"
FROZEN = DATA / "frozen" / SCHEMA_VERSION
FROZEN_DIGEST = "6e4ca0625d61b8221304"


@pytest.mark.parametrize("version", ["1.0"])
def test_a_dataset_of_each_version_is_read(version: str) -> None:
    """A release that raises MINOR adds the dataset of its version, and the others stay."""
    assert read_manifest(FROZEN.with_name(version)).schema_version == version
    validate(FROZEN.with_name(version))


def test_the_frozen_dataset_is_read() -> None:
    manifest = validate(FROZEN)
    assert manifest.schema_version == SCHEMA_VERSION
    assert manifest.digest == FROZEN_DIGEST
    assert manifest.rows == (2, 8, 8)
    pairs = pl.read_parquet(FROZEN / "pairs/*.parquet")
    assert pairs["chosen"][0].endswith("The answer is: 42")


def test_the_frozen_dataset_is_remade_from_its_responses(tmp_path: Path) -> None:
    """`make frozen` writes these files."""
    makefile = (DATA.parents[1] / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"\$\(BIN\)/fsdpo-data (import|pair) (.*runs/frozen.*)", makefile)
    assert [command for command, _ in commands] == ["import", "pair"]
    for command, arguments in commands:
        line = arguments.replace("$(FROZEN)", str(FROZEN.parent)).replace("runs", str(tmp_path))
        ran = subprocess.run(
            [sys.executable, "-m", "fsdpo_data", command, *line.split()], capture_output=True
        )
        assert ran.returncode == 0, ran.stderr
    assert read_manifest(tmp_path / "frozen-pairs").digest == FROZEN_DIGEST


@pytest.mark.parametrize("change", ["other types", "footer"])
def test_files_of_one_config_have_the_same_columns(change: str, tmp_path: Path) -> None:
    """Every file may have unknown columns, and a second file must have those of the first."""
    dataset = grow(paired_dataset(tmp_path), tmp_path / "other", {})
    manifest = read_manifest(dataset)
    [entry] = manifest.config_files("solutions")
    table = pq.read_table(dataset / entry.path)
    first, second = table.slice(0, 8), table.slice(8)
    if change == "footer":
        second = second.replace_schema_metadata({VERSION_KEY: "2.0"})
    else:
        second = second.append_column("mood", pa.array(["calm"] * second.num_rows))
    paths = [f"solutions/train-0000{index}-of-00002.parquet" for index in range(2)]
    (dataset / entry.path).unlink()
    files = [item for item in manifest.files if item != entry]
    for path, part in zip(paths, (first, second), strict=True):
        pq.write_table(part, dataset / path)
        texts = b"".join(digest_bytes("".join(steps)) for steps in part["completions"].to_pylist())
        sha256 = hashlib.sha256(texts).hexdigest()
        files.append(FileEntry.from_file(dataset, path, part.num_rows, sha256))
    manifest.files = files
    manifest.digest = files_digest(files)
    (dataset / "manifest.json").write_text(manifest.to_json())
    expected = {
        "footer": f"of schema version 2.0, not {SCHEMA_VERSION}",
        "other types": "mood is string, and missing in the first file",
    }
    with pytest.raises(SchemaError, match=expected[change]):
        validate(dataset)


def make_diff(n_rows: int, *changes: str) -> ConfigDiff:
    return ConfigDiff(0, 0, n_rows, dict.fromkeys(changes, 0))


SOLUTION_CHANGES = ("rewritten", "regraded", "relabelled", "rescored", "described otherwise")


def test_equal_datasets_do_not_differ(tmp_path: Path) -> None:
    dataset = paired_dataset(tmp_path)
    assert diff_datasets(dataset, dataset) == {
        "problems": make_diff(3, "described otherwise"),
        "solutions": make_diff(12, *SOLUTION_CHANGES),
        "pairs": make_diff(12, "rewritten", "rescored"),
    }
    assert not any(diff_datasets(dataset, dataset).values()) and not option_changes(
        dataset, dataset
    )


def test_other_rewards_and_other_problems(tmp_path: Path) -> None:
    first = paired_dataset(tmp_path / "a", problems=3)
    second = paired_dataset(tmp_path / "b", problems=4, salt="other")
    differences = diff_datasets(first, second)
    assert differences["problems"] == ConfigDiff(1, 0, 3, {"described otherwise": 0})
    changed = dict.fromkeys(SOLUTION_CHANGES, 0) | {"rescored": 12}
    assert differences["solutions"] == ConfigDiff(4, 0, 12, changed)
    assert differences["pairs"] == ConfigDiff(4, 0, 12, {"rewritten": 0, "rescored": 12})
    back = diff_datasets(second, first)
    assert (back["problems"].added, back["problems"].removed) == (0, 1)
    keys = [key for key, _, _ in option_changes(first, second)]
    assert keys == ["problems.digest", "score.prm.revision"]


def test_pairs_come_and_go(tmp_path: Path) -> None:
    pairs = paired_dataset(tmp_path)
    fewer = PairStage(PairSpec(top=1))
    derive_dataset(pairs, tmp_path / "fewer", [fewer], progress=LineProgress())
    assert diff_datasets(pairs, tmp_path / "fewer")["pairs"].removed == 9
    differences = diff_datasets(tmp_path / "built", pairs)
    assert differences["pairs"] == ConfigDiff(12, 0, 0, {"rewritten": 0, "rescored": 0})
    assert differences["solutions"].changed["rescored"] == 12
    assert differences["solutions"].changed["relabelled"] == 0


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: Any) -> str:
        monkeypatch.setattr("sys.argv", ["fsdpo-data", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code, capsys.readouterr().err
        return capsys.readouterr().out

    small_build(tmp_path / "run")
    pairs = paired_dataset(tmp_path / "p")
    out = run("diff", tmp_path / "p/built", pairs)
    assert "solutions: 0 added, 0 removed, 12 rescored  (12 in both)" in out
    assert "problems: 3 in both" in out
    assert 'option pair: null → {"top": 2, "aggregate": "mean"' in out
    counts = json.loads(run("diff", tmp_path / "run", pairs, "--json"))
    assert counts["solutions"]["common"] == 12
    assert counts["solutions"]["changed"]["rewritten"] == 12


def test_pulling_onto_a_read_only_disk_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "x"))

    monkeypatch.setattr("huggingface_hub.hf_hub_download", read_only)
    monkeypatch.setattr("fsdpo_data.publish.pull.resolve_commit", lambda repo: "0" * 40)
    with pytest.raises(StoreError, match="the file system is read-only; choose another `out`"):
        pull_dataset("org/name", tmp_path / "out", progress=LineProgress())
