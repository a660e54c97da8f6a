"""Step-DPO pairs: the first error of a solution against a right step after the same prefix.

The first error of an incorrect solution is its first step with a reward below a threshold. The
model continues the steps before it. The first continuation with a correct outcome gives the chosen
side. Both sides are complete solutions that start with the shared steps, so the pairs have the
usual columns. The loss ``step-dpo`` trains on the first step that differs, and the export
``step-dpo-10k`` writes only this step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fsdpo_data.core.entities import Pair
from fsdpo_data.core.errors import InputError, SchemaError
from fsdpo_data.core.identity import ID_VERSION, digest
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.parquet_files import collect_rows, count_rows
from fsdpo_data.dataset.manifest import AnyRecord, Manifest
from fsdpo_data.dataset.schema import scan_rows, to_table
from fsdpo_data.dataset.stage import DatasetDraft, Stage
from fsdpo_data.dataset.stage_records import (
    PAIR_STAGE,
    SAMPLE_STAGE,
    PairCounts,
    SampleRecord,
)
from fsdpo_data.pairs.first_error import (
    FirstError,
    StepPairSettings,
    find_first_errors,
)
from fsdpo_data.pairs.statistics import is_same_step
from fsdpo_data.stages.continuations import (
    ContinuationGrader,
    ContinuationSampler,
    GradedContinuations,
    Prefix,
    SolutionPrefix,
    check_continuations,
    prefix_id,
)
from fsdpo_data.steps.segment import segmenter_name, split_solution

FOLDER = "resampled"  #: Folder of the continuations inside the new dataset's directory.


@dataclass(frozen=True)
class BasePairStage(Stage):
    """Base of the stages that add the ``pairs`` config to a dataset with step rewards."""

    name = PAIR_STAGE
    writes = ("pairs",)

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset that has no rewards."""
        rewards = scan_rows("solutions", manifest.config_paths(source, "solutions")).select(
            "step_rewards"
        )
        has_rewards = pl.col("step_rewards").list.len() > 0
        if not collect_rows(rewards.select(has_rewards.any())).item():
            raise InputError(
                f"{source} has no step rewards. Score it first: `fsdpo-data score {source}` with "
                "`prm=PRM` and `out=SCORED`. Then run `fsdpo-data pair SCORED`."
            )


@dataclass(frozen=True)
class StepPairStage(BasePairStage):
    """Adds the ``pairs`` config with one pair for each distinct first error that is corrected."""

    continuation_sampler: ContinuationSampler  #: Continues the prefixes before first errors.
    settings: StepPairSettings  #: Everything that determines the pairs, also the continuations.
    workers: int | None = None  #: Processes that grade; None for one per available core.

    def options(self) -> StepPairSettings:
        """Return everything that determines the pairs."""
        return self.settings

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset without rewards or without errors, or that cannot be continued."""
        check_continuations(source, manifest)
        super().check(source, manifest)
        segmenter = manifest.get(SAMPLE_STAGE, SampleRecord).options.segmenter
        try:
            segmenter_name(segmenter)
        except InputError:
            raise SchemaError(
                f"the steps of {source} are those of {segmenter}, which this release does not "
                "have, so it cannot split continuations in the same way. Build or import the "
                "dataset again. For a segmenter of a plug-in, load the plug-in."
            ) from None
        files = manifest.config_paths(source, "solutions")
        if manifest.has_outcome_rewards:
            raise InputError(
                f"the rewards of {source} come from an outcome reward model, which was trained on "
                "last steps only, so they find no first error. Score with a process reward model, "
                "or pair complete solutions (`style=full`)."
            )
        if not manifest.rewards_are_probabilities:
            raise InputError(
                f"the rewards of {source} are not probabilities, which `threshold` needs. Each is "
                f"a {manifest.reward_meaning}. Score with another reward model, or pair "
                "complete solutions (`style=full`)."
            )
        counts = Counter[str]()
        errors = (
            error for file in files for error in find_first_errors(file, self.settings, counts)
        )
        if next(errors, None) is None:
            raise InputError(
                f"{source}: no step of {counts['incorrect']} incorrect solutions has a reward "
                f"below `threshold={self.settings.threshold}`. Raise the threshold, or sample "
                "more solutions."
            )

    def run(self, draft: DatasetDraft) -> AnyRecord:
        """Sample the missing continuations, then write one file of pairs per file of solutions."""
        files = draft.current_files("solutions")
        sampled = draft.manifest.get(SAMPLE_STAGE, SampleRecord)
        segmenter = segmenter_name(sampled.options.segmenter)
        sampler = self.continuation_sampler
        list_prefixes = partial(self._prefixes_to_continue, files)
        with sampler.sample_continuations(draft, FOLDER, list_prefixes) as run:
            with sampler.open_grader(draft, run, self.workers) as grade_continuations:
                draft.add_pairs(partial(self._pair_table, grade_continuations, segmenter))
            n_prefixes = len(run.line_spans)
            cost = sampler.measure_cost(run)
        if not any(map(count_rows, draft.current_files("pairs"))):
            raise InputError(
                f"{draft.parent_root}: none of {n_prefixes * sampler.sampling.n} continuations of "
                f"{n_prefixes} prefixes is correct. Sample more with `continuations`."
            )
        return self.make_record(PairCounts(continued_prefixes=n_prefixes), cost)

    def _prefixes_to_continue(self, files: Sequence[Path]) -> Iterator[Prefix]:
        """Yield the prefix before each first error."""
        for file in files:
            for error in find_first_errors(file, self.settings):
                yield Prefix(prefix_id(error.prefix.full_text), error.prefix)

    def _pair_table(
        self, grade_continuations: ContinuationGrader, segmenter: str, file: Path
    ) -> pa.Table:
        """Return the rows of ``pairs`` from one file of solutions."""
        errors = list(find_first_errors(file, self.settings))
        prefixes = [
            SolutionPrefix(
                prefix_id(error.prefix.full_text),
                error.solution.problem_id,
                error.solution.prompt,
            )
            for error in errors
        ]
        graded_prefixes = zip(prefixes, errors, grade_continuations(prefixes), strict=True)
        pairs = (
            self._make_pair(prefix.prefix_id, error, continuations, segmenter)
            for prefix, error, continuations in graded_prefixes
        )
        return to_table("pairs", (pair for pair in pairs if pair is not None))

    def _make_pair(
        self,
        error_prefix_id: str,
        error: FirstError,
        continuations: GradedContinuations,
        segmenter: str,
    ) -> Pair | None:
        """Return the pair of an error and the first continuation that corrects it, if any does."""
        solution = error.solution
        first_steps = "".join(solution.completions[: error.step])
        for index, (completion, outcome) in enumerate(continuations):
            steps = split_solution(solution.prompt, first_steps + completion.text, segmenter)
            is_correct = outcome == "correct" and completion.finish_reason == "stop"
            if is_correct and _differs_at_error(error, steps):
                sampler_id = self.continuation_sampler.id
                return Pair(
                    problem_id=solution.problem_id,
                    chosen_id=digest(
                        "continuation", ID_VERSION, error_prefix_id, sampler_id, index
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


def _differs_at_error(error: FirstError, steps: Sequence[str]) -> bool:
    """Whether ``steps`` has the same steps before the error, and another step in its place."""
    wrong_steps = error.solution.completions
    index = error.step
    return (
        list(steps[:index]) == list(wrong_steps[:index])
        and len(steps) > index
        and not is_same_step(steps[index], wrong_steps[index])
    )
