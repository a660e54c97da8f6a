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
from fsdpo_data.core.entities import Pair
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ID_VERSION, digest
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.row_files import scan_parquet
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.manifest_sections import PairStats
from fsdpo_data.dataset.schema import to_table
from fsdpo_data.dataset.stage import DatasetDraft, Stage
from fsdpo_data.models.thinking import split_solution
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.pairs.first_error import FirstError, StepPairSpec, find_first_errors
from fsdpo_data.pairs.statistics import step_pair_statistics
from fsdpo_data.stages.continuations import (
    ContinuationSampler,
    GradedContinuations,
    Prefix,
    prefix_id,
)
from fsdpo_data.steps.segment import segmenter_name

FOLDER = "resampled"  #: Folder of the continuations inside the new dataset's directory.


@dataclass(frozen=True)
class BasePairStage(Stage):
    """Adds the ``pairs`` config to a dataset with step rewards: what both styles have in common."""

    spec_key = "pair"

    pair_spec: PairSpec | StepPairSpec
    continuer: ContinuationSampler | None = (
        None  #: Who continues what comes before first errors, and how.
    )

    def spec(self) -> Mapping[str, Any]:
        """Return what decides the pairs, as plain values: whole solutions must be finished."""
        chosen = asdict(self.pair_spec)
        if self.continuer is None:
            return {**chosen, "finished": True}
        return {"style": "step-dpo", **chosen, **self.continuer.spec()}

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset that has no rewards."""
        rewards = scan_parquet(manifest.config_paths(source, "solutions")).select("step_rewards")
        if not rewards.select(pl.col("step_rewards").is_not_null().any()).collect().item():
            raise InputError(
                f"{source} has no step rewards. Score it first, with `fsdpo-data score {source}`, "
                "and pair what that makes."
            )


@dataclass(frozen=True)
class StepPairStage(BasePairStage):
    """Adds the ``pairs`` config, one pair for each different first error that can be put right."""

    pair_spec: StepPairSpec
    continuer: ContinuationSampler
    workers: int | None = None

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset of an older grader, without rewards, or in which no error is found."""
        get_grader(manifest.spec.grader)
        super().check(source, manifest)
        files = manifest.config_paths(source, "solutions")
        if not manifest.spec.rewards_are_probabilities:
            raise InputError(
                f"the rewards of {source} are not probabilities, which `threshold` is about, but "
                f"each a {manifest.spec.reward_meaning}. Score with another reward "
                "model, or pair whole solutions (`style=full`)."
            )
        counts = Counter[str]()
        if not any(True for file in files for _ in find_first_errors(file, self.pair_spec, counts)):
            raise InputError(
                f"{source}: no step of {counts['incorrect']} incorrect solutions has a reward "
                f"below `threshold={self.pair_spec.threshold}`. Raise it, or sample more solutions."
            )

    def run(self, draft: DatasetDraft) -> None:
        """Continue what is owed, then write one file of pairs per file of solutions."""
        files = draft.current_files("solutions")
        segmenter = segmenter_name(draft.manifest.spec.segmenter)
        with self.continuer.run(draft, FOLDER, partial(self._prefixes_to_continue, files)) as run:
            with self.continuer.open_grader(draft, run, self.workers) as judged:

                def table(file: Path) -> pa.Table:
                    errors = list(find_first_errors(file, self.pair_spec))
                    asked = [(prefix_id(each.prefix), each.solution) for each in errors]
                    pairs = (
                        self._pair(key, error, some, segmenter)
                        for (key, _), error, some in zip(asked, errors, judged(asked), strict=True)
                    )
                    return to_table("pairs", filter(None, pairs))

                draft.add_pairs(table)
            spent = self.continuer.record_cost(run, draft.manifest)
        counts = step_pair_statistics(draft.current_files("pairs"), files, self.pair_spec)
        draft.set_pair_stats(PairStats.model_validate({**counts, "resampled": spent}))
        if not counts["pairs"]:
            raise InputError(
                f"{draft.parent_root}: none of {spent.continuations} continuations of "
                f"{spent.prefixes} beginnings ends correct. Take more: `continuations`."
            )

    def _prefixes_to_continue(self, files: Sequence[Path]) -> Iterator[Prefix]:
        for file in files:
            for error in find_first_errors(file, self.pair_spec):
                yield prefix_id(error.prefix), error.prefix

    def _pair(
        self, beginning: str, error: FirstError, tried: GradedContinuations, segmenter: str
    ) -> Pair | None:
        """Return the pair of an error and the first continuation that puts it right."""
        solution = error.solution
        before = "".join(solution.completions[: error.step])
        for index, (sample, outcome) in enumerate(tried):
            steps = split_solution(solution.prompt, before + sample["text"], segmenter)
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
