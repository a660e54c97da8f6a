"""Datasets with columns and manifest keys that this release does not know, or that lack some."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from command_line import run
from grown import ID_COLUMNS, grow, known_rows, read_rows
from helpers import seal_json, stage_options
from paired_data import MadeUpRewards, paired_dataset
from random_model import save_random_model, save_random_prm
from recorded_imports import import_labels
from step_dpo_rows import STEP_DPO_ROWS

from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.diff import diff_datasets
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import CONFIGS, SCHEMA_VERSION, read_table
from fsdpo_data.dataset.validate import validate

#: A column and a manifest key of a newer release.
NEWER: dict[str, dict[str, pa.DataType]] = {"solutions": {"confidence": pa.list_(pa.int64())}}
#: Columns of a user, whose names the queries of stages must not take for their own.
USERS: dict[str, dict[str, pa.DataType]] = {
    "problems": {"topic": pa.string(), "row": pa.int64()},
    "solutions": {"row": pa.int64(), "reward": pa.string(), "text": pa.string()},
    "pairs": {"order": pa.int64()},
}
STAGES: dict[str, list[str]] = {
    "grade": ["grade", "{data}"],
    "label": ["label", "{data}", "--rollouts", "2", "--model", "{policy}", "--max-tokens", "8"],
    "score": ["score", "{data}", "--prm", "{prm}", "--device", "cpu"],
    "select": ["select", "{data}", "--filter", "outcome = 'correct'", "--unique"],
    "filter": ["select", "{data}", "--filter", "n_tokens > 0 or n_tokens is null"],
    "pair": ["pair", "{data}", "--top", "1"],
    "step pairs": ["pair", "{data}", "--no-require-outcome"],
    "decontaminate": ["decontaminate", "{data}", "--against", "{questions}"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with models, and a dataset of this release, a newer one and a user's."""
    folder = tmp_path_factory.mktemp("growth")
    plain = paired_dataset(folder / "made", metadata={"level": 3})
    grow(plain, folder / "plain", {})
    newer = grow(plain, folder / "newer", NEWER, version="1.1", licence_notes={"text": "MIT"})
    add_newer_options(newer)
    grow(plain, folder / "user", USERS)
    grow(plain, folder / "lacking", {}, drop=("search_cost", "exactly_correct", "thinking_closed"))
    save_random_prm(folder / "prm", save_random_model(folder / "policy"))
    (folder / "questions.jsonl").write_text('{"question": "What is 1 + 1?", "answer": "2"}\n')
    return folder


def add_newer_options(dataset: Path) -> None:
    """Add options of a newer release to the stages of a manifest."""
    file = dataset / "manifest.json"
    manifest = json.loads(file.read_text())
    stage_options(manifest, "sample")["sampling"]["top_k"] = 50
    stage_options(manifest, "pair")["later"] = {"order": ["reward"]}
    file.write_text(seal_json(manifest))


def run_stage(capsys: pytest.CaptureFixture[str], folder: Path, data: str, stage: str) -> Path:
    out = folder / f"{data} after {stage}"
    values = {name: folder / name for name in ("policy", "prm")}
    questions = folder / "questions.jsonl"
    words = [
        word.format(data=folder / data, questions=questions, **values) for word in STAGES[stage]
    ]
    code, _, err = run(capsys, *words, "--out", str(out))
    assert code == 0, err
    return out


