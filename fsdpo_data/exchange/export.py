"""Export a sealed dataset to the format of another tool."""

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fsdpo_data.core.errors import InputError, unknown_name_error
from fsdpo_data.core.files import open_atomic, store_errors, write_atomic
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.benchmark_problems import check_no_benchmark_problems
from fsdpo_data.dataset.chat_prompts import missing_format
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.schema import arrow_schema, scan_rows
from fsdpo_data.dataset.separate_thinking import (
    THINKING_IS_MISSING,
    find_solutions_without_thinking,
    is_thinking_missing,
)
from fsdpo_data.dataset.stage_records import (
    PAIR_STAGE,
    SAMPLE_STAGE,
    PairRecord,
    SampleRecord,
    has_imported_pairs,
    lacks_chat_format,
)
from fsdpo_data.dataset.step_labels import find_label_kind, right_steps
from fsdpo_data.dataset.validate import check_files, explain_damage
from fsdpo_data.exchange.export_formats import ExportFormat, NotExportableError, Row, unique_rows
from fsdpo_data.exchange.formats import export_formats
from fsdpo_data.pairs.best_worst import PairSpec

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ExportResult:
    """The file of an export, with its counts."""

    file: Path  #: The file with the exported rows.
    rows: int = 0  #: Number of exported rows.
    #: Number of rows that the format cannot express, by reason.
    left_out: Counter[str] = field(default_factory=Counter)


class _RowSeparators(NamedTuple):
    """Bytes around the rows of a file."""

    start: bytes  #: Bytes before the first row.
    between: bytes  #: Bytes between two rows.
    end: bytes  #: Bytes after the last row.
    empty_file: bytes  #: Content of a file without rows.


_JSON_LIST = _RowSeparators(start=b"[\n", between=b",\n", end=b"\n]\n", empty_file=b"[]\n")
_JSON_LINES = _RowSeparators(start=b"", between=b"\n", end=b"\n", empty_file=b"")


def export(root: Path, name: str, out: Path, *, allow_benchmark: bool = False) -> ExportResult:
    """Export the sealed dataset in ``root`` to the new or empty folder ``out``.

    ``out`` may also contain the files of an interrupted export, which are written again.

    Raises:
        InputError: If the format does not exist, if the dataset has no rows for the format or has
            benchmark problems without ``allow_benchmark``, or if ``out`` contains other files.
        SchemaError: If ``root`` is not a sealed dataset, or if its files have changed.
        StoreError: If the disk fails.
    """
    formats = export_formats()
    if name not in formats:
        raise unknown_name_error("to", name, formats)
    export_format = formats[name]
    manifest = read_manifest(root)
    check_files(root, manifest.files)
    if not allow_benchmark:
        check_no_benchmark_problems(root, manifest)
    if not getattr(manifest.rows, export_format.config):
        raise InputError(
            f"{root} has no {export_format.config}, which the format {name} needs. "
            f"Create them first: `fsdpo-data pair {root}`."
        )
    if lacks_chat_format(manifest):
        log.warning(
            f"{missing_format(str(root))}. The trainer must put the model's chat template around "
            "them, as `fsdpo-train dpo` does."
        )
    if export_format.needs_end and export_format.config == "pairs" and has_imported_pairs(manifest):
        raise InputError(
            f"the imported pairs of {root} end with the step that differs, and trainers of the "
            f"format {name} would teach the policy to stop there. Use `to=step-dpo-10k`."
        )
    extra_files = {
        file_name: json.dumps(value, indent=2).encode() + b"\n"
        for file_name, value in export_format.extra_files.items()
    }
    if out.exists() and not _is_writable_folder(out, export_format, extra_files):
        raise InputError("the folder is not empty. Choose a new folder.", field="out", value=out)
    result = ExportResult(out / export_format.file_name)
    dataset_rows = read_rows(root, manifest, export_format.config)
    selected_rows: Iterator[Row] = filter(export_format.accepts, dataset_rows)
    if export_format.trains_policy:
        without_thinking = find_solutions_without_thinking(root, manifest)
        selected_rows = _drop_rows(selected_rows, without_thinking, result.left_out)
    rows = _convert_rows(selected_rows, export_format, result.left_out)
    if export_format.has_unique_rows:
        rows = unique_rows(rows)
    with explain_damage(root), store_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        for file_name, content in extra_files.items():
            write_atomic(out / file_name, content)
        result.rows = _write_rows(result.file, rows)
    return result


