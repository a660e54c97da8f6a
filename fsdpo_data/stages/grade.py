"""Grade the solutions of a dataset again, without sampling: what happened stays, its verdict not.

The text of a solution is its steps joined, to the character, so a sealed dataset holds all that
grading needs. Step rewards stay as they are; outcome labels follow the new verdicts; pairs, which
rest on the old ones, are left out.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from fsdpo_data.answers import Grader
from fsdpo_data.answers.pool import pooled
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.nouns import Solution
from fsdpo_data.core.options import Option
from fsdpo_data.core.rows import scan
from fsdpo_data.dataset.derive import Draft, Stage, StageOptions
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.parts import Regraded
from fsdpo_data.dataset.schema import to_table
from fsdpo_data.dataset.tally import Tally
from fsdpo_data.engines.options import Workers
from fsdpo_data.steps.rewards import outcome_labels


class GradeStage(Stage):
    """Replaces the verdicts of a dataset, and the labels that follow from them."""

    part = "grade"

    def __init__(self, grader: str, workers: int | None = None) -> None:
        self._make = partial(get_grader, grader)
        self._version = self._make().version
        self._workers = workers

    def spec(self) -> Mapping[str, Any]:
        """Return the grader's version."""
        return {"grader": self._version}

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse Monte-Carlo labels: the texts that the old grader judged for them are gone."""
        rollouts = scan(manifest.paths(source, "solutions")).select("rollouts")
        if rollouts.select(pl.col("rollouts").is_not_null().any()).collect().item():
            raise InputError(
                f"{source} has Monte-Carlo labels, which were counted by {manifest.spec.grader}. "
                "Grade the dataset they were made from, then label the result again."
            )

    def run(self, draft: Draft) -> None:
        """Rewrite the solutions, and every count in the manifest that rests on verdicts."""
        old = draft.manifest.spec.grader
        golds = gold_answers(draft.files("problems"))
        # Rules are counted while grading and kept nowhere else, so an interrupted run, which is
        # a matter of seconds, begins again.
        shutil.rmtree(draft.root / "solutions", ignore_errors=True)
        tally, changes = Tally(), Counter[tuple[str, str]]()
        with pooled(self._make, draft.manifest.rows.solutions, self._workers) as grader:
            draft.rewrite("solutions", "grade", partial(regraded, golds, grader, tally, changes))
        draft.drop_pairs()
        manifest = draft.manifest
        manifest.spec.grader = self._version
        for name, value in tally.counts().items():
            setattr(manifest, name, value)
        for name, value in tally.outcome_statistics().items():
            setattr(manifest.statistics, name, value)
        changed = sum(n for (was, now), n in changes.items() if was != now)
        counts = [[was, now, n] for (was, now), n in sorted(changes.items())]
        told = {"from": old, "to": self._version, "changed": changed, "outcomes": counts}
        manifest.regraded = Regraded.of(told)


def gold_answers(files: list[Path]) -> dict[str, str]:
    """Return the gold answers in files of problems, by problem id."""
    problems = scan(files).select("problem_id", "answer").collect()
    return dict(zip(problems["problem_id"], problems["answer"], strict=True))


def regraded(
    golds: Mapping[str, str],
    grader: Grader,
    tally: Tally,
    changes: Counter[tuple[str, str]],
    table: pa.Table,
) -> pa.Table:
    """Return a file's solutions with new verdicts and labels.

    Its counts are added to ``tally``, and its (old outcome, new outcome) to ``changes``.
    """
    solutions = [Solution(**row) for row in table.to_pylist()]
    verdicts = grader.grade(
        [(golds[each.problem_id], each.text, each.finish_reason) for each in solutions]
    )
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
        workers: Processes that grade.
    """

    grader: Annotated[str | None, Option(default="the release's")] = None
    workers: Workers = None

    def stage(self) -> GradeStage:
        """Look the grader up."""
        return GradeStage(get_grader(self.grader).version, self.workers)
