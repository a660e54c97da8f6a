"""Rows out of files: JSON lines, JSON, parquet, CSV. A broken row is reported, never fatal."""

from __future__ import annotations

import csv
import glob
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.core.lazy import pl

MAX_RAW_CHARS = 2000  #: How much of a broken row is kept to look at.
MAX_LISTED_ITEMS = 3  #: Rows named in a message; the rest are counted.

DATA_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
SPLITS = ("train", "test", "validation", "valid", "dev")


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row as found."""

    row_number: int  #: Where: the line number in JSON lines, else the row's number; both from 1.
    fields: Mapping[str, Any]
    error: str = ""
    raw: str = ""  #: The row as text, shortened; only if ``broken``.

    @property
    def text(self) -> str:
        """The row as text, shortened; it may hold half a surrogate pair."""
        return self.raw or _as_text(dict(self.fields))


def data_files(name: str, split: str) -> list[Path]:
    """Return the files of a path, directory or glob in a fixed order; InputError if none."""
    path = Path(os.path.expanduser(name))  # a user whom nobody knows is no error yet
    if path.is_dir():
        return _directory_files(path, split)
    if path.is_file():
        if split not in SPLITS:  # a file has no splits of its own to look it up in
            raise InputError(f"expected one of {', '.join(SPLITS)}.", field="split", value=split)
        return [path]
    if glob.has_magic(name):
        found = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
        files = [file for file in found if file.is_file()]
        if files:
            return files
        raise InputError(f"no file matches {name!r}. Quote the pattern, and check it with ls.")
    parent = path.parent
    while not parent.is_dir():
        path, parent = parent, parent.parent
    there = sorted(entry.name for entry in parent.iterdir() if not entry.name.startswith("."))
    said = f"Nearest in {parent}"
    beside = f" {said}: {', '.join(there[:3])}." if there else f" {parent} is empty."
    raise InputError(f"no file {name!r}.{suggest_names(path.name, there, said) or beside}")


def _directory_files(path: Path, split: str) -> list[Path]:
    """Return a directory's data files of ``split``: test rows never slip into training."""
    # A sealed dataset of ours, as one file or as shards; or the layout of the original MATH.
    if (path / "problems.parquet").is_file():
        return [path / "problems.parquet"]
    for inner in (path / "problems", path / split):
        if inner.is_dir():
            return _directory_files(inner, split)
    files = _readable(path.iterdir()) or _readable(path.rglob("*"))
    named = {file: split_in_path(file.relative_to(path)) for file in files}
    if any(named.values()):
        files = [file for file in files if named[file] == split]
    if not files:
        other = ", ".join(sorted({found for found in named.values() if found}))
        raise InputError(
            f"directory {path} holds no {split} data: expected files ending in "
            f"{', '.join(DATA_SUFFIXES)}" + (f"; it has files of split {other}." if other else ".")
        )
    return files


def _readable(paths: Iterable[Path]) -> list[Path]:
    data = (path for path in paths if path.suffix.lower() in DATA_SUFFIXES and path.is_file())
    return sorted(path for path in data if not path.name.startswith("."))


def split_in_path(path: Path) -> str:
    """Return the split that a file's name, or a folder of its path, states; empty if none."""
    for part in (path.stem, *path.parent.parts):
        for split in SPLITS:
            if part == split or part.startswith((f"{split}-", f"{split}_", f"{split}.")):
                return split
    return ""


