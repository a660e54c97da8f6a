"""Grade the solutions of a dataset again, without sampling.

A dataset contains everything that grading needs, because the steps of a solution joined give its
exact text. Step rewards stay unchanged. The outcome of a new verdict becomes the label of every
step. Preference pairs depend on the old verdicts and are removed.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from fsdpo_data.answers import Grader, GradingRequest
from fsdpo_data.answers.pool import open_grader
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.command_line import command_line
from fsdpo_data.core.entities import OUTCOMES, Solution
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.options import Option
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.manifest_sections import RegradeStats
from fsdpo_data.dataset.schema import scan_rows, to_table
from fsdpo_data.dataset.stage import DatasetDraft, Stage, StageOptions
from fsdpo_data.dataset.stage_registry import STAGES, StageEntry
from fsdpo_data.dataset.tally import Tally
from fsdpo_data.engines.options import Workers
from fsdpo_data.models.thinking import find_thinking
from fsdpo_data.steps.rewards import outcome_labels

#: Value of ``thinking`` in the manifest's spec if the grading reads thinking (``grade_thinking``).
THINKING_GRADED = "graded"


@dataclass(frozen=True)
class GradeStage(Stage):
    """Replaces the outcomes and answers of a dataset, and its step labels."""

    spec_key = "grade"

    grader: str  #: Full name of the grader, such as ``math@3``.
    workers: int | None = None  #: Processes that grade; None for one per available core.
    #: Whether a solution without text after its thinking may have its answer in the thinking.
    grade_thinking: bool = False
    command: Sequence[str] = ()  #: Words of the command line that runs the stage.

    def spec(self) -> Mapping[str, Any]:
        """Return the full name of the grader, and whether it reads thinking."""
        spec = {"grader": self.grader}
        if self.grade_thinking:
            spec["thinking"] = THINKING_GRADED
        return spec

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse imported labels, and Monte-Carlo labels, whose continuations are missing."""
        if manifest.spec.step_labels is not None:
            raise InputError(
                f"{source} has imported step labels. Many of its solutions end at their first "
                "wrong step, so their answers cannot be graded. Grade a dataset of complete "
                "solutions."
            )
        rollouts = scan_rows("solutions", manifest.config_paths(source, "solutions")).select(
            "rollouts"
        )
        if collect_rows(rollouts.select(pl.col("rollouts").is_not_null().any())).item():
            raise InputError(
                f"{source} has Monte-Carlo labels, which {manifest.spec.grader} graded. Their "
                "continuations are not in the dataset. Grade the dataset that was labelled, then "
                "label the result again."
            )

    def run(self, draft: DatasetDraft) -> None:
        """Rewrite the solutions, and the statistics in the manifest that depend on verdicts."""
        manifest = draft.manifest
        old_grader = manifest.spec.grader
        golds = gold_answers(draft.current_files("problems"))
        # The tally counts the rules of verdicts, which the solutions do not store. A resumed run
        # therefore cannot keep the files of an interrupted run, and grades all solutions again.
        shutil.rmtree(draft.root / "solutions", ignore_errors=True)
        tally = Tally()
        outcome_changes = Counter[tuple[str, str]]()
        make_grader = partial(get_grader, self.grader)
        with open_grader(make_grader, manifest.rows.solutions, self.workers) as grader:
            regrade = partial(
                regrade_table,
                golds=golds,
                grader=grader,
                grade_thinking=self.grade_thinking,
                tally=tally,
                outcome_changes=outcome_changes,
            )
            draft.rewrite_config("solutions", "grade", regrade)
        draft.drop_pairs()
        manifest.spec.grader = self.grader
        manifest.spec.thinking = THINKING_GRADED if self.grade_thinking else None
        for name, value in tally.manifest_counts().items():
            setattr(manifest, name, value)
        for name, value in tally.outcome_statistics().items():
            setattr(manifest.statistics, name, value)
        manifest.regraded = _regrade_stats(old_grader, self.grader, outcome_changes)


def _regrade_stats(
    old_grader: str, new_grader: str, outcome_changes: Mapping[tuple[str, str], int]
) -> RegradeStats:
    """Return the manifest's section on the changes of outcomes."""
    changed = sum(count for (old, new), count in outcome_changes.items() if old != new)
    outcomes = [[old, new, count] for (old, new), count in sorted(outcome_changes.items())]
    section = {"from": old_grader, "to": new_grader, "changed": changed, "outcomes": outcomes}
    return RegradeStats.model_validate(section)


