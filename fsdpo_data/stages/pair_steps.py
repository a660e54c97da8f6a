"""Pairs of single steps, as Step-DPO has them: the first error against a right step in its place.

The first step of an incorrect solution whose reward falls below a threshold is its first error.
The steps before it are continued anew, and of the continuations that end correct the first one
gives the step that is preferred. Both sides are kept whole, shared steps first, so the pairs have
the columns of any others; the loss ``step-dpo`` learns from the step in which the
sides differ, and the export ``step-dpo-10k`` writes just that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.answers import Grader
from fsdpo_data.answers.pool import pooled
from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ID_VERSION, digest
from fsdpo_data.core.nouns import Pair
from fsdpo_data.core.rows import scan
from fsdpo_data.dataset.derive import Draft
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.parts import PairCounts
from fsdpo_data.dataset.run import RunDir
from fsdpo_data.dataset.schema import to_table
from fsdpo_data.pairs.first_error import FirstError, StepPairSpec, first_errors
from fsdpo_data.pairs.step_statistics import step_pair_statistics
from fsdpo_data.stages.continuations import (
    Beginning,
    Continuer,
    add_cost,
    beginning_id,
    continuations,
    cost,
)
from fsdpo_data.stages.grade import gold_answers
from fsdpo_data.steps.segment import Segmenter, get_segmenter

if TYPE_CHECKING:
    import pyarrow as pa

#: Folder of the continuations inside the new dataset's directory.
FOLDER = "resampled"


def check_scored(files: list[Path], name: Path) -> None:
    """Refuse solutions without rewards.

    Args:
        files: The files of ``solutions``.
        name: The dataset, for the message.

    Raises:
        InputError: if there are none.
    """
    import polars as pl

    rewards = scan(files).select(pl.col("step_rewards").is_not_null().any())
    if not rewards.collect().item():
        raise InputError(
            f"{name} has no step rewards. Score it first, with `fsdpo-data score {name}`, "
            "and pair what that makes."
        )


class StepPairStage:
    """Adds the ``pairs`` config, one pair for each different first error that can be put right.

    Args:
        spec: Which errors.
        continuer: Who continues what comes before them, and how.
        workers: Processes that grade; the cores at hand if None.
    """

    name = "pair"

    def __init__(
        self, spec: StepPairSpec, continuer: Continuer, *, workers: int | None = None
    ) -> None:
        self._spec = spec
        self._continuer = continuer
        self._workers = workers

    def spec(self) -> Mapping[str, Any]:
        """Return the :class:`StepPairSpec` and who continues, as plain values."""
        return {"style": "step-dpo", **asdict(self._spec), **self._continuer.spec()}

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset that has no rewards, or in which no error is found."""
        files = manifest.paths(source, "solutions")
        check_scored(files, source)
        counts = Counter[str]()
        if not any(True for file in files for _ in first_errors(file, self._spec, counts)):
            raise InputError(
                f"{source}: no step of {counts['incorrect']} incorrect solutions has a reward "
                f"below `threshold={self._spec.threshold}`. Raise it, or sample more solutions."
            )

    def run(self, draft: Draft) -> None:
        """Continue what is owed, then write one file of pairs per file of solutions."""
        files = draft.files("solutions")
        golds = gold_answers(draft.files("problems"))
        _, segmenter = get_segmenter(draft.manifest.spec.segmenter)
        make = partial(get_grader, draft.manifest.spec.grader)
        with self._continuer.open(draft, FOLDER) as run:
            self._continuer.sample_owed(run, partial(self._wanted, files), draft.progress)
            draft.progress.phase("pair", len(files))
            with pooled(make, len(run.spans) * self._continuer.sampling.n, self._workers) as grader:
                repair = Repair(run, golds, grader, segmenter, self._continuer.id)
                tables = [partial(step_pair_table, file, self._spec, repair) for file in files]
                draft.add_pairs(tables)
            spent = cost(run, self._continuer.sampling)
        counts = step_pair_statistics(draft.files("pairs"), files, self._spec)
        draft.describe_pairs(PairCounts.of({**counts, "resampled": spent}))
        add_cost(draft.manifest, spent)
        if not counts["pairs"]:
            raise InputError(
                f"{draft.source}: none of {spent.continuations} continuations of "
                f"{spent.beginnings} beginnings ends correct. Take more: `resamples`."
            )

    def _wanted(self, files: Sequence[Path]) -> Iterator[Beginning]:
        for file in files:
            for error in first_errors(file, self._spec):
                yield beginning_id(error.beginning), error.beginning


@dataclass(frozen=True, slots=True)
class Repair:
    """What puts errors right.

    Attributes:
        run: Holds the continuations.
        golds: Gold answers by problem id.
        grader: Judges a beginning together with its continuation.
        segmenter: That of the dataset.
        sampling: Who continued, and how, as a digest.
    """

    run: RunDir
    golds: Mapping[str, str]
    grader: Grader
    segmenter: Segmenter
    sampling: str

    def pairs(self, errors: Sequence[FirstError]) -> Iterator[Pair]:
        """Yield the pair for each error that some continuation puts right."""
        candidates = [
            list(self._candidates(error, record))
            for error, record in zip(
                errors,
                continuations(self.run, (beginning_id(each.beginning) for each in errors)),
                strict=True,
            )
        ]
        asked = [
            (self.golds[error.solution.problem_id], "".join(steps))
            for error, each in zip(errors, candidates, strict=True)
            for _, steps in each
        ]
        verdicts = iter(self.grader.grade(asked))
        for error, each in zip(errors, candidates, strict=True):
            right = [found for found in each if next(verdicts).status == "correct"]
            if right:
                index, steps = right[0]
                key = beginning_id(error.beginning)
                yield _pair(
                    error, digest("continuation", ID_VERSION, key, self.sampling, index), steps
                )

    def _candidates(
        self, error: FirstError, record: Mapping[str, Any]
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield (index, steps) of finished continuations that take another step at the error.

        Joined with what they continue, they must fall into the same steps before it.
        """
        steps = error.solution.completions
        before = "".join(steps[: error.step])
        for index, each in enumerate(record["completions"]):
            if each["finish_reason"] != "stop":
                continue
            told = self.segmenter(before + each["text"])
            if told[: error.step] != steps[: error.step] or len(told) <= error.step:
                continue
            # A step's last space is that of what follows it: alone it makes no other step.
            if told[error.step].strip() != steps[error.step].strip():
                yield index, told


def _pair(error: FirstError, chosen_id: str, steps: Sequence[str]) -> Pair:
    solution = error.solution
    return Pair(
        problem_id=solution.problem_id,
        chosen_id=chosen_id,
        rejected_id=solution.solution_id,
        prompt=solution.prompt,
        chosen="".join(steps),
        rejected=solution.text,
        chosen_steps=steps,
        rejected_steps=solution.completions,
        chosen_rewards=None,
        rejected_rewards=solution.step_rewards,
    )


def step_pair_table(file: Path, spec: StepPairSpec, repair: Repair) -> pa.Table:
    """Return the rows of ``pairs`` that one file of solutions gives."""
    return to_table("pairs", repair.pairs(list(first_errors(file, spec))))
