"""Reports: datasets are read, measured, and described in files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten

from fsdpo_bench.metrics.likelihood import with_likelihoods
from fsdpo_bench.metrics.measure import Decoded, MeasureSpec, decode_pool, measure
from fsdpo_bench.metrics.pools import Pool, load_pools
from fsdpo_bench.metrics.result_records import Results
from fsdpo_bench.report.render import write_report
from fsdpo_bench.run_folder import read_run_record
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.progress import NO_PROGRESS, Progress
from fsdpo_data.core.row_files import summarize_list
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.problems.load import MAX_SHOWN_CHARS, load_problems
from fsdpo_data.problems.question_key import question_key


@dataclass(frozen=True, slots=True)
class Report:
    """The datasets of a report and their results."""

    pool: Pool  #: The datasets.
    results: Results  #: Their results.
    decoded: Decoded  #: The choices of decoders.
    folder: Path | None  #: Folder with the written files; None if nothing was written.


def make_reports(
    paths: Sequence[Path],
    spec: MeasureSpec,
    *,
    problems: Path | None = None,
    policies: Sequence[str] = (),
    out: Path | None = None,
    writes_into_run: bool = True,
    warn: Callable[[str], None],
    progress: Progress = NO_PROGRESS,
) -> list[Report]:
    """Measure runs and datasets, and write the reports.

    The report of a single run is in its folder.

    Args:
        paths: Folders of runs and of sealed datasets. Datasets with equal solutions are one pool.
        spec: What is measured.
        problems: File of problems; only these problems count, by their questions.
        policies: The model of each pool, for the choice by likelihood; empty to leave it out.
        out: Folder of the files; None for the folder of a single run.
        writes_into_run: Whether the folder of a single run gets files; not so for a copy of a run.
        warn: Called with a message if a plot fails, questions match no problem, or decoders of a
            run are left out.
        progress: Receives the progress of the measurement.

    Raises:
        InputError: if the datasets cannot be measured.
        SchemaError: if a dataset is not sealed, or its files were changed.
    """
    if not paths:
        raise InputError("nothing to measure: give at least one run or dataset.", field="data")
    progress.phase("read", 1)
    questions = None if problems is None else _read_questions(problems, warn)
    pools = load_pools(paths, None if questions is None else frozenset(questions))
    _check_pool_count(len(pools), policies, out)
    progress.phase("measure", len(pools))
    reports = []
    for index, pool in enumerate(pools):
        if questions and (warning := _describe_unmatched(questions, pool)):
            warn(warning)
        if policies:
            pool = with_likelihoods(pool, policies[index])
        decoded = decode_pool(pool, spec)
        for warning in _describe_left_out(pool, decoded):
            warn(warning)
        results = measure(pool, spec, decoded)
        for warning in _describe_missing_drops(pool, results):
            warn(warning)
        is_only_run = len(paths) == 1 and pool.run is not None and problems is None
        folder = out or (paths[0] if is_only_run and writes_into_run else None)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            write_report(folder, pool, results, decoded, warn=warn)
        reports.append(Report(pool, results, decoded, folder))
        progress.advance(1)
    return reports


def _check_pool_count(n_pools: int, policies: Sequence[str], out: Path | None) -> None:
    """Check that each pool has its policy, and that a folder gets one report."""
    if policies and len(policies) != n_pools:
        raise InputError(
            f"{len(policies)} models for {n_pools} sets of samples. Give the model of each.",
            field="likelihood",
        )
    if out is not None and n_pools > 1:
        raise InputError(
            f"a folder has one report, but these are {n_pools} sets of samples. Report on each.",
            field="out",
            value=out,
        )


def _read_questions(file: Path, warn: Callable[[str], None]) -> dict[str, str]:
    """Return the questions of a file of problems, by their key."""
    problem_set = load_problems([str(file)])
    for warning in problem_set.warnings:
        warn(warning)
    return {question_key(problem.question): problem.question for problem in problem_set.problems}


def _describe_unmatched(questions: Mapping[str, str], pool: Pool) -> str:
    """Name the questions that no measured problem of a pool has; empty without any.

    Args:
        questions: The questions by their key.
        pool: The datasets.
    """
    measured_keys = {
        question_key(benchmark_problem.problem.question)
        for benchmark in pool.benchmarks.values()
        for benchmark_problem in benchmark.main.problems
    }
    unmatched = [question for key, question in questions.items() if key not in measured_keys]
    if not unmatched:
        return ""
    names = summarize_list([repr(shorten(question, MAX_SHOWN_CHARS)) for question in unmatched])
    return (
        f"{pool.name}: {len(unmatched):,} of the {len(questions):,} questions to measure match no "
        f"measured problem: {names}"
    )


def _describe_left_out(pool: Pool, decoded: Decoded) -> list[str]:
    """Name the decoders of further runs of a pool that are not measured.

    A pool has the parts of its first run and, without sizes and aggregates, its decoders.
    """
    measured_names = {
        replace(choices.setup, model="").name
        for by_decoder in decoded.values()
        for choices in by_decoder.values()
    }
    warnings = []
    for run in pool.other_runs:
        left_out = [
            name
            for name in read_run_record(run).decoders
            if name not in measured_names or _has_other_solutions(pool, run, name)
        ]
        if left_out:
            warnings.append(
                f"{run} has the samples of {pool.name}, so they are measured together. Its results "
                f"of {', '.join(left_out)} are left out; report on it alone to see them"
            )
    return warnings


def _describe_missing_drops(pool: Pool, results: Results) -> list[str]:
    """Name the benchmarks without an accuracy drop, although their base benchmark is measured."""
    warnings = []
    for name, benchmark in pool.benchmarks.items():
        base_task = benchmark.task.base_task if benchmark.task else ""
        if base_task in pool.benchmarks and not results.tasks[name].accuracy_drops:
            warnings.append(
                f"{name} has no accuracy drop from {base_task}: expected problems in a group, "
                f"whose `cluster` is the question of a problem of {base_task} that counts"
            )
    return warnings


def _has_other_solutions(pool: Pool, run: Path, name: str) -> bool:
    """Return whether a decoder has solutions of its own in a run, which differ from the pool's."""
    if name not in pool.parts or name == pool.main_part:  # it chooses among equal solutions
        return False
    return read_manifest(run / name).digest != read_manifest(pool.parts[name]).digest