def _write_rows(path: Path, rows: Iterable[Row]) -> int:
    """Write rows to a ``.json`` or ``.jsonl`` file, and return their number."""
    separators = _JSON_LIST if path.suffix == ".json" else _JSON_LINES
    count = 0
    with open_atomic(path) as file:
        for row in rows:
            file.write(separators.between if count else separators.start)
            file.write(json.dumps(row, ensure_ascii=False).encode())
            count += 1
        file.write(separators.end if count else separators.empty_file)
    return count


def _is_writable_folder(
    folder: Path, export_format: ExportFormat, extra_files: Mapping[str, bytes]
) -> bool:
    """Check that a folder contains only files of an interrupted export, or none."""
    return folder.is_dir() and all(
        _is_interrupted_output(file, export_format, extra_files) for file in folder.iterdir()
    )


def _is_interrupted_output(
    file: Path, export_format: ExportFormat, extra_files: Mapping[str, bytes]
) -> bool:
    """Check that a file comes from an interrupted export, which writes its rows last."""
    if file.name in extra_files:
        return file.read_bytes() == extra_files[file.name]
    return file.name in {f"{name}.tmp" for name in (export_format.file_name, *extra_files)}


def _drop_rows(
    rows: Iterable[Row], solution_ids: Collection[str], left_out: Counter[str]
) -> Iterator[Row]:
    """Yield the rows without the solutions whose thinking is missing, and count the others."""
    for row in rows:
        if is_thinking_missing(row, solution_ids):
            left_out[THINKING_IS_MISSING] += 1
        else:
            yield row


def _convert_rows(
    rows: Iterable[Row], export_format: ExportFormat, left_out: Counter[str]
) -> Iterator[Row]:
    """Yield the rows in the export format, and count the other rows in ``left_out``."""
    for row in rows:
        try:
            yield export_format.convert(row)
        except NotExportableError as reason:
            left_out[str(reason)] += 1


def _pair_aggregate(manifest: Manifest) -> str:
    """Return the aggregate of the step rewards that chose the pairs of a dataset."""
    record = manifest.find(PAIR_STAGE, PairRecord)
    if record is not None and isinstance(record.options, PairSpec):
        return record.options.aggregate
    return manifest.pair_aggregate


def read_rows(root: Path, manifest: Manifest, config: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a config with their problem and model, one file in memory at a time.

    ``aggregate`` of a pair is the aggregate that chose it. An outcome reward model trains only the
    reward of the last step, so its rewards have another one.

    ``labels`` of a solution tells which steps are right, by the step labels of the dataset that
    were made last; None if the solution has no such labels. They are never fractions, because TRL
    and Axolotl read a fraction below 1 as 0.
    """
    label_kind = find_label_kind(manifest)
    problems = collect_rows(
        scan_rows("problems", manifest.config_paths(root, "problems")).select(
            "problem_id", question="question", source="source", gold="answer"
        )
    )
    model = pl.lit(manifest.get(SAMPLE_STAGE, SampleRecord).options.model.name).alias("model")
    aggregate = pl.lit(_pair_aggregate(manifest)).alias("aggregate")
    for file in manifest.config_paths(root, config):
        rows = scan_rows(config, [file]).select(arrow_schema(config).names)
        frame = collect_rows(rows).with_columns(model, aggregate)
        joined = frame.join(problems, on="problem_id", how="left", maintain_order="left")
        for row in joined.iter_rows(named=True):
            if config == "solutions":
                row["labels"] = right_steps(row, label_kind)
                if label_kind != "imported":
                    row["imported_ratings"] = None  # ratings belong to imported labels
            yield row
