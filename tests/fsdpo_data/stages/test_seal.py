"""An edited dataset is sealed again: rows dropped, columns added, values changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import run
from grown import read_rows
from paired_data import paired_dataset

import fsdpo_data as fd
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError, SchemaError
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.summary import summary_rows
from fsdpo_data.dataset.validate import validate
from fsdpo_data.stages.decontaminate import DecontaminateOptions, run_decontaminate

SOLUTIONS = "solutions/train-00000-of-00001.parquet"
PROBLEMS = "problems/train-00000-of-00001.parquet"


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


def read_with_datasets(dataset: Path, tmp_path: Path, config: str) -> Any:
    """Return the rows of a config, as `datasets` reads them."""
    datasets = pytest.importorskip("datasets")
    return datasets.load_dataset(
        str(dataset), config, split="train", cache_dir=str(tmp_path / "cache")
    )


def test_rows_dropped_by_datasets(dataset: Path, tmp_path: Path) -> None:
    """The files have other names and numbers. The pairs are left out, and made again."""
    copy = tmp_path / "edited"
    for config in ("problems", "solutions"):
        rows = read_with_datasets(dataset, tmp_path, config)
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
        (
            lambda rows: rows.reverse().sort("sample_index"),
            SOLUTIONS,
            "not one after another in one file",
        ),
        (
            lambda rows: rows.with_columns(answer=pl.lit("43")),
            PROBLEMS,
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


@pytest.mark.parametrize("steps", [None, ["a", None]])
def test_a_missing_step_is_refused(
    copy: Path, tmp_path: Path, steps: list[str | None] | None
) -> None:
    edit(copy, lambda rows: rows.with_columns(completions=pl.lit(steps, pl.List(pl.String))))
    with pytest.raises(SchemaError, match="nulls in completions"):
        fd.seal(copy, out=tmp_path / "sealed")


def test_the_solutions_of_a_problem_are_in_one_file(copy: Path, tmp_path: Path) -> None:
    rows = pl.read_parquet(copy / SOLUTIONS)
    (copy / SOLUTIONS).unlink()
    for name, part in (("a", rows.head(5)), ("b", rows.tail(7))):
        part.write_parquet(copy / f"solutions/{name}.parquet")
    with pytest.raises(SchemaError, match="not one after another in one file"):
        fd.seal(copy, out=tmp_path / "sealed")


def test_files_without_rows_are_left_out(copy: Path, tmp_path: Path) -> None:
    """`datasets` cannot read a config with one. The last problem has only correct solutions, and
    the solutions of another one are dropped.
    """
    rows = pl.read_parquet(copy / SOLUTIONS)
    (copy / SOLUTIONS).unlink()
    shutil.rmtree(copy / "pairs")
    first, last = rows.partition_by("problem_id", maintain_order=True)[::2]
    parts = {"a": first, "b": last.filter(pl.col("outcome") == "correct"), "c": rows.head(0)}
    for name, part in parts.items():
        part.write_parquet(copy / f"solutions/{name}.parquet")
    sealed = fd.seal(copy, out=tmp_path / "sealed")
    pairs = sealed.pair(out=tmp_path / "pairs", top=1)
    for config, n_files in {"solutions": 2, "pairs": 1}.items():
        entries = pairs.manifest.config_files(config)
        assert len(entries) == n_files == len(list((pairs.path / config).iterdir()))
        assert len(read_with_datasets(pairs.path, tmp_path, config)) > 0
    validate(pairs.path)


def test_columns_of_any_type_and_name_are_sealed(dataset: Path, copy: Path, tmp_path: Path) -> None:
    """The names are those of the key of a comparison, and of columns that exports add.

    `datasets` reads all types, by the card and without it.
    """
    edit(
        copy,
        lambda rows: rows.with_columns(
            reviewed_at=pl.lit(datetime(2026, 1, 1)),
            price=pl.lit(Decimal("1.50")),
            day=pl.lit(date(2026, 1, 1)),
            days=pl.concat_list(pl.lit(date(2026, 1, 1))),
            half=pl.lit(0.5, dtype=pl.Float16),
            vector=pl.lit([1.0, 2.0], dtype=pl.Array(pl.Float64, 2)),
            nested=pl.lit([["a"], ["b", "c"]], dtype=pl.List(pl.List(pl.String))),
            kind=pl.lit("x", dtype=pl.Categorical),
            id=pl.lit("mine"),
            outcome_new=pl.lit("mine"),
            question=pl.lit("mine"),
            gold=pl.lit("mine"),
        ),
    )
    sealed = fd.seal(copy, out=tmp_path / "sealed", parent=dataset)
    [made_edit] = sealed.manifest.options["edit"]["edits"]
    assert len(made_edit["columns"]["solutions"]) == 12 and "changed" not in made_edit
    difference = fd.open_dataset(dataset).diff(sealed)["solutions"]
    assert (difference.common, difference.added) == (12, 0)
    row = read_with_datasets(sealed.path, tmp_path, "solutions")[0]
    assert (row["day"], row["half"], row["vector"]) == (date(2026, 1, 1), 0.5, [1.0, 2.0])
    assert (row["days"], row["nested"]) == ([date(2026, 1, 1)], [["a"], ["b", "c"]])
    assert row["kind"] == "x"
    rows = sealed.export("prm800k", tmp_path / "rows").file.read_text().splitlines()
    assert rows and not any("mine" in row for row in rows)
    assert sealed.select(out=tmp_path / "selected").manifest.rows.solutions == 12


def test_columns_of_pairs_do_not_hide_those_of_solutions(copy: Path, tmp_path: Path) -> None:
    edit(
        copy,
        lambda rows: rows.with_columns(chosen_outcome=pl.lit("x"), chosen_n_tokens=pl.lit("x")),
        "pairs/train-00000-of-00001.parquet",
    )
    edit(copy, lambda rows: rows.with_columns(labels=pl.lit("x")), PROBLEMS)
    assert fd.seal(copy, out=tmp_path / "sealed").manifest.rows.pairs == 12


def test_files_may_have_their_columns_in_another_order(copy: Path, tmp_path: Path) -> None:
    rows = pl.read_parquet(copy / SOLUTIONS)
    (copy / SOLUTIONS).unlink()
    first, second = pl.lit(1).alias("first"), pl.lit(2).alias("second")
    rows.head(8).with_columns(first, second).write_parquet(copy / "solutions/a.parquet")
    rows.tail(4).with_columns(second, first).write_parquet(copy / "solutions/b.parquet")
    sealed = fd.seal(copy, out=tmp_path / "sealed")
    assert sealed.select(out=tmp_path / "selected", per_problem=1).manifest.rows.solutions == 3


def test_a_new_problem_ends_a_comparison_with_benchmarks(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "bench.jsonl").write_text('{"question": "What is 1 + 1?", "answer": "2"}\n')
    compared = tmp_path / "compared"
    against = [str(tmp_path / "bench.jsonl")]
    run_decontaminate(
        DecontaminateOptions(problems=[str(dataset)], against=against, out=compared), NO_PROGRESS
    )
    assert "decontaminate" in read_manifest(compared).options
    copy = tmp_path / "edited"
    shutil.copytree(compared, copy)
    problem = Problem("What is 1 + 1?", "2", "mine", "train").to_row()
    edit(copy, lambda rows: pl.concat([rows, pl.DataFrame([problem])]), PROBLEMS)
    assert "decontaminate" not in fd.seal(copy, out=tmp_path / "more").manifest.options
    shutil.copytree(compared, tmp_path / "annotated")
    edit(tmp_path / "annotated", lambda rows: rows.with_columns(level=1), PROBLEMS)
    annotated = fd.seal(tmp_path / "annotated", out=tmp_path / "kept", parent=compared)
    assert "decontaminate" in annotated.manifest.options


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
