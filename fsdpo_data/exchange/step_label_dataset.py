"""A sealed dataset of imported step labels.

The solutions of a problem may be anywhere in a file, and a dataset has them together. Solutions
therefore go to an unnamed temporary file, and memory holds only their positions.
"""

import hashlib
import json
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from fsdpo_data.core.entities import UNGRADED, Problem, Solution
from fsdpo_data.core.files import store_errors, write_atomic
from fsdpo_data.core.identity import EngineRef, ModelRef, SourceRef, file_sha256
from fsdpo_data.core.jsonl_log import encode_line
from fsdpo_data.core.sampling import UNKNOWN, SamplingSpec, solution_id
from fsdpo_data.dataset.build_records import (
    GRADE_STAGE,
    NO_GRADER,
    SAMPLE_STAGE,
    GradeCounts,
    GradeRecord,
    GradeSettings,
    SampleRecord,
    SampleSettings,
    make_manifest,
    problem_record,
)
from fsdpo_data.dataset.card import dataset_card
from fsdpo_data.dataset.manifest import (
    FileEntry,
    Manifest,
    StageCounts,
    StageRecord,
    read_manifest,
)
from fsdpo_data.dataset.run import MANIFEST_FILE, QUARANTINE_FILE, lock_run_directory
from fsdpo_data.dataset.schema import digest_bytes, problems_table, to_table, write_parquet
from fsdpo_data.dataset.stage import seal_dataset
from fsdpo_data.dataset.tally import Tally
from fsdpo_data.exchange.importing import (
    ImportResult,
    make_row,
    no_rows_error,
    read_solutions,
    step_label_reader,
)
from fsdpo_data.exchange.step_label_readers import LabelledSolution, StepLabelReader
from fsdpo_data.models.prompts import RECORDED_TEMPLATE, get_template
from fsdpo_data.stages.import_labels import (
    IMPORT_STAGE,
    ImportCounts,
    ImportRecord,
    ImportSettings,
)
from fsdpo_data.steps.rewards import OUTCOME_LABELS

SHARD_SOLUTIONS = 100_000  #: Number of solutions after which a file of solutions ends.
ENGINE = "step-labels"  #: Name in the manifest in place of the engine that sampled the solutions.


