"""Grade the solutions of a dataset again, without sampling: what happened stays, its verdict not.

The text of a solution is its steps joined, to the character, so a sealed dataset holds all that
grading needs. Step rewards stay as they are; outcome labels follow the new verdicts; pairs, which
rest on the old ones, are left out.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from fsdpo_data.answers import Grader, GraderInput, Verdict
from fsdpo_data.answers.pool import open_grader
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.entities import Solution
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.options import Option
from fsdpo_data.core.row_files import scan_parquet
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.manifest_sections import RegradeStats
from fsdpo_data.dataset.schema import to_table
from fsdpo_data.dataset.stage import DatasetDraft, Stage, StageOptions
from fsdpo_data.dataset.tally import Tally
from fsdpo_data.engines.options import Workers
from fsdpo_data.models.thinking import ThinkingSpan, find_thinking
from fsdpo_data.steps.rewards import outcome_labels

#: A gold answer, the thinking of a response, its text with the thinking, and why it ended.
GradingInput = tuple[str, ThinkingSpan, str, str]
UNCLOSED_THINKING_RULE = (
    "unclosed-thinking"  #: The rule by which a thought that never ends has no answer.
)
UNFINISHED_THINKING_GRADED = "graded"  #: What a spec says where such a thought may hold the answer.


def grade_responses(
    grader: Grader, responses: Sequence[GradingInput], *, whole: bool
) -> list[Verdict]:
    """Grade responses by what stands behind their thinking.

    Thinking that nothing follows holds no answer; with ``whole`` it holds those that it marks.
    """
    verdicts = grader.grade([_answer_part(*each, whole=whole) for each in responses])
    return [
        verdict._replace(rule=UNCLOSED_THINKING_RULE)
        if thought.closed is False and not whole and verdict.status == "no_answer"
        else verdict
        for (_, thought, *_), verdict in zip(responses, verdicts, strict=True)
    ]


def grade_in_pool(
    make: Callable[[], Grader], responses: Sequence[GradingInput], workers: int | None = None
) -> list[Verdict]:
    """Grade responses by what stands behind their thinking; on all cores if they are many."""
    with open_grader(make, len(responses), workers) as grader:
        return grade_responses(grader, responses, whole=False)


def _answer_part(
    gold: str, thought: ThinkingSpan, text: str, ended: str, *, whole: bool
) -> GraderInput:
    if whole and thought.end and not text[thought.end :].strip():
        # Whatever it ended by, what stands last in it is not what it would have concluded.
        return gold, text[thought.start :], "length"
    return gold, text[thought.end :], ended


@dataclass(frozen=True)
class GradeStage(Stage):
    """Replaces the verdicts of a dataset, and the labels that follow from them."""

    spec_key = "grade"

    grader: str  #: Full name.
    workers: int | None = None
    grade_thinking: bool = False  #: Whether thinking that never ends may hold the answer.

    def spec(self) -> Mapping[str, Any]:
        """Return the grader's version, and where it looks for answers."""
        return {
            "grader": self.grader,
            **({"thinking": UNFINISHED_THINKING_GRADED} if self.grade_thinking else {}),
        }

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse Monte-Carlo labels: the texts that the old grader judged for them are gone."""
        rollouts = scan_parquet(manifest.config_paths(source, "solutions")).select("rollouts")
        if rollouts.select(pl.col("rollouts").is_not_null().any()).collect().item():
            raise InputError(
                f"{source} has Monte-Carlo labels, which were counted by {manifest.spec.grader}. "
                "Grade the dataset they were made from, then label the result again."
            )

    def run(self, draft: DatasetDraft) -> None:
        """Rewrite the solutions, and every count in the manifest that rests on verdicts."""
        manifest, old = draft.manifest, draft.manifest.spec.grader
        golds = gold_answers(draft.current_files("problems"))
        # Rules are counted while grading and kept nowhere else, so an interrupted run, which is
        # a matter of seconds, begins again.
        shutil.rmtree(draft.root / "solutions", ignore_errors=True)
        tally, changes = Tally(), Counter[tuple[str, str]]()
        make = partial(get_grader, self.grader)
        with open_grader(make, manifest.rows.solutions, self.workers) as grader:
            judged = partial(grade_responses, grader, whole=self.grade_thinking)
            draft.rewrite_config(
                "solutions", "grade", partial(regrade_table, golds, judged, tally, changes)
            )
        draft.drop_pairs()
        manifest.spec.grader = self.grader
        manifest.spec.thinking = UNFINISHED_THINKING_GRADED if self.grade_thinking else None
        for name, value in tally.manifest_counts().items():
            setattr(manifest, name, value)
        for name, value in tally.outcome_statistics().items():
            setattr(manifest.statistics, name, value)
        changed = sum(n for (was, now), n in changes.items() if was != now)
        counts = [[was, now, n] for (was, now), n in sorted(changes.items())]
        told = {"from": old, "to": self.grader, "changed": changed, "outcomes": counts}
        manifest.regraded = RegradeStats.model_validate(told)


def gold_answers(files: list[Path]) -> dict[str, str]:
    """Return the gold answers in files of problems, by problem id."""
    return dict(scan_parquet(files).select("problem_id", "answer").collect().iter_rows())


def regrade_table(
    golds: Mapping[str, str],
    judged: Callable[[Sequence[GradingInput]], list[Verdict]],
    tally: Tally,
    changes: Counter[tuple[str, str]],
    table: pa.Table,
) -> pa.Table:
    """Return a file's solutions with new verdicts and labels.

    Its counts are added to ``tally``, and its (old outcome, new outcome) to ``changes``.
    """
    solutions = [Solution(**row) for row in table.to_pylist()]
    responses: list[GradingInput] = []
    for each in solutions:
        text, apart = each.text, each.thinking_closed is not None
        thought = find_thinking(each.prompt, text, has_separate_reasoning=apart)
        responses.append((golds[each.problem_id], thought, text, each.finish_reason))
    verdicts = judged(responses)
    both = list(zip(solutions, verdicts, strict=True))
    changes.update((solution.outcome, verdict.status) for solution, verdict in both)
    for _, group in groupby(both, key=lambda each: each[0].problem_id):
        some = list(group)
        tally.add_verdicts([v for _, v in some], [len(s.completions) for s, _ in some])
    new = []
    for solution, verdict in both:
        labels = outcome_labels(verdict.status, len(solution.completions))
        found = replace(solution, answer=verdict.answer, outcome=verdict.status, labels=labels)
        new.append(found)
    return to_table("solutions", new)


@dataclass(frozen=True, kw_only=True)
class GradeOptions(StageOptions):
    """Grade the solutions of a dataset again, without sampling, and say what changed.

    Labels follow the new outcomes. Pairs rest on the old ones and are left out.

    Attributes:
        grader: Full name of a grader.
        grade_thinking: Thinking that never ends holds the answer that it marks; without this it
            has none.
        workers: Processes that grade.
    """

    grader: Annotated[str | None, Option(default_text="the release's")] = None
    grade_thinking: bool = False
    workers: Workers = None

    def stage(self) -> GradeStage:
        """Look the grader up."""
        return GradeStage(get_grader(self.grader).version, self.workers, self.grade_thinking)
