"""Step labels: Monte-Carlo estimates from continuations of each step, or the votes of a judge.

:mod:`fsdpo_data.stages.first_error` finds the first error with fewer continuations.

A Monte-Carlo label is the fraction of N continuations from a step that reach the gold answer. A
finished solution needs no continuation: its outcome is the label of the last step, with N=1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from fsdpo_cards.render import format_percent
from pydantic import Field

from fsdpo_data.core.entities import GRADED_OUTCOMES, Solution
from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.core.failures import FailurePolicy
from fsdpo_data.core.job_shard import JobShard
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.options import NotWith, OnlyWith, Option
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import AnyRecord, Manifest, read_manifest
from fsdpo_data.dataset.plots import count_tenths
from fsdpo_data.dataset.schema import replace_column, scan_rows
from fsdpo_data.dataset.stage import DatasetDraft, Stage, StageOptions
from fsdpo_data.dataset.stage_records import (
    SAMPLE_STAGE,
    SELECTED_ROWS,
    SampleRecord,
)
from fsdpo_data.dataset.stage_registry import (
    NEW_DATASET,
    STAGES,
    Distribution,
    Row,
    StageEntry,
)
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.dataset.summary import divide
from fsdpo_data.engines.options import FailureOptions, Shard, Workers
from fsdpo_data.engines.scorers.critiques import critique_sampling, get_judge_format
from fsdpo_data.engines.weights import resolve_judge
from fsdpo_data.stages.continuations import (
    ROLLOUTS_FOLDER,
    ContinuationGrader,
    ContinuationOptions,
    ContinuationSampler,
    PrefixKey,
    SolutionPrefix,
    check_continuations,
    count_correct,
    list_step_prefixes,
    make_continuation_sampler,
    resolve_continuation_sampler,
    step_prefixes,
)
from fsdpo_data.stages.first_error import FirstErrorStage, StepCount
from fsdpo_data.stages.judge_steps import JudgeStage, judge_rows
from fsdpo_data.stages.label_records import (
    LABEL_STAGE,
    JudgeCounts,
    LabelRecord,
    LabelSettings,
    RolloutCounts,
)
from fsdpo_data.stages.verdicts import restore_outcome_labels

_JUDGE_PANEL = "Judge"


@dataclass(frozen=True)
class LabelStage(Stage):
    """Writes the column ``rollouts``: counts (n, n_correct) for each step of graded solutions."""

    name = LABEL_STAGE
    writes = ("rollouts",)

    #: Samples the continuations; its ``n`` is N in the module docstring.
    continuation_sampler: ContinuationSampler
    workers: int | None = None  #: Processes that grade; None for one per available core.

    @property
    def failure_policy(self) -> FailurePolicy:
        """When the stage stops because of prefixes that the engine refuses."""
        return self.continuation_sampler.failure_policy

    def options(self) -> LabelSettings:
        """Return the model that continues and its sampling parameters."""
        return LabelSettings(continuations=self.continuation_sampler.settings)

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset without labelled solutions of two steps, or that cannot be continued."""
        check_continuations(source, manifest)
        n_steps = pl.col("completions").list.len()
        solutions = scan_rows("solutions", manifest.config_paths(source, "solutions"))
        solutions = solutions.filter(pl.col("outcome").is_in(GRADED_OUTCOMES) & (n_steps > 1))
        if not collect_rows(solutions.select(pl.len())).item():
            raise InputError(
                f"{source} has no graded solution of two steps or more, so there is nothing to "
                "continue. This dataset can only have outcome labels."
            )

    def run_shard(self, draft: DatasetDraft, shard: JobShard) -> None:
        """Sample the continuations of one shard of the prefixes."""
        list_prefixes = partial(list_step_prefixes, draft.parent_files("solutions"))
        with self.continuation_sampler.sample_continuations(
            draft, ROLLOUTS_FOLDER, list_prefixes, shard, on_new_records=draft.discard_solutions
        ):
            pass  # entering the context samples

    def run(self, draft: DatasetDraft) -> AnyRecord:
        """Sample the missing continuations, then write the counts and their statistics."""
        list_prefixes = partial(list_step_prefixes, draft.parent_files("solutions"))
        sampler = self.continuation_sampler
        with sampler.sample_continuations(
            draft, ROLLOUTS_FOLDER, list_prefixes, on_new_records=draft.discard_solutions
        ) as run:
            with sampler.open_grader(draft, run, self.workers) as grade_continuations:
                add_counts = partial(add_rollouts, grade_continuations)
                draft.rewrite_config("solutions", phase="count", transform=add_counts)
            counts = RolloutCounts(
                prefixes=len(run.line_spans),
                failed=len(sampler.open_failures(run)),
            )
            return self.make_record(counts, sampler.measure_cost(run))


