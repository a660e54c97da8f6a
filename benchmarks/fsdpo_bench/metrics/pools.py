"""Read the datasets that are measured together: the parts of a run, or one set of samples.

Datasets with equal solution ids are one pool, whose step rewards come from several reward models.
Other datasets are pools of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import multimode

from fsdpo_bench.decoders.decoders import SAMPLES_PART, DecoderSetup, find_decoder
from fsdpo_bench.metrics.sample_arrays import (
    PlacedProblem,
    Samples,
    SolutionTable,
    check_equal_verdicts,
    make_samples,
    read_places,
    read_solution_table,
)
from fsdpo_bench.run_folder import RunRecord, is_run, read_run_record
from fsdpo_bench.tasks.description import TaskDescription
from fsdpo_bench.tasks.table import all_tasks
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.stage_records import (
    SAMPLE_STAGE,
    SampleRecord,
)
from fsdpo_data.problems.benchmark_places import benchmark_places
from fsdpo_data.problems.question_key import question_key


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The problems of one benchmark with their solutions in each part of a pool."""

    name: str  #: Name of the benchmark; the source of the problems without one.
    #: The benchmark in the run or in the table of tasks; None for problems of no benchmark.
    task: TaskDescription | None
    parts: Mapping[str, Samples]  #: Solutions by part; all parts have the same problems.
    failed: int  #: Problems without a solution in one of the parts.
    left_out: int  #: Problems with fewer samples than most problems.

    @property
    def title(self) -> str:
        """Name in reports."""
        return self.name if self.task is None else self.task.title

    @property
    def main(self) -> Samples:
        """The samples that decoders share; without them, the solutions of the first part."""
        return self.parts[main_part(self.parts)]


@dataclass(frozen=True, slots=True)
class Pool:
    """Datasets that are measured together."""

    #: Name for readers: the folder of the run or of the first dataset, or the path if several
    #: pools have one folder name.
    name: str
    run: RunRecord | None  #: The run; None for other datasets.
    parts: Mapping[str, Path]  #: Folder of each part.
    scored: Mapping[str, Path]  #: Datasets with step rewards of the main part, by reward model.
    benchmarks: Mapping[str, Benchmark]  #: The benchmarks by name.
    #: Folders of further runs with the same samples, of which only the step rewards are read.
    other_runs: Sequence[Path] = ()

    @property
    def main_part(self) -> str:
        """Name of the part with samples, or of the first part."""
        return main_part(self.parts)

    @property
    def reward_models(self) -> list[str]:
        """Names of the reward models."""
        return list(self.scored)

    @property
    def has_likelihoods(self) -> bool:
        """Whether the samples have log-likelihoods."""
        samples = [benchmark.main for benchmark in self.benchmarks.values()]
        return all(entry.log_likelihood_PM is not None for entry in samples)


def load_pools(paths: Sequence[Path], questions: frozenset[str] | None = None) -> list[Pool]:
    """Read runs and datasets, in the order of their first path.

    A benchmark has the problems with a solution in every part. It leaves out problems with fewer
    samples than the most frequent number of samples.

    Args:
        paths: Folders of runs and of sealed datasets.
        questions: The questions that count, by
            :func:`~fsdpo_data.problems.question_key.question_key`; None for all.

    Raises:
        InputError: if a pool has no problem to measure, or two datasets have different verdicts on
            the same solutions.
        SchemaError: if a dataset is not sealed, or its files were changed.
    """
    groups: dict[str, list[Path]] = {}
    tables: dict[Path, SolutionTable] = {}
    for path in dict.fromkeys(paths):
        root = _main_root(path)
        tables[root] = read_solution_table(root)
        groups.setdefault(_ids_digest(tables[root]), []).append(path)
    pools = [_load_pool(group, tables, questions) for group in groups.values()]
    if len({pool.name for pool in pools}) == len(pools):
        return pools
    return [
        replace(pool, name=str(group[0]))
        for pool, group in zip(pools, groups.values(), strict=True)
    ]


def main_part(parts: Iterable[str]) -> str:
    """Return the name of the part with the samples that decoders share, or of the first part."""
    names = list(parts)
    return SAMPLES_PART if SAMPLES_PART in names else names[0]


def _main_root(path: Path) -> Path:
    """Return the dataset with the samples of a run, or the dataset itself."""
    return path / main_part(read_run_record(path).parts) if is_run(path) else path


def _ids_digest(table: SolutionTable) -> str:
    """Return a digest of the ids of all solutions."""
    hasher = hashlib.sha256()
    for solution_id in table.frame["solution_id"]:
        hasher.update(solution_id.encode() + b"\n")
    return hasher.hexdigest()


def _load_pool(
    paths: Sequence[Path], tables: dict[Path, SolutionTable], questions: frozenset[str] | None
) -> Pool:
    """Read one pool, whose main datasets are already in ``tables``."""
    first_path = next((path for path in paths if is_run(path)), paths[0])
    run = read_run_record(first_path) if is_run(first_path) else None
    main_root = _main_root(first_path)
    if run is None:
        parts = {part_name(tables[main_root].manifest): main_root}
    else:
        parts = {name: first_path / name for name in run.parts}
    for root in parts.values():
        if root not in tables:
            tables[root] = read_solution_table(root)
    roots = [_main_root(path) for path in paths]
    for root in roots:
        check_equal_verdicts(tables[main_root], tables[root])
    scored = _scored_datasets([tables[root] for root in roots])
    benchmarks = _load_benchmarks(parts, scored, tables, run, questions)
    if not benchmarks:
        raise InputError(
            f"{first_path} has no solution to measure. Give another dataset, or other problems.",
            field="data",
        )
    return Pool(
        name=first_path.name or str(first_path),
        run=run,
        parts=parts,
        scored=scored,
        benchmarks=benchmarks,
        other_runs=[path for path in paths if is_run(path) and path != first_path],
    )


