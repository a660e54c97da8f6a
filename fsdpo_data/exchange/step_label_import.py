"""Import of published step labels: a sealed dataset, or a file for ``fsdpo-train prm``.

No answer is graded, because many published solutions end at their first wrong step.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import open_atomic, store_errors, write_atomic
from fsdpo_data.core.identity import RELEASE, EngineRef, ModelRef, SourceRef, file_sha256
from fsdpo_data.core.progress import NO_PROGRESS, Progress
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import SourceRow, data_suffix, read_records
from fsdpo_data.core.sampling import UNKNOWN, Completion, DeclaredSampling, SamplingSpec
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.stage_records import NO_GRADER, GradeSettings, SampleSettings
from fsdpo_data.exchange.imported_pairs import ImportedPairStage
from fsdpo_data.exchange.response_formats import RecordedResponse
from fsdpo_data.exchange.spool import SolutionSpool, seal_import
from fsdpo_data.exchange.step_label_formats import StepLabelFormat
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, Template, get_template
from fsdpo_data.problems.hub_datasets import DATASETS, HubSource, load_hub
from fsdpo_data.problems.load import QuarantinedRow, quarantine_row
from fsdpo_data.stages.import_labels import ImportCounts, ImportSettings
from fsdpo_data.stages.sample import RECORDED_STEPS, BuildSpec
from fsdpo_data.steps.rewards import OUTCOME_LABELS

ENGINE = "step-labels"  #: Name in the manifest in place of the engine that sampled the solutions.


@dataclass(slots=True)
class ImportResult:
    """The counts of an import, and its quarantined rows."""

    read: int = 0  #: Number of rows in the source.
    rows: int = 0  #: Number of solutions; PRM800K and Step-DPO give several per source row.
    #: Number of steps, by whether their label means right (0.5 or more).
    steps: Counter[bool] = field(default_factory=Counter)
    quarantined: list[QuarantinedRow] = field(default_factory=list)  #: The unreadable rows.


class LabelSource(NamedTuple):
    """A file with step labels, or a dataset on the Hub."""

    ref: SourceRef  #: Its name and revision.
    location: str  #: Its path or name in the list of quarantined rows.
    rows: Iterable[SourceRow]  #: Its rows.


def open_labels(source: str | Path) -> LabelSource:
    """Open a file, or the training split of a dataset on the Hub.

    Args:
        source: A path, or ``org/name[@revision][:config]``.

    Raises:
        InputError: if the file cannot be read, or the dataset does not exist.
        UnavailableError: if the Hub cannot be reached, or refuses access.
    """
    path = Path(source)
    is_file = path.exists() or bool(data_suffix(path))
    hub_source = None if is_file else HubSource.parse(str(source), DATASETS)
    if hub_source is not None:
        commit, configs = load_hub(hub_source, "train")
        rows = [row for config in configs for row in config.rows]
        return LabelSource(SourceRef(hub_source.name, commit, "train"), hub_source.name, rows)
    try:
        revision = f"sha256:{file_sha256(path)}"
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from None
    return LabelSource(SourceRef(path.name, revision, "train"), str(path), read_records(path))


def import_dataset(
    source: str | Path,
    label_format: StepLabelFormat,
    out: Path,
    template: str = "problem",
    *,
    resume: bool = False,
    progress: Progress = NO_PROGRESS,
) -> tuple[Manifest, ImportResult]:
    """Seal the step labels in ``source`` as the new dataset ``out``.

    The labels are in the column ``step_labels``. The outcome of each solution is ``ungraded``. The
    pairs of a format with pairs are in the config ``pairs``.

    Args:
        source: File or dataset on the Hub with rows of another format; see :func:`open_labels`.
        label_format: The format.
        out: Directory of the new dataset.
        template: Template that turns problems into prompts. Formats with prompts keep theirs.
        resume: Whether ``out`` may contain the unfinished import.
        progress: Receives the progress.

    Returns:
        The manifest, and the counts of the import.

    Raises:
        InputError: if the file or the template does not exist, or if no row is readable.
        RunMismatchError: if ``out`` contains another run.
        StoreError: if the disk fails.
    """
    prompt_template = get_template(template)
    labels = open_labels(source)
    result = ImportResult()
    with store_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    with store_errors(out.parent), tempfile.TemporaryFile(dir=out.parent) as file:
        spool = SolutionSpool(file)
        for solution in _read_solutions(labels, label_format, result):
            if solution.prompt:
                prompt_template = RECORDED_TEMPLATE
            problem = Problem(solution.question, solution.gold, labels.ref.name, "train")
            prompt = solution.prompt or prompt_template.render(solution.question)
            spool.add(problem, prompt, _completion(solution))
        n_samples = max(spool.counts.values())
        counts = ImportCounts(rows=result.read, right=result.steps[True], wrong=result.steps[False])
        manifest = seal_import(
            spool,
            _import_spec(labels.ref.revision, label_format, prompt_template, n_samples),
            [labels.ref],
            result.quarantined,
            out,
            resume=resume,
            progress=progress,
            label_counts=counts,
            stages=[ImportedPairStage()] if label_format.has_pairs else (),
        )
        return manifest, result


def _import_spec(
    revision: str, label_format: StepLabelFormat, template: Template, n_samples: int
) -> BuildSpec:
    """Return the identity of a dataset of step labels.

    Args:
        revision: Digest of the file, or commit of the dataset.
        label_format: Its format.
        template: The template of the prompts.
        n_samples: Largest number of solutions of a problem.
    """
    return BuildSpec(
        sample=SampleSettings(
            model=ModelRef(UNKNOWN, UNKNOWN),
            template=template.ref,
            sampling=SamplingSpec(n=n_samples),
            unknown_fields=DeclaredSampling().unknown_fields,
            engine=EngineRef(name=ENGINE, dtype=UNKNOWN, recording=revision),
            segmenter=RECORDED_STEPS,
        ),
        grade=GradeSettings(grader=NO_GRADER, labels=OUTCOME_LABELS),
        step_labels=ImportSettings(
            format=label_format.name,
            meaning=label_format.label_meaning,
            drops=label_format.drops,
        ),
    )


def _completion(solution: RecordedResponse) -> Completion:
    """Return a solution as it is recorded."""
    assert solution.step_labels is not None
    ratings = solution.step_ratings
    return Completion(
        solution.response,
        "stop",
        step_chars=tuple(map(len, solution.steps)),
        step_labels=tuple(map(float, solution.step_labels)),
        step_ratings=None if ratings is None else tuple(ratings),
    )


def import_rows(
    source: str | Path, label_format: StepLabelFormat, out: Path, template: str = "problem"
) -> ImportResult:
    """Convert the step labels in ``source`` to the new file ``out`` for ``fsdpo-train prm``.

    Its rows have ``prompt``, ``completions`` and ``labels``. A manifest and the quarantined rows
    are next to it.

    Args:
        source: File or dataset on the Hub with rows of another format; see :func:`open_labels`.
        label_format: The format.
        out: New ``.jsonl`` file.
        template: Template that turns problems into prompts. Formats with prompts keep theirs.

    Raises:
        InputError: if the file or the template does not exist, if ``out`` exists, or if no row is
            readable.
        StoreError: if the disk fails.
    """
    if out.suffix != ".jsonl" or out.exists():
        raise InputError("expected a new file ending in .jsonl.", field="out", value=out)
    prompt_template = get_template(template)
    labels = open_labels(source)
    result = ImportResult()
    with store_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(out) as file:
            for solution in _read_solutions(labels, label_format, result):
                row = json.dumps(_training_row(solution, prompt_template), ensure_ascii=False)
                file.write(row.encode() + b"\n")
            # open_atomic renames the rows last, so an interrupted import starts again.
            write_atomic(
                out.with_suffix(".manifest.json"),
                _provenance_json(labels.ref, label_format, prompt_template, result),
            )
            if result.quarantined:
                lines = (json.dumps(asdict(row)) + "\n" for row in result.quarantined)
                write_atomic(quarantine_path(out), "".join(lines).encode())
    return result


def quarantine_path(out: Path) -> Path:
    """Return the path of the quarantined rows of an import to the file ``out``."""
    return out.with_suffix(".quarantine.jsonl")


def _read_solutions(
    labels: LabelSource, label_format: StepLabelFormat, result: ImportResult
) -> Iterator[RecordedResponse]:
    """Yield the solutions of a source, and count them in ``result``.

    Raises:
        InputError: if the file cannot be read, or no row is readable.
    """
    for record in labels.rows:
        result.read += 1
        try:
            solutions = label_format.read_responses(record)
        except UnusableRowError as reason:
            result.quarantined.append(quarantine_row(labels.location, record, str(reason)))
            continue
        for solution in solutions:
            result.rows += 1
            result.steps.update(label >= 0.5 for label in solution.step_labels or ())
            yield solution
    if not result.rows:
        message = (
            f"{labels.location}: none of its {result.read} rows has the format {label_format.name}."
        )
        if result.quarantined:
            message += f" The first problem: {result.quarantined[0].reason}."
        raise InputError(message)


def _training_row(solution: RecordedResponse, template: Template) -> dict[str, Any]:
    """Return the row of a training file for one solution."""
    row: dict[str, Any] = {
        "prompt": solution.prompt or template.render(solution.question),
        "completions": solution.steps,
        "labels": solution.step_labels,
    }
    if not solution.prompt:
        row |= {"problem": solution.question, "answer": solution.gold}
    if solution.step_ratings is not None:
        row["ratings"] = solution.step_ratings
    return row


def _provenance_json(
    source: SourceRef, label_format: StepLabelFormat, template: Template, result: ImportResult
) -> bytes:
    """Return the manifest: the source of the rows, and the meaning of their labels."""
    manifest = {
        "made_by": RELEASE,
        "source": {"name": source.name, "revision": source.revision},
        "format": label_format.name,
        "labels": label_format.label_meaning,
        "loses": label_format.drops,  # the fields of the source that are not imported
        "template": template.name,
        "rows": {
            "read": result.read,
            "written": result.rows,
            "set_aside": len(result.quarantined),
        },
        "steps": {"right": result.steps[True], "wrong": result.steps[False]},
    }
    return json.dumps(manifest, indent=2, ensure_ascii=False).encode() + b"\n"