def add_rollouts(grade_continuations: ContinuationGrader, table: pa.Table) -> pa.Table:
    """Return the solutions of a file with the counts (n, n_correct) of their steps."""
    table = restore_outcome_labels(table)
    solutions = [Solution.from_row(row) for row in table.to_pylist()]
    prefixes: dict[PrefixKey, SolutionPrefix] = {}
    for solution in solutions:
        if solution.labels is not None:
            for step_prefix in step_prefixes(solution.prompt, solution.completions):
                prefix = SolutionPrefix(step_prefix.id, solution.problem_id, solution.prompt)
                prefixes[prefix.key] = prefix
    graded_prefixes = grade_continuations(list(prefixes.values()))
    counts = {
        key: count_correct(continuations)
        for key, continuations in zip(prefixes, graded_prefixes, strict=True)
    }
    rollouts = [_step_counts(solution, counts) for solution in solutions]
    return replace_column(table, "rollouts", rollouts)


def _step_counts(
    solution: Solution, counts: Mapping[PrefixKey, StepCount]
) -> list[StepCount] | None:
    """Return the counts of a solution's steps; None unless every step has graded continuations."""
    if solution.labels is None:
        # An earlier stage may have left counts of a judge, which reads ungraded solutions, too.
        return None
    prefixes = step_prefixes(solution.prompt, solution.completions)
    step_counts = [counts[solution.problem_id, prefix.id] for prefix in prefixes]
    # Labels of only some of the steps would mislead, so the solution gets none.
    if not all(count["n"] for count in step_counts):
        return None
    last_count: StepCount = {"n": 1, "n_correct": int(solution.outcome == "correct")}
    return [*step_counts, last_count] if solution.completions else []


def format_rollout_cost(manifest: Manifest) -> str:
    """Return a sentence on the cost of Monte-Carlo labels, for the terminal; empty for a judge."""
    record = manifest.get(LABEL_STAGE, LabelRecord)
    rollouts = record.counts
    if not isinstance(rollouts, RolloutCounts):
        return ""
    n = record.options.continuations.sampling.n
    n_continuations = rollouts.prefixes * n
    tokens = record.cost.tokens
    cost = "an unknown number of tokens"
    if tokens is not None:
        cost = f"{tokens:,} tokens"
        sampling_tokens = _sampling_tokens(manifest)
        if sampling_tokens is not None:
            ratio = tokens / max(1, sampling_tokens)
            cost += f", {ratio:.1f} times the tokens of sampling the solutions"
    saved = ""
    if rollouts.saved_continuations is not None:
        total = n_continuations + rollouts.saved_continuations
        share = rollouts.saved_continuations / max(1, total)
        saved = (
            f"; labels of all steps would need {total:,} continuations, so the search saved "
            f"{rollouts.saved_continuations:,} ({share:.1%})"
        )
    return (
        f"N={n}: {n_continuations:,} continuations of {rollouts.prefixes:,} prefixes, "
        f"{cost}{saved}; outcome labels need no tokens"
    )


def _sampling_tokens(manifest: Manifest) -> int | float | None:
    """Return the tokens of sampling the solutions of a dataset; None if they are unknown.

    The cost in the manifest of a selection is that of all solutions, also of those left out.
    """
    if manifest.is_written(SELECTED_ROWS):
        return None
    return manifest.get(SAMPLE_STAGE, SampleRecord).cost.tokens