def read_records(path: Path) -> Iterator[SourceRow]:
    """Yield the rows of a file; InputError if it cannot be read, or is of an unknown kind."""
    readers = dict(zip(DATA_SUFFIXES, (_json_lines, _json_file, _parquet, _csv), strict=True))
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path}: cannot read files ending in {path.suffix!r}: expected "
            f"{', '.join(DATA_SUFFIXES)}. Convert it to JSON lines."
        )
    try:
        yield from reader(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from None


def _json_lines(path: Path) -> Iterator[SourceRow]:
    with path.open("rb") as file:
        # A binary file splits on "\n" alone. Text would also be cut at U+2028 and its like,
        # which real problems contain.
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line.strip():
                yield _json_record(number, line)


def _json_record(number: int, line: bytes) -> SourceRow:
    raw = line.decode(errors="replace").rstrip("\r\n")[:MAX_RAW_CHARS]
    try:
        fields = json.loads(line.decode())
    except UnicodeDecodeError as error:
        return SourceRow(number, {}, f"not UTF-8 at byte {error.start + 1}", raw)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of 5,000 digits
        return SourceRow(number, {}, f"not JSON ({error})", raw)
    return _as_record(number, fields)


def _as_record(number: int, fields: Any) -> SourceRow:
    if isinstance(fields, dict):
        return SourceRow(number, fields)
    told = f"a JSON {type(fields).__name__}, not an object"
    return SourceRow(number, {}, told, _as_text(fields))


def _as_text(fields: Any) -> str:
    return json.dumps(fields, ensure_ascii=False, default=str)[:MAX_RAW_CHARS]


def _json_file(path: Path) -> Iterator[SourceRow]:
    """Read a list of objects, one object, or JSON lines under the wrong name."""
    try:
        whole = json.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start + 1}.") from None
    except (ValueError, RecursionError) as error:
        if not str(error).startswith("Extra data"):
            raise InputError(
                f"{path}: not JSON ({error}). Expected a list of objects, or JSON lines."
            ) from None
        yield from _json_lines(path)
        return
    rows = whole if isinstance(whole, list) else [whole]
    for number, fields in enumerate(rows, start=1):
        yield _as_record(number, fields)


def _parquet(path: Path) -> Iterator[SourceRow]:
    try:
        frame = pl.read_parquet(path, glob=False)
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path}: not parquet ({error}).") from None
    # 0.1 of 32 bits is 0.1, and not the 0.10000000149011612 of 64 that is next to it.
    frame = frame.with_columns(pl.col(pl.Float32).cast(pl.String).cast(pl.Float64))
    for number, fields in enumerate(frame.iter_rows(named=True), start=1):
        yield SourceRow(number, fields)


def scan_parquet(files: Sequence[Path]) -> pl.LazyFrame:
    """Return the rows of parquet files, read when they are asked for; no name is a pattern."""
    return pl.scan_parquet(list(files), glob=False)


def find_duplicates(rows: pl.LazyFrame, key: Sequence[str], name: str) -> list[str]:
    """Return ``name`` of the rows that share their key with another one.

    Keys are compared by their hashes first, so that only those of 64 bits are held at once.
    """
    hashed = rows.select(hash=pl.struct(key).hash()).collect(engine="streaming")["hash"]
    twice = hashed.filter(hashed.is_duplicated()).unique()
    if not len(twice):
        return []
    suspects = rows.filter(pl.struct(key).hash().is_in(twice.implode())).collect()
    found = suspects.filter(pl.struct(key).is_duplicated())[name]
    return found.unique(maintain_order=True).to_list()


def summarize_list(names: Sequence[str], between: str = ", ") -> str:
    """Name the first of several, and say how many more there are."""
    rest = len(names) - MAX_LISTED_ITEMS
    return between.join(names[:MAX_LISTED_ITEMS]) + (f" and {rest} more" if rest > 0 else "")


def replace_surrogates(text: str) -> str:
    """Return a text with its lone surrogates, which UTF-8 cannot hold, as U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _csv(path: Path) -> Iterator[SourceRow]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            csv.field_size_limit(2**31 - 1)  # a long thought is longer than the limit of 131,072
            # Every value stays text: a gold of 1,000 or 007 is not a number to be rewritten.
            rows = csv.DictReader(file, strict=True)
            names = rows.fieldnames or ()
            if len(set(names)) < len(names):
                raise InputError(f"{path}: two columns have one name: {', '.join(names)}.")
            for number, fields in enumerate(rows, start=1):
                if None in fields or None in fields.values():
                    raw = ",".join(str(value) for value in fields.values())[:MAX_RAW_CHARS]
                    yield SourceRow(number, {}, "more or fewer values than columns", raw)
                else:
                    yield SourceRow(number, fields)
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not CSV in UTF-8 ({error}).") from None
