"""Write a dataset in somebody else's format."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError, unknown_name_error
from fsdpo_data.core.files import open_atomic, store_errors, write_atomic
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.row_files import scan_parquet
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.validate import check_files
from fsdpo_data.exchange.formats import FORMATS, ExportFormat, NotExportableError, Row, unique_rows


@dataclass(slots=True)
class ExportResult:
    """What an export wrote."""

    file: Path  #: The rows.
    rows: int = 0  #: How many.
    #: Rows that the format has no words for, by reason.
    left_out: Counter[str] = field(default_factory=Counter)


def export(root: Path, name: str, out: Path) -> ExportResult:
    """Write the sealed dataset in ``root`` to the new or empty folder ``out``.

    What an export that was stopped has left there is written again.

    Raises:
        InputError: if there is no such format, the dataset has no rows for it, or ``out`` is taken.
        SchemaError: if ``root`` is no sealed dataset, or was changed since.
        StoreError: if the disk fails.
    """
    form = FORMATS.get(name)
    if form is None:
        raise unknown_name_error("to", name, FORMATS)
    manifest = read_manifest(root)
    check_files(root, manifest.files)
    if not getattr(manifest.rows, form.config):
        raise InputError(
            f"{root} has no {form.config}, which {name} is made of. Make them first: "
            f"`fsdpo-data pair {root}`."
        )
    extra = {
        path: json.dumps(value, indent=2).encode() + b"\n" for path, value in form.extra.items()
    }
    if out.exists() and not (
        out.is_dir() and all(_left(each, form, extra) for each in out.iterdir())
    ):
        raise InputError("it is not empty. Choose a new folder.", field="out", value=out)
    found = ExportResult(out / form.file)
    rows = _convert_rows(_rows(root, manifest, form.config), form, found.left_out)
    if name == "trl-sft":
        rows = unique_rows(rows)
    with store_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        for path, body in extra.items():
            write_atomic(out / path, body)
        as_list = form.file.endswith(".json")
        first, between, end = (b"[\n", b",\n", b"\n]\n") if as_list else (b"", b"\n", b"\n")
        with open_atomic(found.file) as file:
            for row in rows:
                file.write(between if found.rows else first)
                file.write(json.dumps(row, ensure_ascii=False).encode())
                found.rows += 1
            if found.rows or as_list:
                file.write(end if found.rows else b"[]\n")
    return found


def _left(file: Path, form: ExportFormat, extra: Mapping[str, bytes]) -> bool:
    """Whether a file is of an export that was stopped: the rows come last."""
    if file.name in extra:
        return file.read_bytes() == extra[file.name]
    return file.name in {f"{path}.tmp" for path in (form.file, *extra)}


def _convert_rows(rows: Iterable[Row], form: ExportFormat, left_out: Counter[str]) -> Iterator[Row]:
    for row in filter(form.selects, rows):
        try:
            yield form.convert(row)
        except NotExportableError as reason:
            left_out[str(reason)] += 1


def _rows(root: Path, manifest: Manifest, config: str) -> Iterator[dict[str, Any]]:
    """Yield rows with their problem's texts and the model's name, one file in memory at a time."""
    columns = {"question": "question", "source": "source", "gold": "answer"}
    problems = (
        scan_parquet(manifest.config_paths(root, "problems"))
        .select("problem_id", **columns)
        .collect()
    )
    model = pl.lit(manifest.spec.model.name).alias("model")
    for file in manifest.config_paths(root, config):
        frame = scan_parquet([file]).collect().with_columns(model)
        joined = frame.join(problems, on="problem_id", how="left", maintain_order="left")
        yield from joined.iter_rows(named=True)