class LabelOptions(FailureOptions, StageOptions, ContinuationOptions):
    r"""Label steps: sample continuations from each step and count correct answers, or ask a judge.

    Outcome labels are already in the dataset and cost nothing. Monte-Carlo labels sample N
    continuations of every step of every solution. A judge reads each solution and names its first
    wrong step. Sampling options that you do not set come from the dataset, or from the judge's
    format.

    A binary search needs fewer continuations (OmegaPRM, Luo et al. 2024). It continues at most
    ⌈log₂ K⌉ prefixes of a wrong solution of K steps, and none of a correct one. A prefix is right
    if one of its N continuations is correct. The search assumes that a solution never recovers from
    an error.

    Examples:
        Monte-Carlo labels:

            fsdpo-data label runs/demo --rollouts 8 --out runs/labelled

            fsdpo-data label runs/qwen --model ./qwen-sft --rollouts 8 --out runs/mc \
              --engine vllm

        The first error by binary search:

            fsdpo-data label runs/demo --rollouts 8 --search first-error \
              --out runs/searched

        Labels by a judge:

            fsdpo-data label runs/demo --judge Qwen/QwQ-32B --votes 8 --engine vllm \
              --out runs/judged

        Consensus filtering, which keeps the solutions on which both kinds of labels
        agree:

            fsdpo-data label runs/labelled --judge qwq --engine openai \
              --base-url http://HOST:8000/v1 --api chat --consensus --out runs/agreed

        Labels from recorded rollouts:

            fsdpo-data label runs/demo --rollouts 4 --engine replay \
              --replay runs/labelled/rollouts/completions.jsonl --out runs/four
    """

    rollouts: Annotated[int | None, Field(ge=1)] = None
    """Continuations per step (N), at least 2."""
    search: Literal["first-error"] | None = None
    """``first-error`` searches the first wrong step instead of continuing every step. Each step is
    then right or wrong, and steps that were not continued have null ``rollouts``.
    """
    judge: str | None = None
    """Model that names the first wrong step, instead of continuations."""
    judge_format: Annotated[str, Option(panel=_JUDGE_PANEL), OnlyWith("judge")] = "processbench"
    """Prompt of the judge and the way its critiques are read: `processbench`, `thinkprm`, or your
    own TOML file. Critiques that cannot be read are counted.
    """
    votes: Annotated[int, Field(ge=1), Option(panel=_JUDGE_PANEL), OnlyWith("judge")] = 1
    """Critiques per solution. A step label is the fraction of critiques without an error up to that
    step.
    """
    consensus: Annotated[bool, Option(panel=_JUDGE_PANEL), OnlyWith("judge")] = False
    """Keep labels only where the judge's majority and the dataset's Monte-Carlo labels name the
    same first wrong step. In a tie, the vote that was sampled first counts. These labels are
    binary: each step is right or wrong.
    """
    workers: Annotated[Workers, NotWith("judge")] = None
    """Number of processes that grade continuations."""
    shard: Shard = None
    """Label one of N parts of the dataset; `fsdpo-data merge` joins the parts."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        has_judge = self.judge is not None
        has_rollouts = self.rollouts is not None
        if not has_judge and not has_rollouts:
            raise self.field_error(
                "rollouts",
                "a source of labels is missing. Give `rollouts` for Monte-Carlo labels, or `judge` "
                "for labels by a judge.",
            )
        if has_judge and has_rollouts:
            raise self.field_error(
                "rollouts", "labels come from `rollouts` or from a `judge`. Remove one of them."
            )
        if self.rollouts == 1:
            raise self.field_error(
                "rollouts",
                "expected at least 2. The labels for 1 are the outcome labels, which `fsdpo-data "
                "build` has already written.",
            )
        if has_judge and self.model is not None:
            raise self.field_error("model", "the `judge` is the only model. Remove `model`.")
        if has_judge and self.search is not None:
            raise self.field_error(
                "search", "a search needs `rollouts`; a `judge` names the first error itself."
            )


def make_label_stage(options: LabelOptions) -> LabelStage | FirstErrorStage | JudgeStage:
    """Resolve the model that continues, or the judge."""
    if options.judge is not None:
        return _make_judge_stage(options, options.judge)
    assert options.rollouts is not None
    sampler = resolve_continuation_sampler(
        Path(options.data), options, options.rollouts, options.failure_policy
    )
    if options.search is not None:
        return FirstErrorStage(sampler, options.workers)
    return LabelStage(sampler, options.workers)


def _make_judge_stage(options: LabelOptions, judge: str) -> JudgeStage:
    """Resolve the judge, and return its stage."""
    critique_format = get_judge_format(options.judge_format)
    server = options.engine.server
    if critique_format.reply_prefix and server.api == "chat":
        raise server.field_error(
            "api",
            f"the format {critique_format.name} writes the start of the reply, which chat "
            "servers do not support. Use `api=completions`.",
        )
    try:
        model = resolve_judge(judge, options.engine, critique_format.template)
    except FsdpoError as error:
        raise error.for_field("judge") from None
    sampling = critique_sampling(critique_format, model.template, options.votes).replace(
        **options.sampling_overrides
    )
    sampler = make_continuation_sampler(
        model, sampling, options.engine, "judge", options.failure_policy
    )
    return JudgeStage(
        critique_sampler=sampler,
        critique_format=critique_format,
        template=model.template,
        consensus=_consensus_settings(options),
    )


def _consensus_settings(options: LabelOptions) -> LabelSettings | None:
    """Return the settings of the Monte-Carlo labels to agree with; None without ``consensus``."""
    if not options.consensus:
        return None
    record = read_manifest(Path(options.data)).find(LABEL_STAGE, LabelRecord)
    if record is None or not isinstance(record.counts, RolloutCounts):
        raise options.field_error(
            "consensus",
            f"{options.data} has no Monte-Carlo labels. Make them first with `rollouts=8`.",
        )
    return record.options


def _summarize(record: LabelRecord, statistics: DatasetStatistics) -> list[Row]:
    """Return the rows of the summary."""
    counts = record.counts
    if isinstance(counts, JudgeCounts):
        return judge_rows(record.options, counts)
    n = record.options.continuations.sampling.n
    labels = statistics.step_labels
    disagreements = format_percent(divide(labels.disagreements, labels.steps))
    if record.options.search is not None:
        row = (
            "first error",
            f"searched in {counts.searched_solutions:,} wrong solutions "
            f"({counts.undecided_solutions:,} without a result) with {n} per probed step; "
            f"{counts.prefixes * n:,} continuations, "
            f"{counts.saved_continuations:,} saved; "
            f"{disagreements} of the labels differ from the outcome label",
        )
    else:
        row = (
            "rollouts",
            f"{n} per step before the last, which has the outcome; {labels.steps:,} steps, "
            f"of which {disagreements} differ from the outcome label at a threshold of 0.5",
        )
    return [row]


def _plot(record: LabelRecord, statistics: DatasetStatistics) -> dict[str, Distribution]:
    """Return the distribution of the counts of steps."""
    counts = pl.col("rollouts").struct
    rollouts = statistics.scan_solutions().select("rollouts").explode("rollouts").drop_nulls()
    title = "Steps by fraction of correct continuations"
    if isinstance(record.counts, JudgeCounts):
        title = "Steps by fraction of votes without an error so far"
    return {title: count_tenths(rollouts, counts.field("n_correct") / counts.field("n"))}


STAGES.register(
    StageEntry(
        name=LABEL_STAGE,
        record=LabelRecord,
        failed_items="prompts without continuations",
        summarize=_summarize,
        plot=_plot,
        options_class=LabelOptions,
        make_stage=make_label_stage,
        card_row="| labels | {% if judge is defined %}"
        "judge: {{ continuations.sampling.n }} votes on each solution{% elif search is defined %}"
        "first error by binary search: {{ continuations.sampling.n }} continuations of each probed "
        "step"
        "{% else %}"
        "Monte-Carlo: {{ continuations.sampling.n }} continuations of each step{% endif %} by "
        "{{ continuations.model.name | code }} at {{ continuations.model.revision | code }}, "
        "temperature {{ continuations.sampling.temperature }} |",
        describe_result=format_rollout_cost,
        next_command=("fsdpo-train", "prm", NEW_DATASET, "out=NEW"),
    )
)
