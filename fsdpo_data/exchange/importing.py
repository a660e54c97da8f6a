"""Turn rows of other tools into a sealed dataset, or step labels into a file of training rows.

Nothing is sampled; all other stages are the same as in a build. Files are read once, row by row.
"""

import json
import logging
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from fsdpo_data.core.completion_records import CompletionRecord
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import open_atomic, store_errors, write_atomic
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.derive import run_stages, stage_options
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.run_directory import MANIFEST_FILE, RunDir, lock_run_directory
from fsdpo_data.exchange.formats import ExchangeFormat
from fsdpo_data.exchange.import_options import ImportOutputsOptions
from fsdpo_data.exchange.imported_responses import RecordedResponseImport
from fsdpo_data.exchange.imported_step_labels import (
    StepLabelImport,
    make_training_row,
)
from fsdpo_data.exchange.response_formats import RecordedResponse
from fsdpo_data.exchange.row_import import (
    ImportResult,
    ImportSource,
    RowImport,
    open_source,
)
from fsdpo_data.exchange.spool import SolutionSpool
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.stages.sample import BUILD_FOLDER, seal_samples

log = logging.getLogger(__name__)

_PROBLEMS_PER_WRITE = 64  #: Problems whose solutions are in memory at a time.


def run_import(
    options: ImportOutputsOptions, progress: Progress, label_format: ExchangeFormat | None = None
) -> tuple[Manifest, ImportResult]:
    """Read recorded responses or step labels, and seal them as the new dataset ``options.out``.

    Responses are segmented, graded and labelled. Step labels keep their steps, and no answer is
    graded, because many published solutions end at their first wrong step.

    A problem has as many samples as the rows have responses to it. The manifest's ``n`` is the
    maximum over the problems.

    Args:
        options: The options.
        progress: Receives the progress.
        label_format: The format of step labels; None for recorded responses, whose rows determine
            their format.

    Returns:
        The manifest, and the counts of the import.

    Raises:
        InputError: if no row is usable, or the file has several models and ``series`` is missing.
        UnavailableError: if the Hub cannot be reached, or refuses access.
        RunMismatchError: if ``out`` contains another run.
        StoreError: if the disk fails.
    """
    source = open_source(options.file, options.split)
    out = Path(options.out)
    with store_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    with store_errors(out.parent), tempfile.TemporaryFile(dir=out.parent) as file:
        spool = SolutionSpool(file)
        rows: RowImport
        if label_format is None:
            rows = RecordedResponseImport(options, spool)
        else:

            def add_to_spool(solution: RecordedResponse, prompt: str) -> None:
                problem = Problem(solution.question, solution.gold, source.ref.name, options.split)
                labels = tuple(map(float, solution.completion.imported_labels or ()))
                spool.add(problem, prompt, replace(solution.completion, imported_labels=labels))

            rows = StepLabelImport(label_format, options.template, add_to_spool)
        _read_with_warnings(rows, source)
        return _seal(spool, rows, source, options, progress), rows.result


def _read_with_warnings(rows: RowImport, source: ImportSource) -> None:
    """Read all rows, and log what the user may overlook in them."""
    rows.read(source)
    for warning in rows.warnings():
        log.warning(warning)


def _seal(
    spool: SolutionSpool,
    rows: RowImport,
    source: ImportSource,
    options: ImportOutputsOptions,
    progress: Progress,
) -> Manifest:
    """Run the stages of an import on the solutions of a spool, and seal ``options.out``."""
    out = Path(options.out)
    spec = rows.make_spec(source.ref.revision, max(spool.counts.values()))
    problems = ProblemSet(
        list(spool.problems.values()), [*(rows.source_refs or [source.ref])], [*rows.quarantined]
    )
    config = spec.config(problems)

    def seal_solutions(folder: Path, *, resume: bool) -> Manifest:
        """Seal the solutions without further stages."""
        with spec.open_run(folder, config, resume=resume) as run:
            if not (folder / MANIFEST_FILE).exists():
                _append_missing(run, spool)
                seal_samples(
                    run,
                    spec,
                    problems,
                    model_name=spec.sample.model.name,
                    progress=progress,
                    workers=options.workers,
                    sample_counts=spool.counts,
                    label_counts=rows.label_counts,
                )
            return read_manifest(folder)

    if not rows.stages:
        return seal_solutions(out, resume=options.resume)
    config_of_all = {"stages": config["stages"] | stage_options(rows.stages)}
    with lock_run_directory(out, config_of_all, resume=options.resume):
        # The lock has checked the config, so everything in the directory belongs to this run.
        seal_solutions(out / BUILD_FOLDER, resume=True)
        return run_stages(out / BUILD_FOLDER, out, rows.stages, progress)


def _append_missing(run: RunDir, spool: SolutionSpool) -> None:
    """Append the solutions of the problems that a run does not have yet."""
    missing_ids = [key for key in spool.problems if key not in run.line_spans]
    for start in range(0, len(missing_ids), _PROBLEMS_PER_WRITE):
        problem_ids = missing_ids[start : start + _PROBLEMS_PER_WRITE]
        run.append(
            [CompletionRecord(key, spool.prompt(key), spool.solutions(key)) for key in problem_ids]
        )


def import_training_rows(
    options: ImportOutputsOptions, label_format: ExchangeFormat
) -> ImportResult:
    """Convert step labels to the new file ``options.out`` for ``fsdpo-train prm``.

    Its rows have ``prompt``, ``completions`` and ``labels``. A manifest and the quarantined rows
    are next to it.

    Args:
        options: The options.
        label_format: The format of the step labels.

    Raises:
        InputError: if the file or the template does not exist, if ``out`` exists, or if no row is
            usable.
        UnavailableError: if the Hub cannot be reached, or refuses access.
        StoreError: if the disk fails.
    """
    out = Path(options.out)
    if out.suffix != ".jsonl" or out.exists():
        raise InputError("expected a new file ending in .jsonl.", field="out", value=out)
    source = open_source(options.file, options.split)
    with store_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(out) as file:

            def write_row(solution: RecordedResponse, prompt: str) -> None:
                row = json.dumps(make_training_row(solution, prompt), ensure_ascii=False)
                file.write(row.encode() + b"\n")

            rows = StepLabelImport(label_format, options.template, write_row)
            _read_with_warnings(rows, source)
            # open_atomic renames the rows last, so an interrupted import starts again.
            write_atomic(out.with_suffix(".manifest.json"), rows.provenance_json(source.ref))
            if rows.quarantined:
                lines = (json.dumps(asdict(row)) + "\n" for row in rows.quarantined)
                write_atomic(quarantine_path(out), "".join(lines).encode())
    return rows.result


def quarantine_path(out: Path) -> Path:
    """Return the path of the quarantined rows of an import to the file ``out``."""
    return out.with_suffix(".quarantine.jsonl")
