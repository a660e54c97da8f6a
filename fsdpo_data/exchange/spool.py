"""Imported solutions in a temporary file, and the dataset that is sealed from them.

The solutions of a problem may be anywhere in a file, and a dataset has them together. Solutions
therefore go to an unnamed temporary file, one per line, and memory holds only their positions.
"""

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import orjson

from fsdpo_data.core.completion_records import (
    CompletionRecord,
    dump_completion,
    load_completions,
)
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.identity import SourceRef, text_key
from fsdpo_data.core.jsonl_log import encode_line
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.sampling import Completion
from fsdpo_data.dataset.derive import run_stages, stage_options
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.run_directory import (
    MANIFEST_FILE,
    RunDir,
    lock_run_directory,
)
from fsdpo_data.dataset.stage import Stage
from fsdpo_data.problems.load import ProblemSet, QuarantinedRow
from fsdpo_data.stages.import_labels import ImportCounts
from fsdpo_data.stages.sample import BUILD_FOLDER, BuildSpec, seal_samples

_PROBLEMS_PER_WRITE = 64  #: Problems whose solutions are in memory at a time.


class SolutionSpool:
    """Problems in memory, with their prompts and solutions in a temporary file.

    Attributes:
        problems: The problems by id, in the order of the input.
    """

    def __init__(self, file: IO[bytes]) -> None:
        """Store everything in ``file``, which is empty."""
        self._file = file
        self.problems: dict[str, Problem] = {}
        self._prompt_offsets: dict[str, int] = {}  # by problem id
        self._prompt_keys: dict[str, bytes] = {}  # digests of the prompts, by problem id
        self._solution_offsets: dict[str, array[int]] = {}  # by problem id

    @property
    def counts(self) -> dict[str, int]:
        """The number of solutions by problem id."""
        return {key: len(offsets) for key, offsets in self._solution_offsets.items()}

    def add(self, problem: Problem, prompt: str, solution: Completion) -> None:
        """Store a solution of a problem, and the prompt if it is the first one.

        Raises:
            UnusableRowError: if the problem has another prompt; a dataset has one per problem.
        """
        problem_id = problem.id
        key = text_key(prompt)
        if self._prompt_keys.setdefault(problem_id, key) != key:
            raise UnusableRowError("the problem has another prompt in an earlier row")
        if problem_id not in self.problems:
            self.problems[problem_id] = problem
            self._prompt_offsets[problem_id] = self.write({"prompt": prompt})
            self._solution_offsets[problem_id] = array("Q")
        self._solution_offsets[problem_id].append(self.write(dump_completion(solution)))

    def prompt(self, problem_id: str) -> str:
        """Return the prompt of a problem."""
        return str(self.read(self._prompt_offsets[problem_id])["prompt"])

    def solutions(self, problem_id: str) -> list[Completion]:
        """Return the solutions of a problem, in the order of the input."""
        offsets = self._solution_offsets[problem_id]
        return load_completions([self.read(offset) for offset in offsets])

    def write(self, record: Mapping[str, Any]) -> int:
        """Append a record to the file; return its offset."""
        offset = self._file.seek(0, 2)
        self._file.write(encode_line(record))
        return offset

    def read(self, offset: int) -> Any:
        """Return the record at an offset."""
        self._file.seek(offset)
        return orjson.loads(self._file.readline())


def seal_import(
    spool: SolutionSpool,
    spec: BuildSpec,
    sources: Sequence[SourceRef],
    quarantined: Sequence[QuarantinedRow],
    out: Path,
    *,
    resume: bool,
    progress: Progress,
    workers: int | None = None,
    label_counts: ImportCounts | None = None,
    stages: Sequence[Stage] = (),
) -> Manifest:
    """Run ``stages`` on all solutions of a spool, and seal the dataset ``out``.

    Args:
        spool: The solutions.
        spec: The options that decide the content of the dataset.
        sources: The sources of the problems.
        quarantined: The rows that could not be used.
        out: Directory of the dataset.
        resume: Whether ``out`` may contain the unfinished import.
        progress: Receives the progress.
        workers: Processes that grade; None for one per available core.
        label_counts: Counts of the imported step labels; None without step labels.
        stages: The stages that follow, as in a build.

    Raises:
        RunMismatchError: if ``out`` contains another run.
        StoreError: if the disk fails.
    """
    source = ProblemSet(list(spool.problems.values()), [*sources], [*quarantined])
    config = spec.config(source)

    def seal_solutions(folder: Path, *, resume: bool) -> Manifest:
        """Seal the solutions without further stages."""
        with spec.open_run(folder, config, resume=resume) as run:
            if not (folder / MANIFEST_FILE).exists():
                _append_missing(run, spool)
                seal_samples(
                    run,
                    spec,
                    source,
                    model_name=spec.sample.model.name,
                    progress=progress,
                    workers=workers,
                    sample_counts=spool.counts,
                    label_counts=label_counts,
                )
            return read_manifest(folder)

    if not stages:
        return seal_solutions(out, resume=resume)
    config_of_all = {"stages": config["stages"] | stage_options(stages)}
    with lock_run_directory(out, config_of_all, resume=resume):
        # The lock has checked the config, so everything in the directory belongs to this run.
        seal_solutions(out / BUILD_FOLDER, resume=True)
        return run_stages(out / BUILD_FOLDER, out, stages, progress)


def _append_missing(run: RunDir, spool: SolutionSpool) -> None:
    """Append the solutions of the problems that a run does not have yet."""
    missing_ids = [key for key in spool.problems if key not in run.line_spans]
    for start in range(0, len(missing_ids), _PROBLEMS_PER_WRITE):
        problem_ids = missing_ids[start : start + _PROBLEMS_PER_WRITE]
        run.append(
            [CompletionRecord(key, spool.prompt(key), spool.solutions(key)) for key in problem_ids]
        )
