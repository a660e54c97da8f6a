"""Preference pairs of the best correct and the worst incorrect solutions of a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from fsdpo_cards.render import format_amount, format_percent
from pydantic import Field

from fsdpo_data.core.command_line import check_read_options, command_parameters
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.options import Group, Option
from fsdpo_data.core.parquet_files import collect_rows, count_rows
from fsdpo_data.dataset.benchmark_problems import AllowBenchmark, check_no_benchmark_problems
from fsdpo_data.dataset.manifest import AnyRecord, Manifest, read_manifest
from fsdpo_data.dataset.pair_rows import join_pair_sides
from fsdpo_data.dataset.plots import count_tenths
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.dataset.stage import DatasetDraft, StageOptions
from fsdpo_data.dataset.stage_records import PAIR_STAGE, PairRecord
from fsdpo_data.dataset.stage_registry import STAGES, Distribution, Row, StageEntry
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.dataset.summary import divide, join_counts
from fsdpo_data.engines.options import SamplerOptions
from fsdpo_data.pairs.best_worst import PAIR_PANEL, PairSpec, choose_pairs
from fsdpo_data.pairs.checks import ImportedPairSettings
from fsdpo_data.pairs.first_error import StepPairSettings
from fsdpo_data.pairs.statistics import PairStatistics, StepWeightStats, problem_counts
from fsdpo_data.stages.continuations import (
    ContinuationOptions,
    resolve_continuation_sampler,
)
from fsdpo_data.stages.step_pairs import BasePairStage, StepPairStage
from fsdpo_data.steps.rewards import AGGREGATES, aggregate_expr

#: Heading in ``--help`` of the options of Step-DPO pairs.
_STEP_DPO_PANEL = "Style step-dpo"
#: Difference between the mean weights of the last step on both sides that is worth a warning.
MAX_WEIGHT_DIFFERENCE = 0.1


@dataclass(frozen=True)
class PairStage(BasePairStage):
    """Adds the ``pairs`` config with pairs of complete solutions."""

    pair_spec: PairSpec  #: The rule that selects the pairs.

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset that has no rewards or gives no pair."""
        super().check(source, manifest)
        files = manifest.config_paths(source, "solutions")
        pair_counts = (
            choose_pairs(scan_rows("solutions", [file]), self.pair_spec).select(pl.len())
            for file in files
        )
        if not any(collect_rows(count).item() for count in pair_counts):
            raise InputError(
                _no_pairs_message(scan_rows("solutions", files), source, self.pair_spec)
            )

    def options(self) -> PairSpec:
        """Return everything that decides the pairs."""
        return self.pair_spec

    def run(self, draft: DatasetDraft) -> AnyRecord:
        """Write one file of pairs per file of solutions."""
        draft.add_pairs(partial(pair_table, spec=self.pair_spec))
        if not any(map(count_rows, draft.current_files("pairs"))):
            solutions = scan_rows("solutions", draft.current_files("solutions"))
            raise InputError(_no_pairs_message(solutions, draft.parent_root, self.pair_spec))
        return self.make_record()


def _no_pairs_message(solutions: pl.LazyFrame, source: Path, spec: PairSpec) -> str:
    """Return the error message for a dataset without any pair."""
    counts = problem_counts(solutions)
    is_truncated = pl.col("finish_reason") == "length"
    total, truncated = collect_rows(solutions.select(pl.len(), is_truncated.sum())).row(0)
    if truncated == total:
        return (
            f"{source}: {truncated} of {total} solutions are truncated, or end early after an "
            "import of step labels. Such solutions are in no pair, because a trainer would teach "
            "the model to stop there."
        )
    message = (
        f"{source}: none of {counts['problems']} problems gives a pair. {counts['too_easy']} have "
        f"no incorrect solution, {counts['too_hard']} have no correct one. Sample more solutions, "
        "or choose problems whose difficulty suits the model"
    )
    if spec.min_margin is not None:
        message += f", or lower `min_margin={spec.min_margin}`"
    if spec.require_outcome:
        message += ", or rank solutions by reward only (`require_outcome=False`)"
    return f"{message}."


def pair_table(file: Path, spec: PairSpec) -> pa.Table:
    """Return the rows of ``pairs`` from one file of solutions."""
    return join_pair_sides(file, choose_pairs(scan_rows("solutions", [file]), spec))


class StepPairOptions(ContinuationOptions):
    """Options of the style `step-dpo`, which continues the steps before an error."""

    # The model continues recorded prompts, so no chat template is applied.
    engine: Annotated[SamplerOptions, Group(without=("template_arg",))] = SamplerOptions()
    """Engine that runs the model."""
    threshold: Annotated[float, Field(gt=0, le=1), Option(panel=_STEP_DPO_PANEL)] = 0.5
    """Step reward below which a step is an error."""
    continuations: Annotated[int, Field(ge=1), Option(panel=_STEP_DPO_PANEL)] = 8
    """Continuations of the prefix before an error."""


