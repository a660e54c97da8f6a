"""Grade the solutions of a dataset again, without sampling.

A dataset contains everything that grading needs, because the steps of a solution joined give its
exact text. Step rewards stay unchanged. The outcome of a new verdict becomes the label of every
step. A judge may decide the answers that the grader leaves undecided.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from fsdpo_data.answers import Grader
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.cost import NO_COST, Cost
from fsdpo_data.core.entities import OUTCOMES, Problem, Solution
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.options import Option
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import AnyRecord, Manifest
from fsdpo_data.dataset.problem_rows import read_problems
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.dataset.stage import DatasetDraft, Stage, StageOptions
from fsdpo_data.dataset.stage_records import (
    GRADE_STAGE,
    GradeCounts,
    GradeRecord,
    GradeSettings,
)
from fsdpo_data.dataset.stage_registry import STAGES, Row, StageEntry
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.dataset.summary import format_mean
from fsdpo_data.engines.answer_judge import AnswerJudgeOptions
from fsdpo_data.engines.answer_judge_formats import add_answer_options
from fsdpo_data.engines.options import Workers
from fsdpo_data.grading.pool import open_grader
from fsdpo_data.stages.judge_answers import (
    AnswerJudge,
    JudgeSession,
    open_judge_session,
    resolve_answer_judge,
)
from fsdpo_data.stages.verdicts import grading_request, mark_truncated_thinking, with_verdicts
from fsdpo_data.steps.rewards import OUTCOME_LABELS


@dataclass(frozen=True)
class GradeStage(Stage):
    """Replaces the outcomes and answers of a dataset, and its step labels."""

    name = GRADE_STAGE
    writes = ("outcome",)

    grader: str  #: Full name of the grader, such as ``math@6``.
    workers: int | None = None  #: Processes that grade; None for one per available core.
    #: Whether a solution without text after its thinking may have its answer in the thinking.
    grade_thinking: bool = False
    answer_judge: AnswerJudge | None = None  #: Decides undecided answers; None without a judge.

    def options(self) -> GradeSettings:
        """Return the full name of the grader, whether it reads thinking, and the judge."""
        return GradeSettings(
            grader=self.grader,
            labels=OUTCOME_LABELS,
            grade_thinking=self.grade_thinking,
            answer_judge=self.answer_judge.settings if self.answer_judge else None,
        )

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse imported labels, and Monte-Carlo labels, whose continuations are missing."""
        if manifest.is_written("imported_labels"):
            raise InputError(
                f"{source} has imported step labels. Many of its solutions end at their first "
                "wrong step, so their answers cannot be graded. Grade a dataset of complete "
                "solutions."
            )
        rollouts = scan_rows("solutions", manifest.config_paths(source, "solutions")).select(
            "rollouts"
        )
        if collect_rows(rollouts.select(pl.col("rollouts").is_not_null().any())).item():
            grader = manifest.get(GRADE_STAGE, GradeRecord).options.grader
            raise InputError(
                f"{source} has Monte-Carlo labels, which {grader} graded. Their "
                "continuations are not in the dataset. Grade the dataset that was labelled, then "
                "label the result again."
            )

    def run(self, draft: DatasetDraft) -> AnyRecord:
        """Rewrite the solutions, and count the outcomes that change."""
        manifest = draft.manifest
        old_grader = manifest.get(GRADE_STAGE, GradeRecord).options.grader
        problems = read_problems(draft.current_files("problems"))
        if self.answer_judge is not None:
            # The judge's record counts the decisions on all files. Its replies are saved.
            shutil.rmtree(draft.root / "solutions", ignore_errors=True)
        judge_stats = None
        cost = NO_COST
        make_grader = partial(get_grader, self.grader)
        with contextlib.ExitStack() as stack:
            judge_session = None
            if self.answer_judge is not None:
                judge_session = stack.enter_context(
                    open_judge_session(self.answer_judge, draft.root, draft.progress)
                )
            grader = stack.enter_context(
                open_grader(make_grader, manifest.rows.solutions, self.workers)
            )
            regrade = partial(
                regrade_table,
                problems=problems,
                grader=grader,
                judge_session=judge_session,
                grade_thinking=self.grade_thinking,
                version=self.grader,
            )
            # A judge reports progress of its own while a file is graded.
            draft.rewrite_config("solutions", "grade", regrade, advance=judge_session is None)
            if judge_session is not None:
                judge_stats = judge_session.stats()
                cost = Cost(tokens=judge_stats.tokens, prm_calls=0, seconds=judge_stats.seconds)
        draft.update_pairs()
        changes = _count_changes(draft.parent_files("solutions"), draft.current_files("solutions"))
        grade_counts = GradeCounts(
            previous_grader=old_grader,
            changed=sum(count for (old, new), count in changes.items() if old != new),
            outcomes=[(old, new, count) for (old, new), count in sorted(changes.items())],
            answer_judge=judge_stats,
        )
        return self.make_record(grade_counts, cost)


def _count_changes(
    old_files: Sequence[Path], new_files: Sequence[Path]
) -> dict[tuple[str, str], int]:
    """Return the solutions by old and new outcome. The files have the same rows."""
    changes = Counter[tuple[str, str]]()
    for files in zip(old_files, new_files, strict=True):
        old, new = (
            collect_rows(scan_rows("solutions", [file]).select("outcome"))["outcome"]
            for file in files
        )
        counts = pl.DataFrame({"old": old, "new": new}).group_by("old", "new").len()
        for old_outcome, new_outcome, count in counts.iter_rows():
            changes[old_outcome, new_outcome] += count
    return changes


