"""Read the datasets that are measured together, as one pool.

A user names runs and datasets. Each of them has main samples: of a run the part ``samples``, which
its decoders share; of a dataset all solutions. Paths whose main samples have equal ids are one
pool: the same solutions, with step rewards of several reward models. The first run among them also
provides the other parts of the pool, such as the greedy solutions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import multimode

from fsdpo_bench.decoders.decoders import SAMPLES_PART, DecoderSetup, find_decoder
from fsdpo_bench.metrics.sample_arrays import (
    BenchmarkProblem,
    Samples,
    SolutionTable,
    check_equal_verdicts,
    make_samples,
    read_benchmark_problems,
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
from fsdpo_data.problems.benchmark_rows import benchmark_rows
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
    """The same solutions in one or several runs and datasets, which a report measures as one.

    Its parts are the datasets of the run, such as the samples and the greedy solutions. A dataset
    outside a run is a pool with one part.
    """

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
    sources_by_ids: dict[str, list[_Source]] = {}
    for path in dict.fromkeys(paths):
        source = _read_source(path)
        sources_by_ids.setdefault(_ids_digest(source.main), []).append(source)
    pools = [_load_pool(sources, questions) for sources in sources_by_ids.values()]
    if len({pool.name for pool in pools}) == len(pools):
        return pools
    return [
        replace(pool, name=str(sources[0].path))
        for pool, sources in zip(pools, sources_by_ids.values(), strict=True)
    ]


def main_part(parts: Iterable[str]) -> str:
    """Return the name of the part with the samples that decoders share, or of the first part."""
    names = list(parts)
    return SAMPLES_PART if SAMPLES_PART in names else names[0]


@dataclass(frozen=True, slots=True)
class _Source:
    """A path that the user names, with its main samples."""

    path: Path  #: Folder of a run or of a dataset.
    run: RunRecord | None  #: The run; None for a dataset.
    main: SolutionTable  #: The samples of the run that decoders share, or the dataset.


def _read_source(path: Path) -> _Source:
    """Read a run or a dataset."""
    if not is_run(path):
        return _Source(path, None, read_solution_table(path))
    run = read_run_record(path)
    return _Source(path, run, read_solution_table(path / main_part(run.parts)))


def _ids_digest(table: SolutionTable) -> str:
    """Return a digest of the ids of all solutions."""
    hasher = hashlib.sha256()
    for solution_id in table.frame["solution_id"]:
        hasher.update(solution_id.encode() + b"\n")
    return hasher.hexdigest()


def _load_pool(sources: Sequence[_Source], questions: frozenset[str] | None) -> Pool:
    """Read the pool of some paths with the same samples."""
    first = next((source for source in sources if source.run is not None), sources[0])
    for source in sources:
        check_equal_verdicts(first.main, source.main)
    parts = _read_parts(first)
    scored = _scored_tables([source.main for source in sources])
    benchmarks = _load_benchmarks(parts, scored, first.run, questions)
    if not benchmarks:
        raise InputError(
            f"{first.path} has no solution to measure. Give another dataset, or other problems.",
            field="data",
        )
    return Pool(
        name=first.path.name or str(first.path),
        run=first.run,
        parts={name: table.root for name, table in parts.items()},
        scored={model: table.root for model, table in scored.items()},
        benchmarks=benchmarks,
        other_runs=[
            source.path for source in sources if source.run is not None and source is not first
        ],
    )


def _read_parts(source: _Source) -> dict[str, SolutionTable]:
    """Read all parts of a run; a dataset is one part."""
    if source.run is None:
        return {part_name(source.main.manifest): source.main}
    main = main_part(source.run.parts)
    return {
        name: source.main if name == main else read_solution_table(source.path / name)
        for name in source.run.parts
    }


def part_name(manifest: Manifest) -> str:
    """Return the name that a dataset has as a part of a run, from its sampling settings."""
    settings = manifest.get(SAMPLE_STAGE, SampleRecord).options
    search = settings.search
    if search is not None:
        return DecoderSetup(find_decoder("beam"), b1=search.beam.b1, b2=search.beam.b2).part
    if settings.sampling.n == 1 and settings.sampling_values["temperature"] in (0, UNKNOWN):
        return DecoderSetup(find_decoder("greedy")).part
    return SAMPLES_PART


def _scored_tables(tables: Sequence[SolutionTable]) -> dict[str, SolutionTable]:
    """Return the tables with step rewards, by the name of the reward model.

    If two reward models have the same name, the names are the paths of the datasets.
    """
    scored = [table for table in tables if table.frame["step_rewards"].count()]
    names = [_reward_model_name(table) for table in scored]
    if len(set(names)) < len(names):
        names = [str(table.root) for table in scored]
    return dict(zip(names, scored, strict=True))


def _reward_model_name(table: SolutionTable) -> str:
    """Return the name of the reward model of a dataset, or of its folder."""
    settings = table.manifest.score_settings
    if settings is None or settings.prm.name == UNKNOWN:
        return table.root.name
    return settings.prm.name


def _load_benchmarks(
    part_tables: Mapping[str, SolutionTable],
    scored_tables: Mapping[str, SolutionTable],
    run: RunRecord | None,
    questions: frozenset[str] | None,
) -> dict[str, Benchmark]:
    """Return the benchmarks with a problem to measure, by name; those of the run come first."""
    all_problems = _read_all_problems(part_tables)
    run_entries = run.benchmarks if run else {}
    benchmarks = {}
    for name in dict.fromkeys([*run_entries, *all_problems]):
        problems = [
            benchmark_problem
            for benchmark_problem in all_problems.get(name, ())
            if questions is None or question_key(benchmark_problem.problem.question) in questions
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
) -> dict[str, list[BenchmarkProblem]]:
    """Return the problems of all parts by benchmark, each row once, sorted by row."""
    all_problems: dict[str, list[BenchmarkProblem]] = {}
    for table in part_tables.values():
        for name, problems in read_benchmark_problems(table).items():
            known_problems = all_problems.setdefault(name, [])
            known_rows = {
                benchmark_problem.benchmark_row.row for benchmark_problem in known_problems
            }
            known_problems += [
                benchmark_problem
                for benchmark_problem in problems
                if benchmark_problem.benchmark_row.row not in known_rows
            ]
    return {
        name: sorted(problems, key=lambda benchmark_problem: benchmark_problem.benchmark_row.row)
        for name, problems in all_problems.items()
    }


def _solved_problems(
    problems: Sequence[BenchmarkProblem], part_tables: Mapping[str, SolutionTable]
) -> list[BenchmarkProblem]:
    """Return the problems with a solution in every part."""
    return [
        benchmark_problem
        for benchmark_problem in problems
        if all(
            benchmark_problem.problem_id in table.rows_by_problem for table in part_tables.values()
        )
    ]


def _complete_problems(
    solved: Sequence[BenchmarkProblem], part_tables: Mapping[str, SolutionTable]
) -> list[BenchmarkProblem]:
    """Return the problems that have in every part the most frequent number of samples, or more.

    Of equally frequent numbers, the smallest one counts, which leaves out the fewest problems.
    """
    if not solved:
        return []
    complete = list(solved)
    for table in part_tables.values():
        rows_by_problem = table.rows_by_problem
        counts = [
            len(rows_by_problem[benchmark_problem.problem_id]) for benchmark_problem in solved
        ]
        n_samples = min(multimode(counts))
        complete = [
            benchmark_problem
            for benchmark_problem in complete
            if len(rows_by_problem[benchmark_problem.problem_id]) >= n_samples
        ]
    return complete


def _find_task(
    name: str, run: RunRecord | None, benchmark_problem: BenchmarkProblem
) -> TaskDescription | None:
    """Return the benchmark of a problem, in the run or in the table; None if it is in neither."""
    if run is not None:
        entry = run.benchmarks.get(name)
        return entry.task if entry else None
    task = all_tasks().get(name)
    if task is None or benchmark_rows(benchmark_problem.problem.metadata):
        return task
    # Problems of another split, with the name of their source.
    return TaskDescription(name=name, title=task.title)


def _part_samples(
    problems: Sequence[BenchmarkProblem],
    part_tables: Mapping[str, SolutionTable],
    scored_tables: Mapping[str, SolutionTable],
) -> dict[str, Samples]:
    """Return the solutions by part; those of the main part have the step rewards."""
    main = main_part(part_tables)
    return {
        part: make_samples(table, problems, scored_tables if part == main else {})
        for part, table in part_tables.items()
    }
