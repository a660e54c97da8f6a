"""The record of the stage that labels steps: by continuations, by a search, or by a judge."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import pydantic

from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.sampling import ContinuationSettings
from fsdpo_data.dataset.manifest import StageCounts, StageRecord
from fsdpo_data.engines.scorers.prm_formats import PrmFormatRef

LABEL_STAGE = "label"  #: Name of the stages that label steps.


class LabelSettings(FileModel):
    """Everything that determines step labels."""

    continuations: ContinuationSettings  #: The settings of the continuations, or of the critiques.

    search: Literal["first-error"] | None = None  #: The search that chose the continued steps.
    judge: PrmFormatRef | None = None  #: The format of the judge; None for continuations.
    judge_template: str | None = None  #: Name of the judge's prompt template.
    #: The Monte-Carlo labels that a judge agrees with; None to keep every label of the judge.
    consensus: LabelSettings | None = None


class RolloutCounts(StageCounts):
    """What the rows do not tell about labels from continuations."""

    prefixes: int  #: Prefixes that were continued.
    #: Wrong solutions in which the first error was searched; None without a search.
    searched_solutions: int | None = None
    #: Searched solutions without labels, because a prefix has no graded continuation.
    undecided_solutions: int | None = None
    #: Continuations that labels of all steps would need in addition.
    saved_continuations: int | None = None


class JudgeCounts(StageCounts):
    """Statistics of the judge's majority votes; see :mod:`fsdpo_data.stages.judge_steps`."""

    prompts: int  #: Prompts of the judge; equal solutions have one prompt.
    solutions: int  #: Judged solutions; the judge reads equal texts once.
    unreadable: int  #: Critiques without a readable vote.
    without_vote: int = 0  #: Solutions without a vote, which get no step labels.
    no_error: int = 0  #: Solutions in which the majority finds no error.
    ties: int = 0  #: Solutions with a tied vote; the vote of the earlier critique counts.
    correct_with_error: int = 0  #: Correct solutions in which the majority finds an error.
    #: Solutions that consensus filtering kept; None without consensus filtering.
    kept_solutions: int | None = None
    #: Solutions that consensus filtering dropped; None without consensus filtering.
    dropped_solutions: int | None = None


#: The entry of the stage that labelled the steps.
LabelRecord: TypeAlias = StageRecord[
    LabelSettings,
    Annotated[RolloutCounts | JudgeCounts, pydantic.Field(union_mode="left_to_right")],
]
