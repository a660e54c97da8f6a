"""Tests of schema versions: old datasets are readable, newer ones are refused; and of diffs."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import small_build
from paired_data import paired_dataset

from fsdpo_data import api
from fsdpo_data.answers.grader import GRADER_NAME
from fsdpo_data.cli.app import main
from fsdpo_data.core.errors import SchemaError, StoreError
from fsdpo_data.core.identity import RELEASE, ModelRef
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.diff import ConfigDiff, diff_datasets, spec_changes
from fsdpo_data.dataset.manifest import files_digest, read_manifest
from fsdpo_data.dataset.manifest_sections import FileEntry
from fsdpo_data.dataset.schema import SCHEMA_VERSION, Column, default_values, read_table
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
def test_frozen_datasets_are_read(version: int) -> None:
    frozen = DATA / f"schema-{version}"
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
    newer_columns = list(default_values("solutions"))
    assert newer_columns[:2] == ["thinking_closed", "step_labels"]
    assert not set(newer_columns) & set(columns)
    assert api.open_dataset(old).solutions().collect().columns == [*columns, *newer_columns]
    card = dataset_card(old, read_manifest(old))
    assert "name: step_rewards" in card and "name: thinking_closed" not in card
    stages: list[Stage] = [GradeStage(GRADER_NAME), PairStage(PairSpec(top=1))]
    score = ScoreStage(ModelRef("m", "0"), {"name": "m", "dtype": "auto"}, Constant)
    for name, stage_list in (("graded", stages), ("scored", [score])):
        derive_dataset(old, tmp_path / name, stage_list, progress=LineProgress())
        validate(tmp_path / name)
        rows = pl.read_parquet(tmp_path / name / "solutions" / file.name)
        assert rows.columns == [*columns, *newer_columns]
        for column, value in default_values("solutions").items():
            assert rows[column].to_list() == [value] * 8
    derive_dataset(old, tmp_path / "paired", [PairStage(PairSpec(top=1))], progress=LineProgress())
    solutions = pl.read_parquet(tmp_path / "paired/solutions" / file.name)
    assert solutions.columns == columns
    assert not diff_datasets(old, tmp_path / "paired")["solutions"]


def of_version(version: int, folder: Path, made_by: str = RELEASE) -> Path:
    shutil.copytree(DATA / "schema-1", folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest |= {"schema_version": version, "made_by": made_by}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_other_versions_are_refused_with_advice(tmp_path: Path) -> None:
    newer = of_version(SCHEMA_VERSION + 1, tmp_path / "newer")
    with pytest.raises(SchemaError, match="Install a newer release of fsdpo"):
        read_manifest(newer)
    older = of_version(0, tmp_path / "older")
    with pytest.raises(SchemaError, match=r"of schema version 0; .* build it again"):
        read_manifest(older)


@pytest.mark.parametrize(
    ("version", "made_by", "advice"),
    [
        (2, "fsdpo 0.9.0", "Install that release, or a newer release of fsdpo."),
        (0, "fsdpo 0.0.1", "Read the dataset with that release, or build it again with this"),
    ],
)
def test_the_message_about_another_version_names_both_releases(
    tmp_path: Path, version: int, made_by: str, advice: str
) -> None:
    dataset = of_version(version, tmp_path / "other", made_by)
    with pytest.raises(SchemaError) as refused:
        validate(dataset)
    assert f"It was written by {made_by}, and this release is {RELEASE}. {advice}" in str(
        refused.value
    )


def test_a_manifest_of_an_older_release_that_lacks_a_field_names_both_releases(
    tmp_path: Path,
) -> None:
    dataset = of_version(SCHEMA_VERSION, tmp_path / "older", "fsdpo 0.0.1")
    manifest = json.loads((dataset / "manifest.json").read_text())
    del manifest["statistics"]
    (dataset / "manifest.json").write_text(json.dumps(manifest))
    message = r"statistics: Field required\. It was written by fsdpo 0\.0\.1, and this release is "
    with pytest.raises(SchemaError, match=f"{message}{RELEASE}. Read the dataset with that"):
        validate(dataset)


def test_a_column_of_a_newer_release_is_named_with_both_releases(tmp_path: Path) -> None:
    small_build(tmp_path / "newer")
    manifest = read_manifest(tmp_path / "newer")
    [entry] = manifest.config_files("solutions")
    file = tmp_path / "newer" / entry.path
    table = pq.read_table(file)
    pq.write_table(table.append_column("mood", pa.array(["calm"] * table.num_rows)), file)
    manifest.files = [
        FileEntry.from_file(
            tmp_path / "newer", old_entry.path, old_entry.rows, old_entry.text_sha256
        )
        for old_entry in manifest.files
    ]
    manifest.digest = files_digest(manifest.files)
    manifest.made_by = "fsdpo 0.9.0"
    (tmp_path / "newer/manifest.json").write_text(manifest.to_json())
    with pytest.raises(SchemaError) as refused:
        validate(tmp_path / "newer")
    message = str(refused.value)
    assert f"{entry.path} has columns that this release does not know: mood. A newer" in message
    assert f"written by fsdpo 0.9.0, and this release is {RELEASE}" in message


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


#: Runs stages on datasets without the columns ``note`` and ``n_characters``.
_CONTINUE_OLD_DATASETS = """
import shutil
import sys
from pathlib import Path

