"""Read the datasets that are measured together: the parts of a run, or one set of samples.

Datasets with equal solution ids are one pool, whose step rewards come from several reward models.
Other datasets are pools of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsdpo_bench.decoders.decoders import DECODERS, SAMPLES_PART, DecoderSetup
from fsdpo_bench.metrics.result_records import MeasuredDataset, MeasurementSettings
from fsdpo_bench.metrics.sample_arrays import (
    PlacedProblem,
    Samples,
    SolutionTable,
    check_equal_verdicts,
    make_samples,
    most_frequent_count,
    read_places,
    read_solutions,
)
from fsdpo_bench.run_folder import RunRecord, is_run, read_run_record
from fsdpo_bench.tasks.description import TaskDescription
from fsdpo_bench.tasks.table import all_tasks
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.sampling import UNKNOWN
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.stage_records import (
    GRADE_STAGE,
    SAMPLE_STAGE,
    AnswerJudgeStats,
    GradeRecord,
    SampleRecord,
)
from fsdpo_data.engines.scorers.prm_formats import ScoreSettings
from fsdpo_data.exchange.response_formats import question_key
from fsdpo_data.problems.benchmark_places import benchmark_places
from fsdpo_data.stages.score import RewardRecord


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

    @property
    def main_part(self) -> str:
        """Name of the part with samples, or of the first part."""
        return main_part(self.parts)

    @property
    def reward_models(self) -> list[str]:
        """Names of the reward models."""
        return list(self.scored)


def load_pools(paths: Sequence[Path], questions: frozenset[str] | None = None) -> list[Pool]:
    """Read runs and datasets, in the order of their first path.

    A benchmark has the problems with a solution in every part. It leaves out problems with fewer
    samples than most problems have.

    Args:
        paths: Folders of runs and of sealed datasets.
        questions: The questions that count, by
            :func:`~fsdpo_data.exchange.response_formats.question_key`; None for all.

    Raises:
        InputError: if a pool has no problem to measure, or two datasets have different verdicts on
            the same solutions.
        SchemaError: if a dataset is not sealed, or its files were changed.
    """
    groups: dict[str, list[Path]] = {}
    tables: dict[Path, SolutionTable] = {}
    for path in dict.fromkeys(paths):
        root = _main_root(path)
        tables[root] = read_solutions(root)
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
            tables[root] = read_solutions(root)
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
    return Pool(first_path.name or str(first_path), run, parts, scored, benchmarks)


def part_name(manifest: Manifest) -> str:
    """Return the name that a dataset has as a part of a run, from its sampling settings."""
    settings = manifest.get(SAMPLE_STAGE, SampleRecord).options
    search = settings.search
    if search is not None:
        decoder = next(decoder for decoder in DECODERS.values() if decoder.origin == "beam")
        return DecoderSetup(decoder, b1=search.beam.b1, b2=search.beam.b2).part
    if settings.sampling.n == 1 and settings.sampling_values["temperature"] in (0, UNKNOWN):
        return "greedy"
    return SAMPLES_PART


def _scored_datasets(tables: Sequence[SolutionTable]) -> dict[str, Path]:
    """Return the datasets with step rewards, by the name of the reward model.

    If two reward models have the same name, the names are the paths of the datasets.
    """
    names: list[str] = []
    scored_roots: list[Path] = []
    for table in tables:
        rewards = table.manifest.find_writer("step_rewards", RewardRecord)
        if rewards is not None and rewards.counts.scored:
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
    """Return the benchmarks with a problem to measure, by name."""
    main_root = parts[main_part(parts)]
    problems_by_benchmark: dict[str, list[PlacedProblem]] = {}
    for root in parts.values():
        for name, problems in read_places(tables[root]).items():
            known_places = {
                placed.benchmark_place.row for placed in problems_by_benchmark.get(name, ())
            }
            new_problems = (
                placed for placed in problems if placed.benchmark_place.row not in known_places
            )
            problems_by_benchmark.setdefault(name, []).extend(new_problems)
    names = [*(run.benchmarks if run else ()), *problems_by_benchmark]
    scored_tables = {model: tables[root] for model, root in scored.items()}
    benchmarks = {}
    for name in dict.fromkeys(names):
        problems = sorted(
            problems_by_benchmark.get(name, ()), key=lambda placed: placed.benchmark_place.row
        )
        if questions is not None:
            problems = [
                placed for placed in problems if question_key(placed.problem.question) in questions
            ]
        measurable = [
            placed
            for placed in problems
            if all(placed.problem_id in tables[root].row_by_problem for root in parts.values())
        ]
        if not measurable:
            continue
        entry = run.benchmarks.get(name) if run else None
        task = entry.task if entry else None
        if run is None:
            task = _describe_task(name, measurable[0])
        n_problems = len(problems)
        if entry is not None and questions is None:
            n_problems = entry.problems
        complete = measurable
        for root in parts.values():
            counts = tables[root].count_by_problem
            n_samples = most_frequent_count(tables[root], [p.problem_id for p in measurable])
            complete = [placed for placed in complete if counts[placed.problem_id] >= n_samples]
        benchmarks[name] = Benchmark(
            name=name,
            task=task,
            parts={
                part: make_samples(
                    tables[root], complete, scored_tables if root == main_root else {}
                )
                for part, root in parts.items()
            },
            failed=n_problems - len(measurable),
            left_out=len(measurable) - len(complete),
        )
    return benchmarks


def _describe_task(name: str, placed: PlacedProblem) -> TaskDescription | None:
    """Return the benchmark with a name, for a dataset that no run has made."""
    task = all_tasks().get(name)
    if task is None or benchmark_places(placed.problem.metadata):
        return task
    # Problems of another split, with the name of their source.
    return TaskDescription(name=name, title=task.title)


def measurement_settings(pool: Pool, decoders: Sequence[str]) -> MeasurementSettings:
    """Return the settings of a pool, from the manifests of its datasets."""
    manifests = {name: read_manifest(root) for name, root in pool.parts.items()}
    main = manifests[pool.main_part]
    scores: dict[str, ScoreSettings] = {}
    for model, root in pool.scored.items():
        manifest = read_manifest(root)
        if root not in pool.parts.values():
            manifests[model] = manifest
        if manifest.score_settings is not None:
            scores[model] = manifest.score_settings
    return MeasurementSettings(
        sample=main.get(SAMPLE_STAGE, SampleRecord).options,
        grade=main.get(GRADE_STAGE, GradeRecord).options,
        reward_models=scores,
        decoders=list(decoders),
        benchmarks=pool.run.benchmarks if pool.run else {},
        datasets={
            name: MeasuredDataset(
                digest=manifest.digest,
                sample=manifest.get(SAMPLE_STAGE, SampleRecord).options,
                cost=manifest.cost,
            )
            for name, manifest in manifests.items()
        },
    )


def judge_stats(pool: Pool) -> AnswerJudgeStats | None:
    """Return the decisions of the judge over all parts; None without a judge."""
    records = [read_manifest(root).get(GRADE_STAGE, GradeRecord) for root in pool.parts.values()]
    parts = [stats for record in records if (stats := record.counts.answer_judge)]
    if not parts:
        return None
    tokens = [stats.tokens for stats in parts if stats.tokens is not None]
    return AnswerJudgeStats(
        answers=sum(stats.answers for stats in parts),
        correct=sum(stats.correct for stats in parts),
        incorrect=sum(stats.incorrect for stats in parts),
        undecided=sum(stats.undecided for stats in parts),
        unreadable=sum(stats.unreadable for stats in parts),
        replies=sum(stats.replies for stats in parts),
        tokens=sum(tokens) if len(tokens) == len(parts) else None,
        seconds=round(sum(stats.seconds for stats in parts), 3),
    )
