"""Damaged and hostile files end in an error that names the file, soon and without a traceback."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsdpo_bench.recipes.load import read_recipes
from fsdpo_bench.tasks.table import read_task

from fsdpo_data.core.errors import FsdpoError, InputError, SchemaError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.input_files import (
    MAX_NESTING,
    check_regular_file,
    parse_json,
    read_json,
    read_toml_file,
)
from fsdpo_data.core.jsonl_log import scan_lines
from fsdpo_data.core.parquet_files import collect_rows, read_parquet_rows, scan_parquet
from fsdpo_data.core.row_files import read_records
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.engines.scorers.prm_formats import PRM_FORMATS
from fsdpo_data.models.trained_template import TEMPLATE_FILE, read_trained_template

DEEP = 200_000  #: Nesting that exceeds the recursion limit of every parser.


@pytest.mark.parametrize("text", ["[" * DEEP, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP])
def test_json_that_is_nested_too_deep_is_not_json(text: str) -> None:
    for data in (text, text.encode()):
        with pytest.raises(ValueError, match=r"nested|Expecting"):
            parse_json(data)


def test_nesting_is_bounded_below_the_limit_of_the_parser() -> None:
    def nest_lists(depth: int) -> str:
        return "[" * depth + "]" * depth

    assert parse_json(nest_lists(MAX_NESTING)) is not None
    with pytest.raises(ValueError, match="nested more than 100 levels deep"):
        parse_json(nest_lists(MAX_NESTING + 1))
    assert parse_json("[" + "[]," * DEEP + "[]]")  # many lists, but not deep


@pytest.mark.parametrize("row", ["[" * DEEP, '{"a": ' + "[" * 200 + "]" * 200 + "}", "9" * 5000])
def test_a_row_of_hostile_json_is_broken_and_the_next_one_is_read(row: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(row + '\n{"question": "1+1?", "answer": "2"}\n')
    broken, good = read_records(file)
    assert "not JSON" in broken.error and good.fields["answer"] == "2"


def test_a_log_ignores_lines_that_are_nested_too_deep(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text('{"a": ' + "[" * 500 + "]" * 500 + '}\n{"a": "x"}\n')
    assert [key for key, _ in scan_lines(file, lambda record: str(record["a"]))] == [None, "x"]


TOMLS = {
    "deep": b"a = " + b"[" * 5_000 + b"]" * 5_000,
    "digits": b"a = " + b"9" * 5_000,
    "64 bits": b"a = " + b"9" * 300,
    "not UTF-8": b"a = '\xff\xfe'",
    "UTF-16": "a = 1".encode("utf-16"),
    "nested within the limit of the parser": b"a = " + b"[" * 300 + b"]" * 300,
}
TOML_READERS: dict[str, Callable[[Path], Any]] = {
    "any": read_toml_file,
    "benchmark": read_task,
    "recipe": read_recipes,
    "PRM format": lambda file: PRM_FORMATS.find(str(file)),
}


@pytest.mark.parametrize("name", TOMLS)
@pytest.mark.parametrize("reader", TOML_READERS)
def test_hostile_toml_is_refused(name: str, reader: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(TOMLS[name])
    with pytest.raises(InputError, match=r"mine\.toml is not readable TOML"):
        TOML_READERS[reader](file)


FILE_READERS: dict[str, Callable[[Path], Any]] = {
    "json": read_json,
    "toml": read_toml_file,
    "rows": lambda file: list(read_records(file)),
    "digest": file_sha256,
    "log": lambda file: list(scan_lines(file, lambda record: "a")),
    "manifest": lambda file: read_manifest(file.parent),
    "PRM format": lambda file: PRM_FORMATS.find(str(file)),
}


@pytest.mark.parametrize("reader", FILE_READERS)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_are_refused(reader: str, kind: str, tmp_path: Path) -> None:
    name = {"manifest": "manifest.json", "PRM format": "a.toml"}.get(reader, "a.jsonl")
    file = tmp_path / name
    os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero")
    with pytest.raises(FsdpoError, match="is a pipe or a device; expected a regular file"):
        FILE_READERS[reader](file)


@pytest.mark.parametrize("kind", ["pipe", "device", "nested", "not UTF-8"])
def test_a_damaged_template_of_a_trained_model_is_unknown(kind: str, tmp_path: Path) -> None:
    file = tmp_path / TEMPLATE_FILE
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case "nested":
            file.write_text('{"template":' + "[" * 5000 + "]" * 5000 + "}")
        case _:
            file.write_bytes(b'{"template": "\xff"}')
    assert read_trained_template(str(tmp_path)) is None


def test_files_are_parsed_only_by_the_bounded_readers() -> None:
    root = Path(__file__).parents[3]
    for package in ("fsdpo_data", "fsdpo_train", "benchmarks/fsdpo_bench", "cards/fsdpo_cards"):
        for module in (root / package).rglob("*.py"):
            source = module.read_text(encoding="utf-8")
            calls = re.findall(r"json\.load\(|loads\([^\n]*read_(?:bytes|text)\([^\n]*", source)
            assert not [call for call in calls if "__file__" not in call], module


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        check_regular_file(tmp_path)


def test_parquet_rows_are_read_in_batches_with_their_types(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    columns = {"n": pa.array(range(5_000)), "x": pa.array([0.1] * 5_000, pa.float32())}
    pq.write_table(pa.table(columns), file)
    rows = list(read_records(file))
    assert [row.row_number for row in rows] == list(range(1, 5_001))
    assert rows[4_999].fields == {"n": 4_999, "x": 0.1}
    pq.write_table(pa.table({"n": pa.array([], pa.int64())}), file)
    assert not list(read_records(file))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("data.json", '{"version": 1, "data": [{"q": "a", "n": "1"}, {"q": "b", "n": "2"}]}'),
        ("columns.json", '{"q": ["a", "b"], "n": ["1", "2"]}'),
        ("pandas.json", '{"q": {"0": "a", "1": "b"}, "n": {"0": "1", "1": "2"}}'),
        ("list.jsonl", '[\n {"q": "a", "n": "1"},\n {"q": "b", "n": "2"}\n]\n'),
        ("rows.tsv", "q\tn\na\t1\nb\t2\n"),
        ("rows.csv", '"q";"n"\na;1\nb;2\n'),
    ],
)
def test_other_layouts_of_rows_are_read(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert [row.fields for row in read_records(file)] == [
        {"q": "a", "n": "1"},
        {"q": "b", "n": "2"},
    ]


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        ('"question";"answer, final"', {"question": "1", "answer, final": "2"}),
        ('"a;b;c","d"', {"a;b;c": "1;2", "d": ""}),
    ],
)
def test_a_quoted_name_may_contain_another_delimiter(
    header: str, fields: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(header + ("\n1;2\n" if "final" in header else '\n"1;2",\n'))
    assert [row.fields for row in read_records(file)] == [fields]


@pytest.mark.parametrize(
    "content", [{"q": "a", "data": [1]}, {"q": "a", "n": ["1"]}, {"q": ["a"], "n": ["1", "2"]}]
)
def test_an_object_without_rows_is_a_row(content: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "row.json"
    file.write_text(json.dumps(content))
    assert [row.fields for row in read_records(file)] == [content]


def test_a_line_that_is_a_list_is_a_broken_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('[1]\n{"q": "a"}\n')
    broken, good = read_records(file)
    assert broken.error == "a JSON list, not an object" and good.fields == {"q": "a"}


@pytest.mark.parametrize("names", [("data", "test"), ("train", "test"), ("rows", "data")])
def test_several_lists_of_rows_are_refused(names: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({name: [{"q": name}] for name in names}))
    with pytest.raises(InputError, match=r"rows\.json: the fields .* all have rows"):
        list(read_records(file))


def test_examples_next_to_rows_are_no_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"examples": [{"q": "a"}], "data": [{"q": "b"}, {"q": "c"}]}))
    assert [row.fields["q"] for row in read_records(file)] == ["b", "c"]


def test_compressed_json_lines_are_read_and_damaged_ones_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.jsonl.gz"
    data = gzip.compress(b'{"a": 1}\n\n{"a": 2}\n')
    file.write_bytes(data)
    assert [(row.row_number, row.fields) for row in read_records(file)] == [
        (1, {"a": 1}),
        (3, {"a": 2}),
    ]
    for damaged in (data[:-12], b"not gzip", data[:12] + b"\xff" * 8 + data[20:]):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged"):
            list(read_records(file))
    file.write_bytes(gzip.compress(b'{"a": "' + b"x" * 5000 + b'"}\n'))
    monkeypatch.setattr("fsdpo_data.core.row_files.MAX_GZIP_LINE_BYTES", 1000)
    with pytest.raises(InputError, match="a line is too long"):
        list(read_records(file))
    other = tmp_path / "rows.csv.gz"
    other.write_bytes(data)
    with pytest.raises(InputError, match=r"expected .*\.jsonl\.gz"):
        list(read_records(other))


def test_a_damaged_parquet_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ["long text"] * 50}), file)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"rows\.parquet: not parquet, or damaged"):
        list(read_parquet_rows(file))
    with pytest.raises(SchemaError, match="a file of the dataset: not parquet, or damaged"):
        collect_rows(scan_parquet([file]))


def test_a_scan_selects_rows_columns_and_heads(tmp_path: Path) -> None:
    files = [tmp_path / f"{index}.parquet" for index in range(3)]
    for index, file in enumerate(files):
        numbers = list(range(index * 100, index * 100 + 100))
        table = pa.table({"n": numbers, "text": [f"text {number}" for number in numbers]})
        pq.write_table(table, file, row_group_size=30)
    rows = scan_parquet(files)
    assert rows.collect()["n"].to_list() == list(range(300))
    assert rows.select(pl.len()).collect().item() == 300
    assert rows.head(2).collect()["text"].to_list() == ["text 0", "text 1"]
    assert rows.slice(150, 2).collect()["n"].to_list() == [150, 151]
    chosen = rows.filter(pl.col("n").is_in([5, 205])).select("text").collect()
    assert chosen["text"].to_list() == ["text 5", "text 205"]
    for streaming in (False, True):
        assert collect_rows(rows.select(pl.col("n").sum()), streaming=streaming).item() == 44850


def test_a_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    pq.write_table(pa.table({"n": [1]}), files[0])
    for other in ({"n": ["x"]}, {"m": [1]}):
        pq.write_table(pa.table(other), files[1])
        with pytest.raises(SchemaError, match="a file of the dataset"):
            collect_rows(scan_parquet(files))


def test_a_manifest_without_files_is_refused() -> None:
    with pytest.raises(SchemaError, match="lists no files of solutions"):
        scan_rows("solutions", [])