from fsdpo_data import api
from fsdpo_data.answers.grader import GRADER_NAME
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.core.parquet_files import open_parquet
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.dataset.schema import read_table
from fsdpo_data.dataset.stage import derive_dataset, run_stages
from fsdpo_data.dataset.validate import validate
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.stages.continuations import ContinuationSampler
from fsdpo_data.stages.grade import GradeStage
from fsdpo_data.stages.label import LabelStage
from fsdpo_data.stages.pair import PairStage
from fsdpo_data.stages.score import ScoreStage


class Constant:
    model = ModelRef("m", "0")

    def score(self, items):
        return [[0.5 for _ in item.steps] for item in items]

    def sample(self, prompts, spec):
        return [[Completion("The answer is: 42", "stop", 10, 0.5)] * spec.n for _ in prompts]


engine = {"name": "replay", "dtype": "auto"}
continuations = ContinuationSampler(
    Constant.model, SamplingSpec(n=2), engine, Constant, batch_size=8
)
grade = GradeStage(GRADER_NAME, workers=1)
stages = {
    "graded": [grade],
    "scored": [ScoreStage(Constant.model, engine, Constant)],
    "labelled": [grade, LabelStage(continuations, workers=1)],
    "paired": [PairStage(PairSpec(top=1))],
}
for path in map(Path, sys.argv[2:]):
    old = api.open_dataset(path).validate()
    assert old.solutions().collect()["note"].to_list() == ["none"] * 8
    [file] = old.manifest.config_paths(path, "solutions")
    assert read_table("solutions", file)["note"].to_pylist() == ["none"] * 8
    row = old.examples(1, problem=None, outcome=None, seed=0)[0]["solutions"][0]
    assert row["note"] == "none"
    for name, stage_list in stages.items():
        out = Path(sys.argv[1]) / path.name / name
        source = path
        for stage in stage_list:
            target = out if stage is stage_list[-1] else out.with_name("source")
            derive_dataset(source, target, [stage], resume=True, progress=LineProgress())
            source = target
        rows = api.open_dataset(out).validate().solutions().collect()
        assert rows["note"].to_list() == ["none"] * 8
        assert rows["n_characters"].to_list() == [None] * 8
    # An interrupted run of the older release has rewritten the solutions.
    out = Path(sys.argv[1]) / path.name / "continued"
    shutil.copytree(path / "solutions", out / "solutions")
    run_stages(path, out, stages["scored"], LineProgress())
    [file] = validate(out).config_paths(out, "solutions")
    assert {"note", "n_characters"} <= {*open_parquet(file).schema_arrow.names}
"""


def test_a_new_column_needs_two_declarations_and_stages_continue_old_datasets(
    tmp_path: Path,
) -> None:
    """A copy of the program gets columns: rows of the schema, and fields of the entity."""
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("fsdpo_data", "cards/fsdpo_cards"):
        shutil.copytree(DATA.parents[1] / package, copy / package, ignore=ignored)
    changes = {
        "dataset/schema.toml": (
            'answer_judge = { type = "string", since = "1.3" }\n',
            'note = { type = "string", since = "99.1", default = "none" }\n'
            'n_characters = { type = "int32", since = "99.2" }\n',
        ),
        "core/entities.py": (
            "    answer_judge: str | None = None\n",
            '    note: str | None = "none"\n    n_characters: int | None = None\n',
        ),
    }
    for name, (last_line, new_line) in changes.items():
        file = copy / "fsdpo_data" / name
        text = file.read_text()
        assert text.count(last_line) == 1
        file.write_text(text.replace(last_line, last_line + new_line))
    new = paired_dataset(tmp_path, problems=2)
    assert "note" not in pl.read_parquet(new / "solutions/*.parquet").columns
    paths = os.pathsep.join([str(copy), str(copy / "cards")])
    done = subprocess.run(
        [sys.executable, "-c", _CONTINUE_OLD_DATASETS, tmp_path / "out", DATA / "schema-1", new],
        cwd=tmp_path,  # Python imports from the working directory first
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    graded = tmp_path / "out/pairs/graded"
    assert pl.read_parquet(graded / "solutions/*.parquet")["note"].to_list() == ["none"] * 8
    with pytest.raises(SchemaError, match=r"does not know: note, n_characters\. A newer release"):
        validate(graded)
    [file] = (graded / "solutions").glob("*.parquet")
    with pytest.raises(
        SchemaError, match="the columns n_characters, note, which this release does not know"
    ):
        read_table("solutions", file)


def test_a_null_in_a_column_with_a_default_is_damage() -> None:
    declared = Column("note", "string", since="1.2", default="none")
    assert not declared.allows_null
    assert replace(declared, nullable=True).allows_null
    assert replace(declared, default=None).allows_null
    assert not Column("question", "string").allows_null


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


def test_pulling_onto_a_read_only_disk_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "x"))

    monkeypatch.setattr("huggingface_hub.hf_hub_download", read_only)
    monkeypatch.setattr("fsdpo_data.publish.pull.resolve_commit", lambda repo: "0" * 40)
    with pytest.raises(StoreError, match="the file system is read-only; choose another `out`"):
        pull_dataset("org/name", tmp_path / "out", progress=LineProgress())
