"""Tests of schema versions: old datasets are readable, newer ones are refused; and of diffs."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers import small_build
from paired_data import paired_dataset

from fsdpo_data.cli.app import main
from fsdpo_data.core.errors import InputError, SchemaError, StoreError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.diff import ConfigDiff, diff_datasets, spec_changes
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.migrate import migrate_dataset
from fsdpo_data.dataset.schema import OPTIONAL_COLUMNS, SCHEMA_VERSION
from fsdpo_data.dataset.stage import Stage, derive_dataset
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.publish.pull import pull_dataset
from fsdpo_data.stages.grade import GradeStage
from fsdpo_data.stages.pair import PairStage
from fsdpo_data.stages.score import ScoreStage

DATA = Path(__file__).parents[2] / "data"
#: Digests of the frozen datasets, by schema version.
FROZEN = {1: "7733bbbe5cda2903af29"}


class Constant:
    """Scorer that gives every step the reward 0.5."""

    model = ModelRef("m", "0")

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        return [[0.5 for _ in item.steps] for item in items]


def test_every_version_has_a_frozen_dataset() -> None:
    assert list(FROZEN) == list(range(1, SCHEMA_VERSION + 1))


@pytest.mark.parametrize("version", FROZEN)
def test_frozen_datasets_are_read(version: int, tmp_path: Path) -> None:
    frozen = DATA / f"schema-{version}"
    if version < SCHEMA_VERSION:
        migrate_dataset(frozen, tmp_path / "new")
        frozen = tmp_path / "new"
    manifest = validate(frozen).to_dict()
    assert manifest["digest"] == FROZEN[version]
    assert manifest["rows"] == {"problems": 2, "solutions": 8, "pairs": 8}
    pairs = pl.read_parquet(frozen / "pairs/*.parquet")
    assert pairs["chosen"][0].endswith("The answer is: 42")


def test_the_changelog_has_every_version() -> None:
    changelog = (DATA.parents[1] / "SCHEMA.md").read_text(encoding="utf-8")
    versions = [line for line in changelog.splitlines() if line.startswith("## ")]
    assert versions == [f"## {version}" for version in reversed(FROZEN)]


def test_a_dataset_from_before_a_column_is_gone_on_from(tmp_path: Path) -> None:
    old = DATA / "schema-1"
    [file] = (old / "solutions").glob("*.parquet")
    columns = pl.read_parquet(file).columns
    assert not set(OPTIONAL_COLUMNS) & set(columns)
    card = dataset_card(old, read_manifest(old))
    assert "name: step_rewards" in card and "name: thinking_closed" not in card
    stages: list[Stage] = [GradeStage("math@2"), PairStage(PairSpec(top=1))]
    score = ScoreStage(ModelRef("m", "0"), {"name": "m", "dtype": "auto"}, Constant)
    for name, stage_list in (("graded", stages), ("scored", [score])):
        derive_dataset(old, tmp_path / name, stage_list, progress=LineProgress())
        validate(tmp_path / name)
        rows = pl.read_parquet(tmp_path / name / "solutions" / file.name)
        assert rows.columns == [*columns, *OPTIONAL_COLUMNS]
        assert rows.select(OPTIONAL_COLUMNS).null_count().row(0) == (8, 8)
    derive_dataset(old, tmp_path / "paired", [PairStage(PairSpec(top=1))], progress=LineProgress())
    solutions = pl.read_parquet(tmp_path / "paired/solutions" / file.name)
    assert solutions.columns == columns
    assert not diff_datasets(old, tmp_path / "paired")["solutions"]


def of_version(version: int, folder: Path) -> Path:
    shutil.copytree(DATA / "schema-1", folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["schema_version"] = version
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_other_versions_are_refused_with_advice(tmp_path: Path) -> None:
    newer = of_version(SCHEMA_VERSION + 1, tmp_path / "newer")
    with pytest.raises(SchemaError, match="Install a newer release of fsdpo"):
        read_manifest(newer)
    with pytest.raises(SchemaError, match=r"cannot bring to 1\. Install the newest release"):
        migrate_dataset(newer, tmp_path / "out")
    older = of_version(0, tmp_path / "older")
    with pytest.raises(SchemaError, match=f"`fsdpo-data migrate {older}`"):
        read_manifest(older)
    with pytest.raises(InputError, match="is of schema 1 already"):
        migrate_dataset(DATA / "schema-1", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("section", "old_key"),
    [
        ("", "judged"),
        ("statistics", "pass_at_m"),
        ("spec.score", "convention"),
        ("rollouts", "beginnings"),
        ("rollouts", "disagree"),
        ("judge", "lucky"),
        ("contamination", "share"),
    ],
)
def test_keys_of_development_versions_are_refused(
    section: str, old_key: str, tmp_path: Path
) -> None:
    dataset = tmp_path / "old"
    shutil.copytree(DATA / "schema-1", dataset)
    manifest = json.loads((dataset / "manifest.json").read_text())
    fields = manifest
    for name in filter(None, section.split(".")):
        fields = fields.setdefault(name, {})
    fields[old_key] = {}
    (dataset / "manifest.json").write_text(json.dumps(manifest))
    advice = f"the key {old_key!r} was renamed .* build it again with this release"
    with pytest.raises(SchemaError, match=f"is not a manifest: {section}.*{advice}"):
        read_manifest(dataset)


def test_a_migration_is_complete_and_leaves_the_old_dataset(tmp_path: Path) -> None:
    def to_1(root: Path) -> None:
        manifest = json.loads((root / "manifest.json").read_text())
        manifest["schema_version"] = 1
        (root / "manifest.json").write_text(json.dumps(manifest))

    def broken(root: Path) -> None:
        to_1(root)
        shutil.rmtree(root / "pairs")

    older, out = of_version(0, tmp_path / "older"), tmp_path / "out"
    with pytest.raises(SchemaError, match="is missing"):
        migrate_dataset(older, out, migrations={0: broken})
    assert not out.exists()
    assert migrate_dataset(older, out, migrations={0: to_1}) == 0
    assert validate(out).digest == FROZEN[1]
    assert json.loads((older / "manifest.json").read_text())["schema_version"] == 0
    with pytest.raises(InputError, match="exists already"):
        migrate_dataset(older, out, migrations={0: to_1})


def make_diff(n_rows: int, *changes: str) -> ConfigDiff:
    return ConfigDiff(0, 0, n_rows, dict.fromkeys(changes, 0))


SOLUTION_CHANGES = ("rewritten", "regraded", "relabelled", "rescored")


def test_equal_datasets_do_not_differ(tmp_path: Path) -> None:
    dataset = paired_dataset(tmp_path)
    assert diff_datasets(dataset, dataset) == {
        "problems": make_diff(3, "described otherwise"),
        "solutions": make_diff(12, *SOLUTION_CHANGES),
        "pairs": make_diff(12, "rewritten", "rescored"),
    }
    assert not any(diff_datasets(dataset, dataset).values()) and not spec_changes(dataset, dataset)


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
    keys = [key for key, _, _ in spec_changes(first, second)]
    assert keys == ["problems.count", "problems.digest", "score.prm.revision"]


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
    assert 'spec pair: null → {"aggregate": "mean"' in out
    counts = json.loads(run("diff", tmp_path / "run", pairs, "--json"))
    assert counts["solutions"]["common"] == 12
    assert counts["solutions"]["changed"]["rewritten"] == 12


def test_migrating_onto_a_full_disk_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = of_version(0, tmp_path / "older")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("shutil.copyfileobj", full)
    monkeypatch.setattr("shutil.copy2", full)
    with pytest.raises(StoreError, match=r"Cannot write to \S+: the disk is full; free some space"):
        migrate_dataset(older, tmp_path / "out", migrations={0: lambda folder: None})
    assert not (tmp_path / "out").exists()


def test_pulling_onto_a_read_only_disk_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "x"))

    monkeypatch.setattr("huggingface_hub.hf_hub_download", read_only)
    monkeypatch.setattr("fsdpo_data.publish.pull.resolve_commit", lambda repo: "0" * 40)
    with pytest.raises(StoreError, match="the file system is read-only; choose another `out`"):
        pull_dataset("org/name", tmp_path / "out", progress=LineProgress())
