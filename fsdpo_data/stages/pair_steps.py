"""Pairs of single steps, as Step-DPO has them: the first error against a right step in its place.

The first step of an incorrect solution whose reward falls below a threshold is its first error.
The steps before it are continued anew, and of the continuations that end correct the first one
gives the step that is preferred. Both sides are kept whole, shared steps first, so the pairs have
the columns of any others; the loss ``step-dpo`` learns from the step in which the
sides differ, and the export ``step-dpo-10k`` writes just that.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fsdpo_data.answers.versions import get_grader
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ID_VERSION, digest
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.nouns import Pair
from fsdpo_data.core.rows import scan
from fsdpo_data.dataset.derive import Draft, Stage
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.parts import PairCounts
from fsdpo_data.dataset.schema import to_table
from fsdpo_data.models.thinking import steps_of
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.pairs.first_error import FirstError, StepPairSpec, first_errors
from fsdpo_data.pairs.statistics import step_pair_statistics
from fsdpo_data.stages.continuations import Beginning, Continuer, Tried, beginning_id
from fsdpo_data.steps.segment import segmenter_name

FOLDER = "resampled"  #: Folder of the continuations inside the new dataset's directory.


@dataclass(frozen=True)
class PairingStage(Stage):
    """Adds the ``pairs`` config to a dataset with step rewards: what both styles have in common."""

    part = "pair"

    choice: PairSpec | StepPairSpec
    continuer: Continuer | None = None  #: Who continues what comes before first errors, and how.

    def spec(self) -> Mapping[str, Any]:
        """Return what decides the pairs, as plain values: whole solutions must be finished."""
        chosen = asdict(self.choice)
        if self.continuer is None:
            return {**chosen, "finished": True}
        return {"style": "step-dpo", **chosen, **self.continuer.spec()}

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset that has no rewards."""
        rewards = scan(manifest.paths(source, "solutions")).select("step_rewards")
        if not rewards.select(pl.col("step_rewards").is_not_null().any()).collect().item():
            raise InputError(
                f"{source} has no step rewards. Score it first, with `fsdpo-data score {source}`, "
                "and pair what that makes."
            )


@dataclass(frozen=True)
class StepPairStage(PairingStage):
    """Adds the ``pairs`` config, one pair for each different first error that can be put right."""

    choice: StepPairSpec
    continuer: Continuer
    workers: int | None = None

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset of an older grader, without rewards, or in which no error is found."""
        get_grader(manifest.spec.grader)
        super().check(source, manifest)
        files = manifest.paths(source, "solutions")
        if not manifest.spec.probabilities:
            raise InputError(
                f"the rewards of {source} are not probabilities, which `threshold` is about, but "
                f"each a {manifest.spec.reward}. Score with another reward "
                "model, or pair whole solutions (`style=full`)."
            )
        counts = Counter[str]()
        if not any(True for file in files for _ in first_errors(file, self.choice, counts)):
            raise InputError(
                f"{source}: no step of {counts['incorrect']} incorrect solutions has a reward "
                f"below `threshold={self.choice.threshold}`. Raise it, or sample more solutions."
            )

    def run(self, draft: Draft) -> None:
        """Continue what is owed, then write one file of pairs per file of solutions."""
        files = draft.files("solutions")
        segmenter = segmenter_name(draft.manifest.spec.segmenter)
        with self.continuer.run(draft, FOLDER, partial(self._wanted, files)) as run:
            with self.continuer.judging(draft, run, self.workers) as judged:

                def table(file: Path) -> pa.Table:
                    errors = list(first_errors(file, self.choice))
                    asked = [(beginning_id(each.beginning), each.solution) for each in errors]
                    pairs = (
                        self._pair(key, error, some, segmenter)
                        for (key, _), error, some in zip(asked, errors, judged(asked), strict=True)
                    )
                    return to_table("pairs", filter(None, pairs))

                draft.add_pairs(table)
            spent = self.continuer.bill(run, draft.manifest)
        counts = step_pair_statistics(draft.files("pairs"), files, self.choice)
        draft.describe_pairs(PairCounts.model_validate({**counts, "resampled": spent}))
        if not counts["pairs"]:
            raise InputError(
                f"{draft.source}: none of {spent.continuations} continuations of "
                f"{spent.beginnings} beginnings ends correct. Take more: `resamples`."
            )

    def _wanted(self, files: Sequence[Path]) -> Iterator[Beginning]:
        for file in files:
            for error in first_errors(file, self.choice):
                yield beginning_id(error.beginning), error.beginning

    def _pair(self, beginning: str, error: FirstError, tried: Tried, segmenter: str) -> Pair | None:
        """Return the pair of an error and the first continuation that puts it right."""
        solution = error.solution
        before = "".join(solution.completions[: error.step])
        for index, (sample, outcome) in enumerate(tried):
            steps = steps_of(solution.prompt, before + sample["text"], segmenter)
            right = outcome == "correct" and sample["finish_reason"] == "stop"
            if right and _is_another_step(error, steps):
                return Pair(
                    problem_id=solution.problem_id,
                    chosen_id=digest(
                        "continuation", ID_VERSION, beginning, self.continuer.id, index
                    ),
                    rejected_id=solution.solution_id,
                    prompt=solution.prompt,
                    chosen="".join(steps),
                    rejected=solution.text,
                    chosen_steps=steps,
                    rejected_steps=solution.completions,
                    chosen_rewards=None,
                    rejected_rewards=solution.step_rewards,
                )
        return None


def _is_another_step(error: FirstError, steps: Sequence[str]) -> bool:
    """Whether a solution has the same steps before the error, and then another one."""
    wrong, at = error.solution.completions, error.step
    # A step's last space is that of what follows it: alone it makes no other step.
    return (
        list(steps[:at]) == list(wrong[:at])
        and len(steps) > at
        and steps[at].strip() != wrong[at].strip()
    )