@dataclass(slots=True)
class _Spool:
    """Solutions in a temporary file, by problem."""

    file: IO[bytes]  #: The temporary file, with one JSON line per solution.
    problems: dict[str, Problem] = field(default_factory=dict)  #: Problems by id, in order.
    #: Positions of the lines in the file, by problem id.
    offsets: dict[str, "array[int]"] = field(default_factory=dict)
    is_rendered: bool = False  #: Whether the rows have prompts of their own.
    end: int = 0  #: Size of the file.

    def add(self, problem: Problem, solution: LabelledSolution, row: Mapping[str, Any]) -> None:
        """Store a solution as its row of a training file."""
        self.problems.setdefault(problem.id, problem)
        self.offsets.setdefault(problem.id, array("Q")).append(self.end)
        self.end += self.file.write(encode_line(row))
        self.is_rendered = solution.is_rendered

    def read(self, problem_id: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a problem."""
        for offset in self.offsets[problem_id]:
            self.file.seek(offset)
            yield orjson.loads(self.file.readline())


def import_dataset(
    source: Path,
    name: str,
    out: Path,
    template: str = "problem",
    *,
    reader: StepLabelReader | None = None,
    resume: bool = False,
) -> tuple[Manifest, ImportResult]:
    """Seal the step labels in ``source`` as the new dataset ``out``.

    The labels are in the column ``step_labels``. No answer is graded, because many published
    solutions end at their first wrong step; the outcome of each solution is ``ungraded``.

    Args:
        source: File with rows of another format.
        name: Name of the format, from :data:`STEP_LABEL_READERS`.
        out: Directory of the new dataset.
        template: Template that turns problems into prompts. Formats with prompts keep theirs.
        reader: The reader of a format that has no name in that table; None for a format of it.
        resume: Whether ``out`` may contain the unfinished import.

    Returns:
        The manifest, and the counts of the import.

    Raises:
        InputError: if the format, the file or the template does not exist, or if no row is
            readable.
        RunMismatchError: if ``out`` contains another run.
        StoreError: if the disk fails.
    """
    reader = reader or step_label_reader(name)
    prompt_template = get_template(template)
    revision = f"sha256:{file_sha256(source)}"
    result = ImportResult()
    with store_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    with store_errors(out.parent), tempfile.TemporaryFile(dir=out.parent) as spool_file:
        spool = _Spool(spool_file)
        for solution in read_solutions(source, name, reader, result):
            problem = Problem(solution.problem, solution.answer, source.name, "train")
            spool.add(problem, solution, make_row(solution, prompt_template))
        if not result.rows:
            raise no_rows_error(source, name, result)
        if spool.is_rendered:
            prompt_template = RECORDED_TEMPLATE
        sampling = SamplingSpec(n=max(map(len, spool.offsets.values())))
        settings = SampleSettings(
            model=ModelRef(UNKNOWN, UNKNOWN),
            template=prompt_template.ref,
            sampling=sampling,
            unknown_fields=("temperature", "top_p", "max_tokens", "seed"),
            engine=EngineRef(name=ENGINE, dtype=UNKNOWN, recording=revision),
            segmenter=UNKNOWN,
        )
        reasons = Counter(row["reason"].partition(":")[0] for row in result.quarantined)
        sources = [SourceRef(source.name, revision, "train")]
        records: list[StageRecord[Any, Any]] = [
            problem_record(sources, list(spool.problems.values()), reasons),
            SampleRecord(name=SAMPLE_STAGE, options=settings, counts=StageCounts()),
            GradeRecord(
                name=GRADE_STAGE,
                options=GradeSettings(grader=NO_GRADER, labels=OUTCOME_LABELS),
                writes=["outcome"],
                counts=GradeCounts(),
            ),
            ImportRecord(
                name=IMPORT_STAGE,
                options=ImportSettings(
                    format=name, meaning=reader.label_meaning, drops=reader.drops
                ),
                writes=["step_labels"],
                counts=ImportCounts(
                    rows=result.read, right=result.steps[True], wrong=result.steps[False]
                ),
            ),
        ]
        config = {"stages": {record.name: record.options for record in records}}
        with lock_run_directory(out, config, resume=resume):
            if not (out / MANIFEST_FILE).exists():
                _seal(out, records, spool, series=settings.sampling_id, result=result)
            return read_manifest(out), result


def _seal(
    out: Path,
    records: Sequence[StageRecord[Any, Any]],
    spool: _Spool,
    *,
    series: str,
    result: ImportResult,
) -> None:
    """Write the files of the dataset, check them, and write the manifest last."""
    with store_errors(out):
        lines = (json.dumps(row, ensure_ascii=True) + "\n" for row in result.quarantined)
        write_atomic(out / QUARANTINE_FILE, "".join(lines).encode())
    problems_path = "problems/train-00000-of-00001.parquet"
    write_parquet(problems_table(spool.problems.values()), out / problems_path)
    files = [FileEntry.from_file(out, problems_path, len(spool.problems))]
    tally = Tally()
    shards = list(_shard_problems(spool.offsets))
    for index, problem_ids in enumerate(shards):
        path = f"solutions/train-{index:05d}-of-{len(shards):05d}.parquet"
        solutions: list[Solution] = []
        for problem_id in problem_ids:
            rows = list(spool.read(problem_id))
            solutions += _make_solutions(problem_id, rows, series)
            tally.add_ungraded([row["completions"] for row in rows])
        text_digest = hashlib.sha256()
        for solution in solutions:
            text_digest.update(digest_bytes(solution.text))
        write_parquet(to_table("solutions", solutions), out / path)
        files.append(FileEntry.from_file(out, path, len(solutions), text_digest.hexdigest()))
    seal_dataset(out, make_manifest(records, files, tally), dataset_card)


def _shard_problems(offsets: Mapping[str, "array[int]"]) -> Iterator[list[str]]:
    """Yield the ids of the problems of each file of solutions."""
    problem_ids: list[str] = []
    n_solutions = 0
    for problem_id, problem_offsets in offsets.items():
        problem_ids.append(problem_id)
        n_solutions += len(problem_offsets)
        if n_solutions >= SHARD_SOLUTIONS:
            yield problem_ids
            problem_ids = []
            n_solutions = 0
    if problem_ids:
        yield problem_ids


def _make_solutions(
    problem_id: str, rows: Iterable[Mapping[str, Any]], series: str
) -> Iterator[Solution]:
    """Yield the solutions of a problem."""
    for index, row in enumerate(rows):
        yield Solution(
            solution_id=solution_id(problem_id, series, index),
            problem_id=problem_id,
            sample_index=index,
            prompt=row["prompt"],
            completions=row["completions"],
            finish_reason="stop",
            n_tokens=None,
            answer=None,
            outcome=UNGRADED,
            labels=None,
            step_labels=[float(label) for label in row["labels"]],
            step_ratings=row.get("ratings"),
        )
