"""Readers of rows from JSON lines, JSON, parquet, CSV, TSV and Arrow files.

A broken row becomes a :class:`SourceRow` with an error. A file that does not have its format
raises an InputError.
"""

from __future__ import annotations

import csv
import difflib
import glob
import gzip
import json
import logging
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.input_files import check_regular_file, parse_json, read_file
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows, read_arrow_rows, read_parquet_rows

log = logging.getLogger(__name__)

MAX_RAW_CHARS = 2000  #: Length of the text that a report shows of a broken row.
MAX_LISTED_ITEMS = 3  #: Number of items that a message lists; it counts the remaining ones.
MAX_GZIP_LINE_BYTES = 2**26  #: Length of a line in a compressed file, which may grow without limit.

#: Suffixes of the readable file formats, which may be written in upper case.
DATA_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet", ".csv", ".tsv", ".arrow")
_EXAMPLES_FIELD = "examples"  #: A field of a JSON object: rows, or examples next to other rows.
#: Fields of a JSON object with a list of rows, next to facts about the file.
_ROW_FIELDS = ("data", "rows", _EXAMPLES_FIELD)
#: Files without rows that `save_to_disk` of `datasets` writes next to them.
_INFO_FILES = ("dataset_info.json", "dataset_dict.json", "state.json")
#: Delimiters of CSV files; spreadsheets write semicolons where the comma is the decimal sign.
CSV_DELIMITERS = (",", ";", "\t")
#: Names of splits in file names and folder names.
SPLITS = ("train", "test", "validation", "valid", "dev")
_SPLIT_IN_NAME = re.compile(rf"(?:^|[-._ \d])({'|'.join(SPLITS)})(?:$|[-._ \d])")


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row of a source file."""

    row_number: int  #: Line number in JSON lines, else the number of the row; both from 1.
    fields: Mapping[str, Any]  #: Values by column; empty for a broken row.
    error: str = ""  #: Reason why the row is broken; empty for a readable row.
    raw: str = ""  #: Shortened text of a broken row; empty for a readable row.

    @property
    def text(self) -> str:
        """Shortened text of the row; it may contain lone surrogates."""
        return self.raw or _shorten_json(dict(self.fields))


class SourceRows(NamedTuple):
    """The rows of a file, or of a config of a Hub dataset."""

    location: str  #: Path or dataset with config, for messages.
    source: str  #: Value of ``Problem.source``.
    rows: Sequence[SourceRow]  #: The rows.


def data_files(name: str, split: str) -> list[Path]:
    """Return the data files of a path, a directory or a glob pattern in a fixed order.

    Args:
        name: The path, directory or pattern.
        split: Selects the files of a directory whose names state a split. Single files and
            patterns are returned completely.

    Raises:
        InputError: if no file matches, or a file is given with an unknown split.
    """
    # expanduser leaves an unknown "~user" unchanged; the file check below reports the path.
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        return _directory_files(path, split)
    if path.is_file():
        if split not in SPLITS:  # catches typing errors, although the file is read completely
            raise InputError(f"expected one of {', '.join(SPLITS)}.", field="split", value=split)
        return [path]
    if glob.has_magic(name):
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
        files = [match for match in matches if match.is_file()]
        if files:
            return files
        raise InputError(f"no file matches {name!r}. Quote the pattern, and check it with ls.")
    raise InputError(f"no such file or directory: {name}.{suggest_entries(path)}")


def suggest_entries(path: Path) -> str:
    """Return a sentence with names similar to a missing path, in its nearest existing folder.

    Suffixes do not count. The sentence starts with a space. It is empty without similar names.
    """
    parent = path.parent
    while not parent.is_dir():
        path = parent
        parent = parent.parent
    names = sorted(entry.name for entry in parent.iterdir() if not entry.name.startswith("."))
    names_by_stem = {Path(name).stem: name for name in names}
    similar_stems = difflib.get_close_matches(path.stem, names_by_stem, cutoff=0.7)
    lead_in = "Nearest" if parent == Path() else f"Nearest in {parent}"
    similar_names = ", ".join(names_by_stem[stem] for stem in similar_stems)
    return f" {lead_in}: {similar_names}." if similar_names else ""


def _directory_files(path: Path, split: str) -> list[Path]:
    """Return the data files of one split in a directory, so that test rows stay out of training."""
    # A sealed fsdpo dataset has one file or a folder of shards; the original MATH has a folder per
    # split.
    if (path / "problems.parquet").is_file():
        return [path / "problems.parquet"]
    for folder in (path / "problems", path / split):
        if folder.is_dir():
            return _directory_files(folder, split)
    files = _select_data_files(path.iterdir()) or _select_data_files(path.rglob("*"))
    splits = {split_in_path(file.relative_to(path)) for file in files} - {""}
    if splits:
        files = [file for file in files if split_in_path(file.relative_to(path)) == split]
    if not files:
        message = (
            f"directory {path} contains no {split} data: expected files ending in "
            f"{', '.join(DATA_SUFFIXES)}"
        )
        if splits:
            message += f"; the directory has files of split {', '.join(sorted(splits))}"
        raise InputError(f"{message}.")
    _warn_about_other_files(path, files, split)
    return files


def _warn_about_other_files(folder: Path, files: Sequence[Path], split: str) -> None:
    """Warn about data files that a directory also has, and that may belong to the split.

    They name no split, and other files name one. Or they are in a folder next to data files.
    """
    all_files = _select_data_files([*folder.iterdir(), *folder.glob("[!.]*/*")])
    names = [file.relative_to(folder) for file in sorted({*all_files} - {*files})]
    left_out = [str(name) for name in names if split_in_path(name) in ("", split)]
    if left_out:
        log.warning(
            f"{folder}: the files of split {split} are {summarize_list([f.name for f in files])}. "
            f"Left out: {summarize_list(left_out)}. Give files or a pattern to read others."
        )


def _select_data_files(paths: Iterable[Path]) -> list[Path]:
    """Return the visible files with a readable format, sorted."""
    files = (path for path in paths if data_suffix(path) and path.is_file())
    return sorted(
        file for file in files if not file.name.startswith(".") and file.name not in _INFO_FILES
    )


def data_suffix(path: Path) -> str:
    """Return the suffix of a readable file format in lower case; empty for another file."""
    name = path.name.lower()
    return next((suffix for suffix in DATA_SUFFIXES if name.endswith(suffix)), "")


def split_in_path(path: Path) -> str:
    """Return the split in a file name, or in a folder name of its path; empty without a split.

    As in ``datasets``, a name states a split as a word between separators or digits.
    """
    for part in (path.stem, *path.parent.parts):
        if match := _SPLIT_IN_NAME.search(part):
            return match[1]
    return ""


def read_records(path: Path) -> Iterator[SourceRow]:
    """Yield the rows of a file.

    Raises:
        InputError: if the file is unreadable, or has an unknown suffix.
    """
    readers = {
        ".jsonl": _read_json_lines,
        ".jsonl.gz": _read_gzip,
        ".json": _read_json_file,
        ".parquet": _read_parquet,
        ".csv": _read_csv,
        ".tsv": _read_csv,
        ".arrow": _read_arrow,
    }
    suffix = data_suffix(path)
    if not suffix:
        raise InputError(
            f"{path}: cannot read files ending in {path.suffix!r}: expected "
            f"{', '.join(DATA_SUFFIXES)}. Convert the file to JSON lines."
        )
    try:
        check_regular_file(path)
        yield from readers[suffix](path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from None


def _read_json_lines(path: Path) -> Iterator[SourceRow]:
    """Read JSON lines, or one list of objects with the wrong suffix."""
    with path.open("rb") as file:
        is_list = file.read(MAX_RAW_CHARS).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["
    if is_list:
        try:
            content = parse_json(read_file(path).decode("utf-8-sig"))
        except ValueError:
            content = None  # each line is a list, so each line gets its reason
        if isinstance(content, list) and any(isinstance(value, dict) for value in content):
            yield from _rows_of_json(path, content)
            return
    yield from _read_lines(path)


def _read_lines(path: Path) -> Iterator[SourceRow]:
    with path.open("rb") as file:
        # A binary file has line breaks only at "\n". A text file also breaks at U+2028, which real
        # problems contain.
        yield from _parse_json_lines(file)


def _read_gzip(path: Path) -> Iterator[SourceRow]:
    """Read compressed JSON lines."""
    with gzip.open(path, "rb") as file:
        yield from _parse_json_lines(_gzip_lines(path, file))


def _gzip_lines(path: Path, file: gzip.GzipFile) -> Iterator[bytes]:
    """Yield the lines of a compressed file.

    Raises:
        InputError: if the file is damaged, or a line has more than ``MAX_GZIP_LINE_BYTES``.
    """
    try:
        while line := file.readline(MAX_GZIP_LINE_BYTES + 1):
            if len(line) > MAX_GZIP_LINE_BYTES:
                raise InputError(
                    f"{path}: a line is too long: expected at most {MAX_GZIP_LINE_BYTES:,} bytes."
                )
            yield line
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is damaged: {error}. Compress the file again.") from None


def _parse_json_lines(lines: Iterable[bytes]) -> Iterator[SourceRow]:
    for number, line in enumerate(lines, start=1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            yield _parse_json_line(number, line)


def _parse_json_line(number: int, line: bytes) -> SourceRow:
    raw = line.decode(errors="replace").rstrip("\r\n")[:MAX_RAW_CHARS]
    try:
        fields = parse_json(line.decode())
    except UnicodeDecodeError as error:
        return SourceRow(number, {}, f"not UTF-8 at byte {error.start + 1}", raw)
    except ValueError as error:  # also for a number of 5,000 digits
        return SourceRow(number, {}, f"not JSON ({error})", raw)
    return _to_source_row(number, fields)


def _to_source_row(number: int, value: Any) -> SourceRow:
    """Return a JSON value as a row; the row is broken if the value is not an object."""
    if isinstance(value, dict):
        return SourceRow(number, value)
    error = f"a JSON {type(value).__name__}, not an object"
    return SourceRow(number, {}, error, _shorten_json(value))


def _shorten_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:MAX_RAW_CHARS]


def _read_json_file(path: Path) -> Iterator[SourceRow]:
    """Read a list of objects, an object, or JSON lines with the wrong suffix."""
    try:
        content = parse_json(read_file(path).decode("utf-8-sig"))
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start + 1}.") from None
    except ValueError as error:
        if not str(error).startswith("Extra data"):
            raise InputError(
                f"{path}: not JSON ({error}). Expected a list of objects, or JSON lines."
            ) from None
        yield from _read_lines(path)
        return
    yield from _rows_of_json(path, content)


def _rows_of_json(path: Path, content: Any) -> Iterator[SourceRow]:
    """Yield the rows of a JSON file: a list, a list in a field, columns, or a single object."""
    values = [content]
    if isinstance(content, list):
        values = content
    elif isinstance(content, dict):
        values = _find_row_list(path, content) or _rows_of_columns(content) or values
    for number, value in enumerate(values, start=1):
        yield _to_source_row(number, value)


def _find_row_list(path: Path, content: Mapping[str, Any]) -> list[Any]:
    """Return the list of objects in a field of a JSON object; empty without one.

    Raises:
        InputError: if there are several, such as one per split.
    """
    row_lists = {
        name: value
        for name, value in content.items()
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
    }
    names = [name for name in _ROW_FIELDS if name in row_lists]
    several = [name for name in (*names, *SPLITS) if name in row_lists and name != _EXAMPLES_FIELD]
    if len(several) > 1:
        raise InputError(
            f"{path}: the fields {', '.join(several)} all have rows. Save each one in its own file."
        )
    return row_lists[names[0]] if names else []


def _rows_of_columns(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an object whose values are columns; empty for another object.

    Columns are lists of one length, or objects with the same numbers as keys, as pandas writes
    them. Objects with other keys are rows by their ids.
    """
    columns = list(content.values())
    if len(columns) < 2:
        return []
    if all(isinstance(column, dict) for column in columns):
        keys = columns[0].keys()
        has_numbers = all(key.isdecimal() for key in keys)
        if not has_numbers or any(column.keys() != keys for column in columns):
            return []
        columns = [list(column.values()) for column in columns]
    elif not all(isinstance(column, list) for column in columns):
        return []
    if len(set(map(len, columns))) > 1:
        return []
    return [dict(zip(content, values, strict=True)) for values in zip(*columns, strict=True)]