@pytest.mark.parametrize("data", ["newer", "user", "lacking"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_keeps_unknown_columns(
    capsys: pytest.CaptureFixture[str], folder: Path, data: str, stage: str
) -> None:
    """All other columns equal those of the same stage on the dataset without them."""
    expected = folder / f"plain after {stage}"
    if not expected.exists():
        run_stage(capsys, folder, "plain", stage)
    out = run_stage(capsys, folder, data, stage)
    validate(out)
    unknown = {"newer": NEWER, "user": USERS, "lacking": {}}[data]
    for config in CONFIGS:
        assert (out / config).is_dir() == (expected / config).is_dir()
        if not (out / config).is_dir():
            continue
        assert known_rows(out, config).equals(known_rows(expected, config))
        if config != "pairs":  # new pairs are new rows
            names = [*unknown.get(config, {})]
            rows = read_rows(out, config)
            old_rows = read_rows(folder / data, config)
            kept_rows = old_rows.join(rows, on=ID_COLUMNS[config], how="semi")
            assert rows.select(names).equals(kept_rows.select(names))
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest.get("licence_notes") == ({"text": "MIT"} if data == "newer" else None)
    assert manifest["schema_version"] == SCHEMA_VERSION


def test_imported_pairs_keep_unknown_columns(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs"
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in STEP_DPO_ROWS))
    import_labels(rows, "step-dpo-10k", pairs, template="alpaca-newline")
    grown = grow(pairs, tmp_path / "grown", {"pairs": {"order": pa.int64(), "why": pa.string()}})
    out = tmp_path / "scored"
    derive_dataset(grown, out, [MadeUpRewards()], progress=LineProgress())
    validate(out)
    names = [*ID_COLUMNS["pairs"], "order", "why"]
    assert read_rows(out, "pairs").select(names).equals(read_rows(grown, "pairs").select(names))
    assert read_rows(out, "pairs")["chosen_rewards"].null_count() == 0


def test_merged_shards_keep_unknown_columns(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    line = ["score", str(folder / "user"), "--prm", str(folder / "prm"), "--device", "cpu"]
    code, _, err = run(capsys, *line, "--shard", "1/1", "--out", str(folder / "shard"))
    assert code == 0, err
    merged = folder / "merged"
    code, _, err = run(capsys, "merge", str(folder / "shard"), "--out", str(merged))
    assert code == 0, err
    names = [*USERS["solutions"]]
    old_rows = read_rows(folder / "user", "solutions")
    assert read_rows(merged, "solutions").select(names).equals(old_rows.select(names))


def test_other_readers_load_unknown_columns(folder: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.load_dataset(
        str(folder / "user after grade"), "solutions", split="train", cache_dir=str(tmp_path)
    )
    assert {"row", "reward", "text", "outcome"} <= set(rows.column_names)


def test_unknown_columns_are_shown(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, err = run(capsys, "inspect", str(folder / "newer"), "--columns")
    assert code == 0, err
    [line] = [line for line in out.splitlines() if "confidence" in line]
    assert "list(int64)" in line and "not a" in line


def test_a_difference_in_unknown_columns_is_counted(folder: Path) -> None:
    differences = diff_datasets(folder / "plain", folder / "user")
    assert differences["solutions"].changed["reward"] == sum(
        read_rows(folder / "user", "solutions")["reward"].is_not_null()
    )
    assert not any(diff_datasets(folder / "user", folder / "user").values())


@pytest.mark.parametrize("version", ["2.0", "0.9", 2, "1", "1.0.0", "newest"])
def test_another_major_version_is_refused(folder: Path, tmp_path: Path, version: object) -> None:
    plain = grow(folder / "plain", tmp_path / "other", {})
    manifest = json.loads((plain / "manifest.json").read_text())
    manifest |= {"schema_version": version, "made_by": "fsdpo 7.1.2"}
    (plain / "manifest.json").write_text(seal_json(manifest))
    message = f"is of schema version {version}; fsdpo [0-9.]+ reads the versions 1.x. Install "
    with pytest.raises(SchemaError, match=message + r"fsdpo 7\.1\.2"):
        read_manifest(plain)


def test_a_column_that_may_not_be_null_is_required(folder: Path, tmp_path: Path) -> None:
    other = grow(folder / "plain", tmp_path / "other", {}, drop=("outcome",))
    for read in (
        lambda: validate(other),
        lambda: read_table("solutions", *(other / "solutions").glob("*")),
    ):
        with pytest.raises(SchemaError, match="outcome is missing, expected string"):
            read()


@pytest.mark.parametrize(
    "settings",
    [
        {"style": "ranked", "margin_by": "votes"},
        {"style": "step-dpo", "threshold": "x", "continuations": {}},
        {"style": "step-dpo", "threshold": 0.5},
    ],
)
def test_options_of_unknown_pairs_are_not_those_of_complete_solutions(
    settings: dict[str, object], folder: Path, tmp_path: Path
) -> None:
    """Options that a newer release has added are ignored, but not a style of pairs."""
    dataset = grow(folder / "plain", tmp_path / "data", {})
    manifest = json.loads((dataset / "manifest.json").read_text())
    for entry in manifest["stages"]:
        if entry["name"] == "pair":
            entry["options"] = settings
    (dataset / "manifest.json").write_text(seal_json(manifest))
    with pytest.raises(SchemaError, match=r"stages\.pair\.options"):
        validate(dataset)
