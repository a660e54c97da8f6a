"""An edited dataset is sealed again: rows dropped, columns added, values changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from command_line import run
from grown import read_rows
from paired_data import paired_dataset

import fsdpo_data as fd
from fsdpo_data.core.errors import InputError, SchemaError
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.summary import summary_rows
from fsdpo_data.dataset.validate import validate

SOLUTIONS = "solutions/train-00000-of-00001.parquet"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paired_dataset(tmp_path_factory.mktemp("dataset"))


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    shutil.copytree(dataset, tmp_path / "edited")
    return tmp_path / "edited"


def edit(copy: Path, change: Callable[[pl.DataFrame], pl.DataFrame], file: str = SOLUTIONS) -> None:
    rows = change(pl.read_parquet(copy / file))
    rows.write_parquet(copy / file)


def test_a_changed_file_is_refused_with_the_command_that_seals_it(copy: Path) -> None:
    edit(copy, lambda rows: rows.with_columns(mood=pl.lit("calm")))
    with pytest.raises(SchemaError, match=f"fsdpo-data seal {copy} --out NEW"):
        validate(copy)


def test_an_added_column_and_changed_values(
    capsys: pytest.CaptureFixture[str], dataset: Path, copy: Path, tmp_path: Path
) -> None:
    """polars writes large strings and lists, and no type of ours."""
    edit(
        copy,
        lambda rows: rows.with_columns(
            mood=pl.Series(["calm", None] * 6, dtype=pl.Categorical),
            n_tokens=pl.when(pl.int_range(pl.len()) < 3).then(7).otherwise("n_tokens"),
        ),
    )
    out = tmp_path / "sealed"
    words = ["seal", str(copy), "--out", str(out), "--parent", str(dataset)]
    code, printed, err = run(capsys, *words)
    assert code == 0, err
    assert "further columns of solutions: mood; 3 values of n_tokens in solutions" in " ".join(
        printed.split()
    )
    manifest = validate(out)
    assert manifest.parent == read_manifest(dataset).digest != manifest.digest
    assert manifest.options["edit"] == {
        "edits": [
            {
                "parent": manifest.parent,
                "columns": {"solutions": ["mood"]},
                "changed": {"solutions": {"n_tokens": 3}},
            }
        ]
    }
    rows = read_rows(out, "solutions")
    assert rows.schema["mood"] == pl.String and rows["mood"].null_count() == 6
    card = (out / "README.md").read_text()
    assert f"| edited | by hand, from the dataset `{manifest.parent}` |" in card
    assert "- name: mood" in card


def test_rows_dropped_by_datasets(dataset: Path, tmp_path: Path) -> None:
    """The files have other names and numbers. The pairs are left out, and made again."""
    datasets = pytest.importorskip("datasets")
    copy = tmp_path / "edited"
    for config in ("problems", "solutions"):
        rows = datasets.load_dataset(
            str(dataset), config, split="train", cache_dir=str(tmp_path / "cache")
        )
        if config == "solutions":
            rows = rows.filter(lambda row: row["sample_index"] != 1)
        (copy / config).mkdir(parents=True)
        rows.to_parquet(copy / config / "edited.parquet")
    shutil.copy(dataset / "manifest.json", copy)
    sealed = fd.seal(copy, out=tmp_path / "sealed")
    assert sealed.manifest.rows == (3, 9, 0)
    [entry] = sealed.manifest.options["edit"]["edits"]
    assert entry["rows"] == {"solutions": [12, 9], "pairs": [12, 0]} and "changed" not in entry
    assert not sealed.manifest.is_written("pairs")
    assert (
        "solutions from 12 to 9 rows; pairs from 12 to 0 rows"
        in dict(summary_rows(sealed.statistics()))["edited"]
    )
    pairs = sealed.pair(out=tmp_path / "pairs", top=1)
    assert pairs.manifest.rows.pairs == 3
    assert validate(pairs.path).options["edit"] == sealed.manifest.options["edit"]


def test_a_second_edit_stands_after_the_first(copy: Path, tmp_path: Path) -> None:
    edit(copy, lambda rows: rows.with_columns(first=1))
    first = fd.seal(copy, out=tmp_path / "first")
    edit(first.path, lambda rows: rows.with_columns(second=2))
    second = fd.seal(first.path, out=tmp_path / "second")
    edits = second.manifest.options["edit"]["edits"]
    assert [entry["columns"]["solutions"] for entry in edits] == [["first"], ["first", "second"]]
    assert [entry["parent"] for entry in edits] == [
        read_manifest(copy).digest,
        read_manifest(tmp_path / "first").digest,
    ]


@pytest.mark.parametrize(
    ("change", "file", "message"),
    [
        (lambda rows: rows.drop("outcome"), SOLUTIONS, "outcome is missing, expected string"),
        (
            lambda rows: rows.with_columns(n_tokens=pl.lit("many")),
            SOLUTIONS,
            "the column n_tokens is .*string, and not every value is a int32",
        ),
        (
            lambda rows: rows.with_columns(problem_id=pl.lit("0" * 20)),
            SOLUTIONS,
            "12 solutions belong to no problem",
        ),
        (lambda rows: rows.reverse().sort("sample_index"), SOLUTIONS, "not one after another"),
        (
            lambda rows: rows.with_columns(answer=pl.lit("43")),
            "problems/train-00000-of-00001.parquet",
            "the question or the answer of 3 problems was changed",
        ),
        (lambda rows: rows.head(4), SOLUTIONS, "chosen solution that is missing in the dataset"),
    ],
)
def test_rows_that_do_not_fit_together_are_refused(
    copy: Path,
    tmp_path: Path,
    change: Callable[[pl.DataFrame], pl.DataFrame],
    file: str,
    message: str,
) -> None:
    edit(copy, change, file)
    out = tmp_path / "sealed"
    with pytest.raises(SchemaError, match=message):
        fd.seal(copy, out=out)
    assert not out.exists(), "the command can be repeated after a correction"


def test_another_parent_is_refused(copy: Path, tmp_path: Path) -> None:
    other = paired_dataset(tmp_path / "other", salt="2")
    with pytest.raises(InputError, match="this is not the dataset that"):
        fd.seal(copy, out=tmp_path / "sealed", parent=other)


def test_a_folder_without_a_manifest_is_refused(copy: Path, tmp_path: Path) -> None:
    (copy / "manifest.json").unlink()
    with pytest.raises(SchemaError, match=r"manifest\.json is missing"):
        fd.seal(copy, out=tmp_path / "sealed")


def test_the_manifest_has_no_statistics(dataset: Path) -> None:
    keys = {"schema_version", "digest", "parent", "made_by", "stages", "cost", "files"}
    assert json.loads((dataset / "manifest.json").read_text()).keys() == {*keys, "manifest_digest"}