class PairOptions(PairSpec, StageOptions):
    r"""Form preference pairs of solutions, or of single steps, by their rewards.

    With `--style step-dpo` the model continues the steps before the first error of an incorrect
    solution. The error is then paired with the step of a correct continuation. The sampling options
    are the same as for `fsdpo-data label`.

    Examples:
        Pair the 4 best correct with the 4 worst incorrect solutions, by mean reward:

            fsdpo-data pair runs/scored --out runs/pairs

        Pair by reward alone, with a minimum margin:

            fsdpo-data pair runs/scored --out runs/pairs --no-require-outcome --top 2 \
              --min-margin 0.1

        Pair the first step with a reward below 0.5 with a step whose continuation is
        correct:

            fsdpo-data pair runs/scored --out runs/steps --style step-dpo
    """

    style: Literal["full", "step-dpo"] = "full"
    """`full` pairs complete solutions; `step-dpo` pairs the first error with a right step."""
    allow_benchmark: AllowBenchmark = False
    """Form pairs of benchmark problems, too."""
    step_dpo: StepPairOptions = StepPairOptions()
    """Options of `style=step-dpo`."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        parameters = command_parameters(PairOptions).values()
        read_options = {
            "full": [item.name for item in parameters if item.option.panel == PAIR_PANEL],
            "step-dpo": [item.name for item in parameters if item.path[0] == "step_dpo"],
        }
        check_read_options(self, "style", [self.style], read_options)


def make_pair_stage(options: PairOptions) -> PairStage | StepPairStage:
    """Return the stage of the style; `step-dpo` resolves the model that continues."""
    if not options.allow_benchmark:
        root = Path(options.data)
        check_no_benchmark_problems(root, read_manifest(root))
    if options.style == "step-dpo":
        return _make_step_pair_stage(options, options.step_dpo)
    return PairStage(_pair_spec(options, read_manifest(Path(options.data))))


def _pair_spec(options: PairOptions, manifest: Manifest) -> PairSpec:
    """Return the options of the selection, in which the reward model may decide the aggregate."""
    values = {name: getattr(options, name) for name in PairSpec.model_fields}
    if "aggregate" not in options.model_fields_set:
        values["aggregate"] = manifest.pair_aggregate
    return PairSpec(**values)


def _make_step_pair_stage(options: PairOptions, step_dpo: StepPairOptions) -> StepPairStage:
    """Resolve the model that continues, and return the stage of the style ``step-dpo``."""
    sampler = resolve_continuation_sampler(Path(options.data), step_dpo, step_dpo.continuations)
    settings = StepPairSettings(
        style="step-dpo",
        threshold=step_dpo.threshold,
        max_pairs=options.max_pairs,
        allow_unclosed=options.allow_unclosed,
        continuations=sampler.settings,
    )
    return StepPairStage(sampler, settings, workers=step_dpo.workers)


def _summarize(record: PairRecord, statistics: DatasetStatistics) -> list[Row]:
    """Return the rows of the summary."""
    pairs = statistics.pairs
    settings = record.options
    if pairs is None:
        return []
    if isinstance(settings, StepPairSettings):
        return [*_differing_step_rows(pairs), *_resampling_rows(record, settings, pairs)]
    if isinstance(settings, ImportedPairSettings):
        return _differing_step_rows(pairs)
    rows = _solution_pair_rows(pairs)
    if pairs.step_weights:
        rows += _step_weight_rows(pairs.step_weights)
    return rows


def _differing_step_rows(counts: PairStatistics) -> list[Row]:
    """Return the rows of pairs whose sides have the same steps before the one that counts."""
    rows = [("pairs", f"{counts.pairs:,} of {counts.problems['used']:,} problems")]
    if counts.first_error is None:
        return rows
    length = counts.length
    return [
        *rows,
        (
            "first error",
            f"step {counts.first_error:.2f} on average; "
            f"{_number(length['chosen_characters'], '.1f')} characters (chosen) against "
            f"{_number(length['rejected_characters'], '.1f')} (rejected)",
        ),
    ]


def _resampling_rows(
    record: PairRecord, settings: StepPairSettings, counts: PairStatistics
) -> list[Row]:
    """Return the rows about the continuations of Step-DPO pairs."""
    # "incorrect" is the total; the other keys count the solutions that give no pair.
    left_out = {
        reason: count
        for reason, count in counts.solutions.items()
        if count and reason != "incorrect"
    }
    return [
        (
            "incorrect",
            f"{counts.solutions['incorrect']:,} solutions, of which "
            f"{join_counts(left_out) or 'none left out'}",
        ),
        (
            "resampled",
            f"{settings.continuations.sampling.n} continuations of "
            f"{record.counts.continued_prefixes:,} "
            f"prefixes, {format_amount(record.cost.tokens)} tokens",
        ),
    ]


def _solution_pair_rows(counts: PairStatistics) -> list[Row]:
    """Return the rows of pairs of complete solutions."""
    problems = counts.problems
    length = counts.length
    margin = counts.margin
    unit = counts.unit
    longer = divide(length["chosen_longer"] or 0, counts.pairs)
    shorter = divide(length["chosen_shorter"] or 0, counts.pairs)
    rows = [
        (
            "pairs",
            f"{counts.pairs:,} of {problems['used']:,} problems  "
            f"({problems['too_easy']:,} too easy, {problems['too_hard']:,} too hard)",
        )
    ]
    if margin is not None:
        mean, median, low, high = (
            _number(margin[key], ".3f") for key in ("mean", "median", "min", "max")
        )
        text = f"mean {mean}, median {median}, {low} to {high}; {margin['negative']:,} below zero"
        rows.append(("margins", text))
    return [
        *rows,
        (
            "chosen lengths",
            f"{_number(length[f'chosen_{unit}'], ',.1f')} {unit} in "
            f"{_number(length['chosen_steps'], '.1f')} steps (chosen) against "
            f"{_number(length[f'rejected_{unit}'], ',.1f')} {unit} in "
            f"{_number(length['rejected_steps'], '.1f')} steps (rejected)",
        ),
        (
            "chosen longer",
            f"{format_percent(longer)}, shorter {format_percent(shorter)}  (of {counts.pairs:,} "
            "pairs)",
        ),
    ]


def _number(value: float | None, style: str) -> str:
    """Return a number as text; a dash if all of its rows have no value, as in damaged files."""
    return "–" if value is None else format(value, style)


def _step_weight_rows(statistics: StepWeightStats) -> list[Row]:
    """Return the mean rewards and weights of the last steps of both sides."""
    rewards = [_join_numbers(side.reward) for side in (statistics.chosen, statistics.rejected)]
    weights = [_join_numbers(side.weight) for side in (statistics.chosen, statistics.rejected)]
    return [
        (
            "last steps",
            f"mean rewards {rewards[0]} (chosen) and {rewards[1]} (rejected), the last step first",
        ),
        (
            "step weights",
            f"mean K·α at γ {statistics.gamma:g} {weights[0]} (chosen) and {weights[1]} (rejected)",
        ),
    ]


def _join_numbers(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.2f}" for number in numbers)


def _warn(record: PairRecord, statistics: DatasetStatistics) -> list[str]:
    """Return a sentence if the weight of the last step depends on the side of the pair."""
    step_weights = statistics.pairs and statistics.pairs.step_weights
    if not step_weights:
        return []
    chosen = step_weights.chosen.weight[0]
    rejected = step_weights.rejected.weight[0]
    if abs(chosen - rejected) <= MAX_WEIGHT_DIFFERENCE:
        return []
    return [
        f"the mean weight K·α of the last step is {chosen:.2f} in chosen and {rejected:.2f} in "
        f"rejected solutions (γ {step_weights.gamma:g}): the loss may teach the policy to postpone "
        "or to hurry the answer; train with a smaller γ, and look at the lengths of its solutions"
    ]


def _plot(record: PairRecord, statistics: DatasetStatistics) -> dict[str, Distribution]:
    """Return the distribution of the margins of rewards that are probabilities."""
    is_probability = statistics.manifest.rewards_are_probabilities
    if not isinstance(record.options, PairSpec) or not is_probability:
        return {}
    aggregate = record.options.aggregate
    if aggregate not in AGGREGATES:  # the plug-in that defines the aggregate is absent
        return {}
    margin = aggregate_expr("chosen_rewards", aggregate) - aggregate_expr(
        "rejected_rewards", aggregate
    )
    pairs = scan_rows("pairs", statistics.files("pairs"))
    title = f"Pairs by margin ({aggregate} reward of chosen minus rejected)"
    return {title: count_tenths(pairs, margin)}


STAGES.register(
    StageEntry(
        name=PAIR_STAGE,
        record=PairRecord,
        summarize=_summarize,
        warn=_warn,
        plot=_plot,
        options_class=PairOptions,
        make_stage=make_pair_stage,
        card_row='| pairs | {% if style is defined and style == "step-dpo" %}the first step of an '
        "incorrect solution with a reward below {{ threshold }}, and the corresponding step "
        "of a correct continuation: {{ continuations.sampling.n }} continuations by "
        "{{ continuations.model.name | code }} at {{ continuations.model.revision | code }}, "
        "temperature {{ continuations.sampling.temperature }}"
        '{% elif style is defined and style == "imported" %}the chosen and the rejected step of '
        "each imported row, after the same steps"
        '{% else %}{{ top }} best {{ "correct" if require_outcome else "by reward" }} × {{ top }} '
        'worst {{ "incorrect" if require_outcome else "by reward" }}, by the {{ aggregate }} of '
        "the step rewards{% endif %} |",
    )
)