def gold_answers(files: list[Path]) -> dict[str, str]:
    """Return the gold answers in files of problems, by problem id."""
    return dict(
        collect_rows(scan_rows("problems", files).select("problem_id", "answer")).iter_rows()
    )


def regrade_table(
    table: pa.Table,
    *,
    golds: Mapping[str, str],
    grader: Grader,
    grade_thinking: bool,
    tally: Tally,
    outcome_changes: Counter[tuple[str, str]],
) -> pa.Table:
    """Return the solutions of a file with new verdicts and labels.

    The solutions of one problem must be neighbours. Adds the counts of the file to ``tally``, and
    its (old outcome, new outcome) pairs to ``outcome_changes``.
    """
    solutions = [Solution(**row) for row in table.to_pylist()]
    requests = [
        _solution_request(solution, golds, grade_thinking=grade_thinking) for solution in solutions
    ]
    verdicts = grader.grade(requests)
    graded_solutions = list(zip(solutions, verdicts, strict=True))
    outcome_changes.update(
        (solution.outcome, verdict.status) for solution, verdict in graded_solutions
    )
    for _, group in groupby(graded_solutions, key=lambda graded: graded[0].problem_id):
        problem_solutions = list(group)
        tally.add_verdicts(
            [verdict for _, verdict in problem_solutions],
            [len(solution.completions) for solution, _ in problem_solutions],
        )
    new_solutions = [
        replace(
            solution,
            answer=verdict.answer,
            outcome=verdict.status,
            labels=outcome_labels(verdict.status, len(solution.completions)),
        )
        for solution, verdict in graded_solutions
    ]
    return to_table("solutions", new_solutions)


def _solution_request(
    solution: Solution, golds: Mapping[str, str], *, grade_thinking: bool
) -> GradingRequest:
    """Return the request to grade a solution of a sealed dataset."""
    text = solution.text
    # Thinking without markers in the text was in a separate field of the server's response.
    has_thinking = solution.thinking_closed is not None
    return GradingRequest(
        gold=golds[solution.problem_id],
        response=text,
        finish_reason=solution.finish_reason,
        thinking=find_thinking(solution.prompt, text, has_separate_reasoning=has_thinking),
        grade_thinking=grade_thinking,
    )


@dataclass(frozen=True, kw_only=True)
class GradeOptions(StageOptions):
    """Grade the solutions of a dataset again, without sampling, and report the changes.

    Labels follow the new outcomes. Preference pairs depend on the old outcomes and are removed.

    Attributes:
        grader: Full name of a grader.
        grade_thinking: If a solution has no text after its thinking, grade the answer that the
            thinking marks, for example in a box. By default such a solution has no answer.
        workers: Number of processes that grade.

    Examples:
        Use the default grader of this release:

            fsdpo-data grade runs/a --out runs/a-regraded

        Accept numbers within a relative tolerance of 1 %:

            fsdpo-data grade runs/a --out runs/tolerant --grader math@3+tolerance=0.01
    """

    grader: Annotated[str | None, Option(default_text="the grader of this release")] = None
    grade_thinking: bool = False
    workers: Workers = None


def make_grade_stage(options: GradeOptions) -> GradeStage:
    """Return the stage; SchemaError if the release does not contain the grader."""
    grader = get_grader(options.grader).version
    return GradeStage(
        command=command_line(replace(options, grader=grader), "fsdpo-data", "grade"),
        grader=grader,
        workers=options.workers,
        grade_thinking=options.grade_thinking,
    )


def describe_changes(manifest: Manifest) -> str:
    """Return a table with the number of solutions per old and new outcome, for the terminal."""
    regraded = manifest.regraded
    if regraded is None:
        return ""
    if not regraded.changed:
        return f"no outcome changed: {regraded.new_grader} gives the same verdicts"
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
    title = f"{regraded.changed:,} outcomes changed from {regraded.old_grader} (rows) to "
    return "\n".join([f"{title}{regraded.new_grader} (columns)", *table])


STAGES.register(
    StageEntry(
        name="grade",
        options_class=GradeOptions,
        make_stage=make_grade_stage,
        describe_result=describe_changes,
    )
)