def _read_parquet(path: Path) -> Iterator[SourceRow]:
    for number, fields in enumerate(read_parquet_rows(path), start=1):
        yield SourceRow(number, fields)


def _read_arrow(path: Path) -> Iterator[SourceRow]:
    for number, fields in enumerate(read_arrow_rows(path), start=1):
        yield SourceRow(number, fields)


def find_duplicates(rows: pl.LazyFrame, key: Sequence[str], name: str) -> list[str]:
    """Return the values of column ``name`` in the rows with duplicate keys.

    The first pass compares 64-bit hashes of the keys, so that memory holds only the hashes.

    Args:
        rows: The rows to search.
        key: The columns of the key.
        name: The column to return, without repetitions.
    """
    hashes = collect_rows(rows.select(hash=pl.struct(key).hash()), streaming=True)["hash"]
    duplicate_hashes = hashes.filter(hashes.is_duplicated()).unique()
    if not len(duplicate_hashes):
        return []
    candidates = collect_rows(rows.filter(pl.struct(key).hash().is_in(duplicate_hashes.implode())))
    names = candidates.filter(pl.struct(key).is_duplicated())[name]
    return names.unique(maintain_order=True).to_list()


def summarize_list(items: Sequence[str], separator: str = ", ") -> str:
    """Join the first items, and count the remaining ones."""
    summary = separator.join(items[:MAX_LISTED_ITEMS])
    remaining = len(items) - MAX_LISTED_ITEMS
    return f"{summary} and {remaining} more" if remaining > 0 else summary


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_csv(path: Path) -> Iterator[SourceRow]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            csv.field_size_limit(2**31 - 1)  # long thinking exceeds the default of 131,072
            # All values stay text, so that gold answers such as 1,000 or 007 keep their form.
            delimiter = "\t" if data_suffix(path) == ".tsv" else _find_delimiter(file.readline())
            file.seek(0)
            rows = csv.DictReader(file, strict=True, delimiter=delimiter)
            names = rows.fieldnames or ()
            if len(set(names)) < len(names):
                raise InputError(f"{path}: two columns have the same name: {', '.join(names)}.")
            for number, fields in enumerate(rows, start=1):
                if None in fields or None in fields.values():
                    raw = delimiter.join(str(value) for value in fields.values())[:MAX_RAW_CHARS]
                    yield SourceRow(number, {}, "more or fewer values than columns", raw)
                else:
                    yield SourceRow(number, fields)
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not CSV in UTF-8 ({error}).") from None


def _find_delimiter(header: str) -> str:
    """Return the delimiter that gives a header the most columns; a comma if several do.

    A quoted name may contain another delimiter, as in ``"question";"answer, final"``.
    """

    def count_columns(delimiter: str) -> int:
        try:
            return len(next(csv.reader([header], strict=True, delimiter=delimiter), []))
        except csv.Error:  # a quoted name ends before another sign
            return 0

    return max(CSV_DELIMITERS, key=count_columns)
