"""Step labels by a binary search for the first error (OmegaPRM, Luo et al. 2024).

A prefix of a solution is right if one of its N continuations reaches the gold answer. The search
assumes that a solution never recovers: after the first wrong prefix, all longer prefixes are wrong.
A correct solution is itself a correct continuation of each of its prefixes, so all of its steps are
right, and nothing is sampled. A wrong solution of K steps needs at most ⌈log₂ K⌉ prefixes, because
the finished solution is the wrong prefix of K steps.

The search has rounds. In each round, every unfinished solution requests one prefix, and solutions
with a common prefix share its continuations. All requests follow from the continuations on disk, so
an interrupted run continues in the round in which it stopped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fsdpo_data.core.entities import GRADED_OUTCOMES, MODEL_FAILURES, Outcome
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.failures import FailurePolicy
from fsdpo_data.core.job_shard import UNSHARDED, JobShard
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.parquet_files import collect_rows, read_table_batches
from fsdpo_data.core.sampling import Prompt
from fsdpo_data.dataset.manifest import AnyRecord, Manifest
from fsdpo_data.dataset.run_directory import RunDir
from fsdpo_data.dataset.schema import replace_column, scan_rows
from fsdpo_data.dataset.stage import DatasetDraft, Stage
from fsdpo_data.engines.samplers import open_engine
from fsdpo_data.stages.continuations import (
    PREFIX_BATCH_ROWS,
    ROLLOUTS_FOLDER,
    ContinuationGrader,
    ContinuationSampler,
    Prefix,
    PrefixKey,
    SolutionPrefix,
    check_continuations,
    count_correct,
    list_step_prefixes,
    prefix_id,
)
from fsdpo_data.stages.label_records import LABEL_STAGE, LabelSettings, RolloutCounts

StepCount: TypeAlias = Mapping[str, int]  #: Continuations of a step (``n``), and ``n_correct``.


class SearchState(NamedTuple):
    """The state of a binary search for the first wrong step of a wrong solution."""

    #: Number of steps of the prefix to continue next; None if the search has ended.
    next_length: int | None
    first_error: int | None  #: Index of the first wrong step; None while the search goes on.


def find_first_error(n_steps: int, is_right: Callable[[int], bool | None]) -> SearchState:
    """Search the first wrong step of a wrong solution, as far as the answers are known.

    Args:
        n_steps: Number of steps K, at least 1. The search asks for at most ⌈log₂ K⌉ prefixes.
        is_right: Returns whether the prefix of so many steps is right; None if it is unknown.
    """
    right_length = 0
    wrong_length = n_steps
    while wrong_length - right_length > 1:
        middle_length = (right_length + wrong_length) // 2
        answer = is_right(middle_length)
        if answer is None:
            return SearchState(next_length=middle_length, first_error=None)
        if answer:
            right_length = middle_length
        else:
            wrong_length = middle_length
    return SearchState(next_length=None, first_error=wrong_length - 1)


class _StepLabels(NamedTuple):
    """The new columns of a solution; None if the search could not label it."""

    labels: list[bool] | None = None  #: True before the first wrong step, False from there on.
    #: Counts of the prefixes that were continued and of the finished solution; None elsewhere.
    rollouts: list[StepCount | None] | None = None


class _Walk(NamedTuple):
    """The search in one solution, with the answers that are known."""

    state: SearchState  #: Where the search is.
    counts: dict[int, StepCount]  #: Counts of the prefixes on its way, by number of steps.


class _Request(NamedTuple):
    """The prefix that a solution requests."""

    prefix: Prefix  #: The prefix, with its text.
    solution_prefix: SolutionPrefix  #: The same prefix, with its problem.


@dataclass(frozen=True)
class _Search:
    """The answers of a search: the counts of the prefixes that were continued."""

    run: RunDir  #: The continuations.
    counts: dict[PrefixKey, StepCount] = field(default_factory=dict)  #: Counts of the prefixes.

    def list_requests(
        self, files: Sequence[Path], prompts: Container[str] | None
    ) -> Iterator[_Request]:
        """Yield the next prefix of each unfinished solution; common prefixes are repeated.

        Args:
            files: Files of solutions.
            prompts: Prompts of the solutions to search; None for all.
        """
        for row in _wrong_solutions(files):
            prompt = row["prompt"]
            if prompts is not None and prompt not in prompts:
                continue
            texts = list(accumulate(row["completions"], initial=prompt))
            length = self._walk(row["problem_id"], texts).state.next_length
            if length is None:
                continue
            first_steps = texts[length].removeprefix(prompt)
            prefix = Prefix(prefix_id(texts[length]), Prompt(prompt, solution_text=first_steps))
            solution_prefix = SolutionPrefix(prefix.id, row["problem_id"], prompt)
            # The outcomes of its continuations may all be unknown. The search then ends there.
            if solution_prefix.key not in self.counts:
                yield _Request(prefix, solution_prefix)

    def grade(self, grade_continuations: ContinuationGrader, requests: Iterable[_Request]) -> None:
        """Grade the continuations of the requested prefixes, and add their counts."""
        # The requests depend on the counts, so new counts wait until all requests are read.
        new_counts: dict[PrefixKey, StepCount] = {}
        solution_prefixes = (request.solution_prefix for request in requests)
        while batch := list(islice(solution_prefixes, PREFIX_BATCH_ROWS)):
            prefixes = [
                prefix
                for prefix in {prefix.key: prefix for prefix in batch}.values()
                if prefix.key not in new_counts
            ]
            for prefix, continuations in zip(prefixes, grade_continuations(prefixes), strict=True):
                new_counts[prefix.key] = count_correct(continuations)
        self.counts.update(new_counts)

    def add_labels(self, table: pa.Table) -> pa.Table:
        """Return a table of solutions with the labels and the counts of the search."""
        columns = table.select(["problem_id", "prompt", "completions", "outcome"])
        step_labels = [self._label_steps(**row) for row in columns.to_pylist()]
        table = replace_column(table, "labels", [item.labels for item in step_labels])
        return replace_column(table, "rollouts", [item.rollouts for item in step_labels])

    def _walk(self, problem_id: str, texts: Sequence[str]) -> _Walk:
        """Search a wrong solution, whose prefix of i steps is ``texts[i]``."""
        counts_by_length: dict[int, StepCount] = {}

        def is_right(length: int) -> bool | None:
            counts = self.counts.get((problem_id, prefix_id(texts[length])))
            if not counts or not counts["n"]:
                return None
            counts_by_length[length] = counts
            return counts["n_correct"] > 0

        return _Walk(find_first_error(len(texts) - 1, is_right), counts_by_length)

    def _label_steps(
        self, problem_id: str, prompt: str, completions: Sequence[str], outcome: Outcome
    ) -> _StepLabels:
        """Return the labels and the counts of a solution."""
        n_steps = len(completions)
        if outcome not in GRADED_OUTCOMES:
            return _StepLabels()
        if not n_steps:
            return _StepLabels(labels=[], rollouts=[])
        rollouts: list[StepCount | None] = [None] * n_steps
        rollouts[-1] = {"n": 1, "n_correct": int(outcome == "correct")}
        if outcome == "correct":
            return _StepLabels(labels=[True] * n_steps, rollouts=rollouts)
        walk = self._walk(problem_id, list(accumulate(completions, initial=prompt)))
        first_error = walk.state.first_error
        if first_error is None:
            return _StepLabels()
        for length, counts in walk.counts.items():
            rollouts[length - 1] = counts
        return _StepLabels([step < first_error for step in range(n_steps)], rollouts)


@dataclass(frozen=True)
class FirstErrorStage(Stage):
    """Writes ``labels`` by the first wrong step, and ``rollouts`` of the steps that were probed."""

    name = LABEL_STAGE
    writes = ("rollouts", "labels")

    continuation_sampler: ContinuationSampler  #: Samples the N continuations of a prefix.
    workers: int | None = None  #: Processes that grade; None for one per available core.

    @property
    def failure_policy(self) -> FailurePolicy:
        """When the stage stops because of prefixes that the engine refuses."""
        return self.continuation_sampler.failure_policy

    def options(self) -> LabelSettings:
        """Return the model that continues, its sampling parameters and the name of the search."""
        return LabelSettings(continuations=self.continuation_sampler.settings, search="first-error")

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset without a wrong solution of two steps, or that cannot be continued."""
        check_continuations(source, manifest)
        solutions = scan_rows("solutions", manifest.config_paths(source, "solutions"))
        is_wrong = pl.col("outcome").is_in(MODEL_FAILURES)
        has_prefix = pl.col("completions").list.len() > 1
        if not collect_rows(solutions.filter(is_wrong & has_prefix).select(pl.len())).item():
            raise InputError(
                f"{source} has no incorrect solution of two steps or more, so there is no first "
                "error to search. The steps of correct solutions are right without a search."
            )

    def run_shard(self, draft: DatasetDraft, shard: JobShard) -> None:
        """Search the solutions of one shard of the prompts, so shards share no prefix."""
        with self._search(draft, shard):
            pass  # entering the context samples

    def run(self, draft: DatasetDraft) -> AnyRecord:
        """Search all wrong solutions, then write the labels, the counts and their statistics."""
        with self._search(draft) as search:
            draft.rewrite_config("solutions", phase="count", transform=search.add_labels)
            n_prefixes = len(search.run.line_spans)
            cost = self.continuation_sampler.measure_cost(search.run)
            n_failed = len(self.continuation_sampler.open_failures(search.run))
        files = draft.current_files("solutions")
        all_prefixes = {prefix.id for prefix in list_step_prefixes(files)}
        n_saved_prefixes = len(all_prefixes) - n_prefixes - n_failed
        searched, undecided = _count_searched(files)
        counts = RolloutCounts(
            prefixes=n_prefixes,
            searched_solutions=searched,
            undecided_solutions=undecided,
            saved_continuations=self.continuation_sampler.sampling.n * n_saved_prefixes,
            failed=n_failed,
        )
        return self.make_record(counts, cost)

    @contextlib.contextmanager
    def _search(self, draft: DatasetDraft, shard: JobShard = UNSHARDED) -> Iterator[_Search]:
        """Sample the missing continuations for the solutions of a shard, round by round."""
        files = draft.parent_files("solutions")
        prompts = None
        if shard != UNSHARDED:
            unique_prompts = dict.fromkeys(row["prompt"] for row in _wrong_solutions(files))
            prompts = frozenset(shard.select(list(unique_prompts)))
        with self.continuation_sampler.open_run(draft.root / ROLLOUTS_FOLDER) as run:
            search = _Search(run)
            self._sample_rounds(search, draft, files, prompts)
            yield search

    def _sample_rounds(
        self,
        search: _Search,
        draft: DatasetDraft,
        files: Sequence[Path],
        prompts: Container[str] | None,
    ) -> None:
        """Sample and grade the prefixes that the search requests, until it requests none.

        ``files`` and ``prompts`` select the solutions, as in :meth:`_Search.list_requests`.
        """

        def list_prefixes() -> Iterator[Prefix]:
            """Yield the prefixes of this round."""
            return (request.prefix for request in search.list_requests(files, prompts))

        run = search.run
        # All rounds share one sampler, because loading a model is slow.
        with open_engine(self.continuation_sampler.make_sampler) as load_sampler:
            sampler = replace(self.continuation_sampler, make_sampler=load_sampler)
            failures = sampler.open_failures(run)
            while n_prefixes := len({prefix.id for prefix in list_prefixes()}):
                sampler.sample_into(
                    run,
                    list_prefixes,
                    draft.progress,
                    failures,
                    on_new_records=draft.discard_solutions,
                )
                with sampler.open_grader(draft, run, self.workers, n_prefixes) as grade:
                    search.grade(grade, search.list_requests(files, prompts))


def _wrong_solutions(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield the wrong solutions with steps, with the columns that the search reads."""
    columns = ["problem_id", "prompt", "completions", "outcome"]
    for file in files:
        for batch in read_table_batches(file, batch_rows=PREFIX_BATCH_ROWS, columns=columns):
            for row in batch.to_pylist():
                if row["outcome"] in MODEL_FAILURES and row["completions"]:
                    yield row


def _count_searched(files: list[Path]) -> tuple[int, int]:
    """Return the number of wrong solutions with steps, and of those without labels."""
    is_wrong = pl.col("outcome").is_in(MODEL_FAILURES) & (pl.col("completions").list.len() > 0)
    counts = scan_rows("solutions", files).select(
        searched=is_wrong.sum(), undecided=(is_wrong & pl.col("labels").is_null()).sum()
    )
    searched, undecided = collect_rows(counts).row(0)
    return searched, undecided