def regrade_table(
    table: pa.Table,
    *,
    problems: Mapping[str, Problem],
    grader: Grader,
    judge_session: JudgeSession | None,
    grade_thinking: bool,
    version: str,
) -> pa.Table:
    """Return the solutions of a file with new verdicts and labels."""
    solutions = [Solution.from_row(row) for row in table.to_pylist()]
    requests = [
        grading_request(
            problems[solution.problem_id],
            solution.text,
            prompt=solution.prompt,
            finish_reason=solution.finish_reason,
            # Thinking without markers in the text was in a separate field of the server's response.
            has_separate_reasoning=solution.thinking_closed is True,
            is_unclosed=solution.thinking_closed is False,
            grade_thinking=grade_thinking,
        )
        for solution in solutions
    ]
    if all(solution.thinking_closed is None for solution in solutions):
        requests = mark_truncated_thinking(requests)  # solutions that no grader has read yet
    problem_ids = [solution.problem_id for solution in solutions]
    step_counts = [len(solution.completions) for solution in solutions]
    verdicts = grader.grade(requests)
    if judge_session is not None:
        verdicts = judge_session.judge_verdicts(
            requests, verdicts, lambda index: _question_with_options(problems[problem_ids[index]])
        )
    return with_verdicts(table, verdicts, step_counts, version)


def _question_with_options(problem: Problem) -> str:
    """Return the question of a problem, with the options of a multiple-choice problem."""
    return add_answer_options(problem.question, problem.metadata)


class GradingOptions(AnswerJudgeOptions):
    """The grader, and the judge of the answers that it leaves undecided."""

    grader: Annotated[str | None, Option(default_text="the grader of this release")] = None
    """Full name of a grader."""
    grade_thinking: bool = False
    """If a solution has no text after its thinking, grade the answer that the thinking marks, for
    example in a box. By default such a solution has no answer.
    """
    workers: Workers = None
    """Number of processes that grade."""


class GradeOptions(StageOptions, GradingOptions):
    """Grade the solutions of a dataset again, without sampling, and report the changes.

    Labels follow the new outcomes. Preference pairs depend on the old outcomes and are removed. A
    judge may decide the answers that the grader leaves undecided.
    """


def make_grade_stage(options: GradeOptions) -> GradeStage:
    """Return the stage; SchemaError if the release does not contain the grader."""
    return GradeStage(
        grader=get_grader(options.grader).version,
        workers=options.workers,
        grade_thinking=options.grade_thinking,
        answer_judge=resolve_answer_judge(options.judge),
    )


def describe_result(manifest: Manifest) -> str:
    """Return the changes of outcomes and the decisions of the judge, for the terminal."""
    return "\n".join(filter(None, [_describe_changes(manifest), _describe_judge(manifest)]))


def _describe_judge(manifest: Manifest) -> str:
    """Return a sentence on the decisions of the judge; empty without a judge."""
    stats = manifest.get(GRADE_STAGE, GradeRecord).counts.answer_judge
    if stats is None:
        return ""
    tokens = "an unknown number of" if stats.tokens is None else f"{stats.tokens:,}"
    return f"the {stats.describe_decisions()}; {tokens} tokens"


def _describe_changes(manifest: Manifest) -> str:
    """Return a table with the number of solutions per old and new outcome."""
    record = manifest.get(GRADE_STAGE, GradeRecord)
    grader = record.options.grader
    regraded = record.counts
    if regraded.previous_grader is None:
        return ""
    if not regraded.changed:
        return f"no outcome changed: {grader} gives the same verdicts"
    counts = {(old, new): count for old, new, count in regraded.outcomes}
    outcomes = [outcome for outcome in OUTCOMES if any(outcome in pair for pair in counts)]
    lines = [["", *(outcome.replace("_", " ") for outcome in outcomes)]]
    for old in outcomes:
        cells = [f"{counts.get((old, new), 0):,}" for new in outcomes]
        lines.append([old.replace("_", " "), *cells])
    title_width, *widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [
        f"{name:<{title_width}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        for name, *cells in lines
    ]
    title = f"{regraded.changed:,} outcomes changed from {regraded.previous_grader} (rows) to "
    return "\n".join([f"{title}{grader} (columns)", *table])


def _summarize(record: GradeRecord, statistics: DatasetStatistics) -> list[Row]:
    """Return the row of the summary about the judge, if there is one."""
    settings = record.options.answer_judge
    stats = record.counts.answer_judge
    if settings is None or stats is None:
        return []
    accuracy = format_mean(statistics.accuracy_without_judge)
    decisions = statistics.judge_decisions
    text = (
        f"{settings.model.name}: {decisions.get('correct', 0):,} correct and "
        f"{decisions.get('incorrect', 0):,} incorrect by its decision; accuracy without it "
        f"{accuracy}. It was asked about {stats.answers:,} undecided answers, and left "
        f"{stats.undecided:,} ({stats.unreadable:,} unreadable replies)"
    )
    return [("answer judge", text)]


STAGES.register(
    StageEntry(
        name=GRADE_STAGE,
        record=GradeRecord,
        card_row="",
        summarize=_summarize,
        options_class=GradeOptions,
        make_stage=make_grade_stage,
        describe_result=describe_result,
    )
)
