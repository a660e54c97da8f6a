"""Preference pairs: the best correct solutions of a problem against its worst incorrect ones."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.options import Option, declared_fields
from fsdpo_data.core.row_files import scan_parquet
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.manifest_sections import PairStats
from fsdpo_data.dataset.schema import arrow_schema
from fsdpo_data.dataset.stage import DatasetDraft
from fsdpo_data.pairs.best_worst import PairSpec, choose_pairs
from fsdpo_data.pairs.first_error import StepPairSpec
from fsdpo_data.pairs.statistics import pair_statistics, problem_counts
from fsdpo_data.stages.continuations import ContinuationOptions
from fsdpo_data.stages.step_pairs import BasePairStage, StepPairStage
from fsdpo_data.steps.rewards import AGGREGATES

#: Panels of the options that belong to one style.
_FULL, _STEPS = "Whole solutions", "Single steps"


@dataclass(frozen=True)
class PairStage(BasePairStage):
    """Adds the ``pairs`` config to a dataset with step rewards."""

    pair_spec: PairSpec

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset that has no rewards or gives no pair."""
        super().check(source, manifest)
        files = manifest.config_paths(source, "solutions")
        chosen = (
            choose_pairs(scan_parquet([file]), self.pair_spec).select(pl.len()) for file in files
        )
        if not any(count.collect().item() for count in chosen):
            raise InputError(_why_none(scan_parquet(files), source, self.pair_spec))

    def run(self, draft: DatasetDraft) -> None:
        """Write one file of pairs per file of solutions."""
        draft.add_pairs(partial(pair_table, spec=self.pair_spec))
        files = draft.current_files("solutions")
        counts = pair_statistics(draft.current_files("pairs"), files, self.pair_spec.aggregate)
        if not counts["pairs"]:
            raise InputError(_why_none(scan_parquet(files), draft.parent_root, self.pair_spec))
        draft.set_pair_stats(PairStats.model_validate(counts))


def _why_none(solutions: pl.LazyFrame, name: Path, spec: PairSpec) -> str:
    counts = problem_counts(solutions)
    limit = f", or lower `min_margin={spec.min_margin}`" if spec.min_margin is not None else ""
    alone = ", or rank by reward alone (`require_outcome=False`)"
    other = alone if spec.require_outcome else ""
    return (
        f"{name}: none of {counts['problems']} problems gives a pair. {counts['too_easy']} have no "
        f"incorrect solution, {counts['too_hard']} have no correct one. Sample more solutions, or "
        f"problems nearer to what the model can do{limit}{other}."
    )


def pair_table(file: Path, spec: PairSpec) -> pa.Table:
    """Return the rows of ``pairs`` that one file of solutions gives."""
    solutions = scan_parquet([file])
    told = solutions.with_row_index("row").select(
        "row",
        "problem_id",
        "prompt",
        id="solution_id",
        text=pl.col("completions").list.join(""),
        steps="completions",
        rewards="step_rewards",
    )
    rows = choose_pairs(solutions, spec).rename(
        {"chosen": "chosen_row", "rejected": "rejected_row"}
    )
    rows = rows.with_row_index("order")
    for side in ("chosen", "rejected"):
        columns = {name: f"{side}_{name}" for name in ("id", "steps", "rewards")}
        named = told.rename({**columns, "text": side})
        rows = rows.join(
            named if side == "chosen" else named.drop("problem_id", "prompt"),
            left_on=f"{side}_row",
            right_on="row",
        )
    schema = arrow_schema("pairs")
    return rows.sort("order").collect().select(schema.names).to_arrow().cast(schema)


@dataclass(frozen=True, kw_only=True)
class PairOptions(ContinuationOptions):
    """Join solutions, or single steps, to preference pairs by their rewards.

    With `--style step-dpo` the steps before the first error of an incorrect solution are continued
    anew, and the error meets the step of a continuation that ends correct. How it is continued is
    as for `fsdpo-data label`.

    Attributes:
        style: Whole solutions (`full`), or the first error against a right step (`step-dpo`).
        max_pairs: Pairs per problem: the widest margins, or the lowest rewards, first.
        top: Solutions on each side (the paper's T).
        aggregate: Step rewards to one reward.
        require_outcome: Best correct against worst incorrect; else best against worst.
        min_margin: Reward of the chosen less that of the rejected, at least.
        threshold: A step with a lower reward is an error.
        continuations: Continuations of what comes before an error.
    """

    style: Literal["full", "step-dpo"] = "full"
    max_pairs: Annotated[int | None, Option(min=1)] = None
    top: Annotated[int, Option(min=1, panel=_FULL)] = 4
    aggregate: Annotated[str, Option(panel=_FULL, choices=AGGREGATES)] = "mean"
    require_outcome: Annotated[bool, Option(panel=_FULL)] = True
    min_margin: Annotated[float | None, Option(min=-1, max=1, panel=_FULL)] = None
    threshold: Annotated[float, Option(exclusive_min=0, max=1, panel=_STEPS)] = 0.5
    continuations: Annotated[int, Option(min=1, panel=_STEPS)] = 8

    def stage(self) -> PairStage | StepPairStage:
        """Return the stage of the style; options of the other one are refused."""
        styles, declared = {_FULL: "full", _STEPS: "step-dpo"}, declared_fields(PairOptions)
        for each in fields(self):
            style = styles.get(declared[each.name][1].panel, self.style)
            if style != self.style and getattr(self, each.name) != each.default:
                raise self.field_error(each.name, f"it goes with `style={style}`.")
        if self.style == "step-dpo":
            choice = StepPairSpec(self.threshold, self.max_pairs)
            return StepPairStage(
                choice, self.continuation_sampler(self.continuations), self.workers
            )
        chosen = {each.name: getattr(self, each.name) for each in fields(PairSpec)}
        return PairStage(PairSpec(**chosen))