def part_name(manifest: Manifest) -> str:
    """Return the name that a dataset has as a part of a run, from its sampling settings."""
    settings = manifest.get(SAMPLE_STAGE, SampleRecord).options
    search = settings.search
    if search is not None:
        return DecoderSetup(find_decoder("beam"), b1=search.beam.b1, b2=search.beam.b2).part
    if settings.sampling.n == 1 and settings.sampling_values["temperature"] in (0, UNKNOWN):
        return DecoderSetup(find_decoder("greedy")).part
    return SAMPLES_PART


def _scored_datasets(tables: Sequence[SolutionTable]) -> dict[str, Path]:
    """Return the datasets with step rewards, by the name of the reward model.

    If two reward models have the same name, the names are the paths of the datasets.
    """
    names: list[str] = []
    scored_roots: list[Path] = []
    for table in tables:
        if table.frame["step_rewards"].count():
            score = table.manifest.score_settings
            is_named = score is not None and score.prm.name != UNKNOWN
            names.append(score.prm.name if score is not None and is_named else table.root.name)
            scored_roots.append(table.root)
    if len(set(names)) < len(names):
        names = [str(root) for root in scored_roots]
    return dict(zip(names, scored_roots, strict=True))


def _load_benchmarks(
    parts: Mapping[str, Path],
    scored: Mapping[str, Path],
    tables: Mapping[Path, SolutionTable],
    run: RunRecord | None,
    questions: frozenset[str] | None,
) -> dict[str, Benchmark]:
    """Return the benchmarks with a problem to measure, by name; those of the run come first."""
    part_tables = {part: tables[root] for part, root in parts.items()}
    scored_tables = {model: tables[root] for model, root in scored.items()}
    all_problems = _read_all_problems(part_tables)
    run_entries = run.benchmarks if run else {}
    benchmarks = {}
    for name in dict.fromkeys([*run_entries, *all_problems]):
        problems = [
            placed
            for placed in all_problems.get(name, ())
            if questions is None or question_key(placed.problem.question) in questions
        ]
        n_problems = len(problems)
        if name in run_entries and questions is None:
            n_problems = run_entries[name].problems
        solved = _solved_problems(problems, part_tables)
        complete = _complete_problems(solved, part_tables)
        if complete:
            benchmarks[name] = Benchmark(
                name=name,
                task=_find_task(name, run, complete[0]),
                parts=_part_samples(complete, part_tables, scored_tables),
                failed=n_problems - len(solved),
                left_out=len(solved) - len(complete),
            )
    return benchmarks


def _read_all_problems(
    part_tables: Mapping[str, SolutionTable],
) -> dict[str, list[PlacedProblem]]:
    """Return the problems of all parts by benchmark, each place once, sorted by row."""
    all_problems: dict[str, list[PlacedProblem]] = {}
    for table in part_tables.values():
        for name, problems in read_places(table).items():
            known_problems = all_problems.setdefault(name, [])
            known_rows = {placed.benchmark_place.row for placed in known_problems}
            known_problems += [
                placed for placed in problems if placed.benchmark_place.row not in known_rows
            ]
    return {
        name: sorted(problems, key=lambda placed: placed.benchmark_place.row)
        for name, problems in all_problems.items()
    }


def _solved_problems(
    problems: Sequence[PlacedProblem], part_tables: Mapping[str, SolutionTable]
) -> list[PlacedProblem]:
    """Return the problems with a solution in every part."""
    return [
        placed
        for placed in problems
        if all(placed.problem_id in table.rows_by_problem for table in part_tables.values())
    ]


def _complete_problems(
    solved: Sequence[PlacedProblem], part_tables: Mapping[str, SolutionTable]
) -> list[PlacedProblem]:
    """Return the problems that have in every part the most frequent number of samples, or more.

    Of equally frequent numbers, the smallest one counts, which leaves out the fewest problems.
    """
    if not solved:
        return []
    complete = list(solved)
    for table in part_tables.values():
        rows_by_problem = table.rows_by_problem
        counts = [len(rows_by_problem[placed.problem_id]) for placed in solved]
        n_samples = min(multimode(counts))
        complete = [
            placed for placed in complete if len(rows_by_problem[placed.problem_id]) >= n_samples
        ]
    return complete


def _find_task(name: str, run: RunRecord | None, placed: PlacedProblem) -> TaskDescription | None:
    """Return the benchmark of a problem, in the run or in the table; None if it is in neither."""
    if run is not None:
        entry = run.benchmarks.get(name)
        return entry.task if entry else None
    task = all_tasks().get(name)
    if task is None or benchmark_places(placed.problem.metadata):
        return task
    # Problems of another split, with the name of their source.
    return TaskDescription(name=name, title=task.title)


def _part_samples(
    problems: Sequence[PlacedProblem],
    part_tables: Mapping[str, SolutionTable],
    scored_tables: Mapping[str, SolutionTable],
) -> dict[str, Samples]:
    """Return the solutions by part; those of the main part have the step rewards."""
    main = main_part(part_tables)
    return {
        part: make_samples(table, problems, scored_tables if part == main else {})
        for part, table in part_tables.items()
    }
