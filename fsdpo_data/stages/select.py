"""Select problems and solutions of a dataset: filters, duplicates, samples and splits.

The filters run in the order of the options. All choices are seeded and depend on content, so the
same options give the same bytes. :mod:`fsdpo_data.selection` holds the index of the rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from fsdpo_data.core.command_line import given_values
from fsdpo_data.core.entities import GRADED_OUTCOMES
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import to_json_values
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.options import NotWith, OnlyWith, Option
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.core.progress import NO_PROGRESS, Progress
from fsdpo_data.core.sampling import Seed
from fsdpo_data.dataset.manifest import AnyRecord, Manifest, StageCounts, StageRecord, read_manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.dataset.stage import DatasetDraft, Stage, StageOptions
from fsdpo_data.dataset.stage_records import (
    SELECTED_ROWS,
)
from fsdpo_data.dataset.stage_registry import STAGES, Row, StageEntry
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.dataset.summary import format_mean
from fsdpo_data.dataset.validate import explain_damage
from fsdpo_data.engines.options import Resume
from fsdpo_data.selection.expressions import parse_condition
from fsdpo_data.selection.funnel import Funnel, RowStats, SelectionSize
from fsdpo_data.selection.number_range import NumberRange, parse_range
from fsdpo_data.selection.overlaps import (
    BenchmarkRef,
    find_overlaps,
    read_sealed_problems,
    update_overlaps,
)
from fsdpo_data.selection.random_order import REST, assign_splits
from fsdpo_data.selection.row_index import IndexRequest, build_index
from fsdpo_data.selection.write_rows import PROBLEMS_PATH, write_problems, write_solutions
from fsdpo_data.steps.rewards import AGGREGATES, reward_tolerance

SELECT_STAGE = "select"  #: Name of the stage.
_PROBLEMS_PANEL = "Problems"
_SOLUTIONS_PANEL = "Solutions"
_SAMPLE_PANEL = "Samples and splits"
_SPLIT_NAME = re.compile(r"[a-z][a-z0-9_]*")
#: Options with a range of numbers.
_RANGES = ("pass_rate", "reward")


class SelectOptions(StageOptions):
    r"""Select problems and solutions, sample them, and split them by problem.

    The filters run in the order of this list. A problem without a selected solution is dropped. A
    range LOW..HIGH includes its bounds, and one bound may be missing. Imported pairs are copied if
    both of their solutions are selected. Other pairs are not copied, because they depend on all
    solutions of a problem; run `pair` again.

    Examples:
        Problems that are neither too easy nor too hard, with at most four correct and
        four incorrect solutions:

            fsdpo-data select runs/a --pass-rate 0.2..0.8 --per-problem 8 --unique \
              --out runs/chosen

        Only the statistics:

            fsdpo-data select runs/a --mixed --unique --dry-run

        A sample with a validation set, without problems of a benchmark:

            fsdpo-data select runs/a --sample 1000 --split validation=0.1 \
              --against bench/math500.jsonl --out runs/small

        Conditions on columns and on the metadata:

            fsdpo-data select runs/a --filter "n_tokens < 800 AND answer <> '0'" \
              --problem-filter "subject <> 'Geometry' AND correct >= 2" --out runs/b
    """

    out: Annotated[str | Path, Option(in_digest=False, default_text="", dataset="output")] = ""
    """Directory of the new dataset."""
    resume: Annotated[Resume, NotWith("dry_run")] = False
    """Continue the run in `out`."""
    dry_run: Annotated[bool, Option(in_digest=False)] = False
    """Print the statistics before and after, and write nothing."""
    pass_rate: Annotated[str | None, Option(metavar="LOW..HIGH", panel=_PROBLEMS_PANEL)] = None
    """Range of the fraction of correct solutions among the graded solutions of a problem. A problem
    without a graded solution has no pass rate, and is dropped.
    """
    mixed: Annotated[bool, Option(panel=_PROBLEMS_PANEL)] = False
    """Only problems with correct and incorrect solutions."""
    problem_filter: Annotated[str | None, Option(metavar="SQL", panel=_PROBLEMS_PANEL)] = None
    """Condition on problems in SQL, such as `source = 'gsm8k'`. It may use the columns of problems,
    the fields of the metadata, and counts such as correct and graded.
    """
    unique_questions: Annotated[bool, Option(panel=_PROBLEMS_PANEL)] = False
    """Only the first of several problems with the same question."""
    against: Annotated[Sequence[str], Option(metavar="[NAME=]FILE", panel=_PROBLEMS_PANEL)] = ()
    """File or directory of a benchmark, as for `decontaminate`. Problems that overlap with its
    questions are dropped. May be given several times.
    """
    reward: Annotated[str | None, Option(metavar="LOW..HIGH", panel=_SOLUTIONS_PANEL)] = None
    """Range of the aggregated step rewards."""
    aggregate: Annotated[
        str | None,
        Option(choices=AGGREGATES, panel=_SOLUTIONS_PANEL, default_text="by reward model"),
        OnlyWith("reward"),
    ] = None
    """Aggregate of the step rewards. The default is `mean`, and `last` for rewards of an outcome
    reward model.
    """
    filter: Annotated[str | None, Option(metavar="SQL", panel=_SOLUTIONS_PANEL)] = None
    """Condition on solutions in SQL, such as `outcome = 'correct' AND n_tokens < 800`."""
    unique: Annotated[bool, Option(panel=_SOLUTIONS_PANEL)] = False
    """Only the first of several solutions of a problem with the same text."""
    per_problem: Annotated[int | None, Field(ge=1), Option(panel=_SAMPLE_PANEL)] = None
    """Most solutions of a problem, a random choice."""
    stratify: Annotated[
        Literal["outcome", "answer", "none"], Option(panel=_SAMPLE_PANEL), OnlyWith("per_problem")
    ] = "outcome"
    """Balance of this choice. ``outcome`` takes as many correct as incorrect solutions, if the
    problem has them. `answer` takes as many solutions of each answer. `none` does not balance.
    """
    sample: Annotated[float | None, Field(gt=0), Option(panel=_SAMPLE_PANEL)] = None
    """Number of problems in a random sample; a number below 1 is a fraction."""
    split: Annotated[Sequence[str], Option(metavar="NAME=FRACTION", panel=_SAMPLE_PANEL)] = ()
    """Name and fraction of a split by problem; may be given several times. Each split becomes the
    dataset OUT-NAME, and `out` gets all other problems.
    """
    seed: Annotated[Seed, OnlyWith("per_problem", "sample", "split")] = 0
    """Seed of the random choices."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        if Path(self.out) == Path() and not self.dry_run:
            raise self.field_error(
                "out", "expected the directory of the new dataset. Give one, or use `dry_run`."
            )
        for name in _RANGES:
            self.range_of(name)
        for name in ("filter", "problem_filter"):
            if getattr(self, name) is not None:
                parse_condition(getattr(self, name), f"{type(self).__name__}.{name}")
        if self.sample is not None and self.sample >= 1 and self.sample != int(self.sample):
            raise self.field_error("sample", "expected a whole number, or a fraction below 1.")
        self.split_fractions()

    def range_of(self, name: str) -> NumberRange | None:
        """Return the range of an option; None if it is not given."""
        text = getattr(self, name)
        return None if text is None else parse_range(text, f"{type(self).__name__}.{name}")

    def split_fractions(self) -> dict[str, float]:
        """Return the fraction of the problems of each split.

        Raises:
            InputError: if a name or a fraction is not valid, or the fractions add up to 1 or more.
        """
        fractions: dict[str, float] = {}
        for text in self.split:
            name, _, number = text.partition("=")
            try:
                fraction = float(number)
            except ValueError:
                fraction = 0.0
            if not _SPLIT_NAME.fullmatch(name) or not 0 < fraction < 1:
                raise self.field_error(
                    "split", "expected NAME=FRACTION, such as `validation=0.1`, between 0 and 1."
                )
            if name == REST or name in fractions:
                raise self.field_error(
                    "split", f"{name!r} is given twice, or is the name of all other problems."
                )
            fractions[name] = fraction
        if sum(fractions.values()) >= 1:
            raise self.field_error("split", "expected fractions that add up to less than 1.")
        return fractions


class SelectionCounts(StageCounts):
    """The rows of a selection from a dataset."""

    available: RowStats  #: The rows of the parent dataset.
    selected: RowStats  #: The selected rows; with splits, of all splits together.
    filters: dict[str, SelectionSize]  #: The dropped rows of each filter, in order.
    #: Problems without a graded solution, which have no pass rate; None without that filter.
    without_pass_rate: int | None = None
    splits: dict[str, SelectionSize] | None = None  #: Size of each split; None without splits.


#: The entry of a selection.
SelectRecord: TypeAlias = StageRecord[dict[str, Any], SelectionCounts]


@dataclass(frozen=True)
class Selection:
    """The chosen rows of a dataset, and the statistics of the choice."""

    problems: pl.DataFrame  #: The chosen problems, with the column ``split``.
    solutions: pl.DataFrame  #: The chosen solutions, with the column ``split``.
    counts: SelectionCounts  #: The rows before and after the choice.
    options: dict[str, Any]  #: The options that determine the rows, and the seed.
    #: The options of the selections that the dataset went through, the first one first.
    earlier: list[dict[str, Any]]


def choose_rows(options: SelectOptions, progress: Progress = NO_PROGRESS) -> Selection:
    """Return the rows that the options select, without writing them.

    Raises:
        InputError: if the dataset lacks what an option needs, or no row is left.
        SchemaError: if the dataset is damaged.
    """
    root = Path(options.data)
    manifest = read_manifest(root)
    _check_content(options, manifest)
    with explain_damage(root):
        aggregate = options.aggregate or manifest.pair_aggregate
        request = IndexRequest(
            aggregate=aggregate if options.reward is not None else "",
            condition=_condition(options, "filter"),
            problem_condition=_condition(options, "problem_filter"),
            has_order=options.per_problem is not None,
            has_answer=options.stratify == "answer",
        )
        all_problems, all_solutions = build_index(root, manifest, request, progress)
        funnel = Funnel(all_problems, all_solutions)
        available = funnel.rows()
        funnel.drop_unsolved_problems()
        without_pass_rate = None
        if options.pass_rate is not None:
            without_pass_rate = int((all_problems["graded"] == 0).sum())
        against = _filter_problems(options, funnel)
        _filter_solutions(options, funnel)
    if options.per_problem is not None:
        funnel.keep_per_problem(options.per_problem, options.stratify, options.seed)
    if options.sample is not None:
        funnel.keep_sample(options.sample, options.seed)
    _check_not_empty(funnel)
    earlier = _earlier_selections(manifest)
    splits = assign_splits(
        funnel.problems["question_key"],
        options.split_fractions(),
        options.seed,
        n_earlier=sum("part" in selection for selection in earlier),
    )
    problems = funnel.problems.with_columns(split=splits)
    solutions = funnel.solutions.join(
        problems.select("problem", "split"), on="problem", how="left", maintain_order="left"
    )
    counts = SelectionCounts(
        available=available,
        selected=funnel.rows(),
        filters=funnel.dropped,
        without_pass_rate=without_pass_rate,
        splits=_split_stats(options, problems, solutions),
    )
    return Selection(problems, solutions, counts, _row_options(options, against), earlier)


def _earlier_selections(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the options of the selections that a dataset went through, the first one first."""
    record = manifest.find(SELECT_STAGE, SelectRecord)
    if record is None:
        return []
    options = dict(record.options)
    return [*options.pop("earlier", []), options]


def _condition(options: SelectOptions, name: str) -> Any:
    text = getattr(options, name)
    return None if text is None else parse_condition(text, f"SelectOptions.{name}")


def _check_content(options: SelectOptions, manifest: Manifest) -> None:
    """Refuse options whose values no row of the dataset has."""
    if options.reward is not None and not manifest.is_written("step_rewards"):
        raise options.field_error(
            "reward", f"{options.data} has no step rewards. Run `fsdpo-data score` first."
        )
    needs_outcome = [name for name in ("pass_rate", "mixed") if getattr(options, name)]
    if not needs_outcome:
        return
    files = manifest.config_paths(Path(options.data), "solutions")
    is_graded = pl.col("outcome").is_in(GRADED_OUTCOMES).any()
    if not collect_rows(scan_rows("solutions", files).select(is_graded)).item():
        raise options.field_error(
            needs_outcome[0],
            f"{options.data} has no graded solution, so no problem has a pass rate.",
        )


def _filter_problems(options: SelectOptions, funnel: Funnel) -> list[BenchmarkRef]:
    """Apply the filters of problems; return the benchmarks."""
    pass_rate = options.range_of("pass_rate")
    if pass_rate is not None:
        funnel.keep_problems("pass_rate", pass_rate.contains("pass_rate"))
    if options.mixed:
        funnel.keep_problems("mixed", (pl.col("correct") > 0) & (pl.col("incorrect") > 0))
    if options.problem_filter is not None:
        funnel.keep_problems("problem_filter", pl.col("fits"))
    if options.unique_questions:
        funnel.keep_problems("unique_questions", pl.col("question_key").is_first_distinct())
    if not options.against:
        return []
    report = find_overlaps(read_sealed_problems(Path(options.data)), options.against)
    clean_ids = pl.Series([problem.id for problem in report.clean_problems], dtype=pl.String)
    funnel.keep_problems("against", pl.col("problem_id").is_in(clean_ids.implode()))
    return report.settings.benchmarks


def _filter_solutions(options: SelectOptions, funnel: Funnel) -> None:
    """Apply the filters of solutions."""
    reward = options.range_of("reward")
    if reward is not None:
        low, high = reward
        bounds = NumberRange(low - reward_tolerance(low), high + reward_tolerance(high))
        if funnel.solutions["reward"].null_count() == len(funnel.solutions):
            raise options.field_error("reward", "the rewards of all solutions are unknown.")
        funnel.keep_solutions("reward", bounds.contains("reward"))
    if options.filter is not None:
        funnel.keep_solutions("filter", pl.col("fits"))
    if options.unique:
        funnel.keep_solutions("unique", pl.struct("problem", "text").is_first_distinct())


def _check_not_empty(funnel: Funnel) -> None:
    """Raise an InputError with the counts of all filters if no solution is left."""
    if funnel.solutions.is_empty():
        lines = [
            f"  {name} dropped {size.problems:,} problems and {size.solutions:,} solutions"
            for name, size in funnel.dropped.items()
        ]
        raise InputError("no solution is left. Loosen one of the filters:\n" + "\n".join(lines))


def _split_stats(
    options: SelectOptions, problems: pl.DataFrame, solutions: pl.DataFrame
) -> dict[str, SelectionSize] | None:
    """Return the size of each split; None without splits.

    Raises:
        InputError: if a split is empty.
    """
    names = [*options.split_fractions()]
    if not names:
        return None
    stats = {}
    for name in (REST, *names):
        n_problems = problems.filter(pl.col("split") == name).height
        if not n_problems:
            raise options.field_error(
                "split",
                f"no problem is in the split {name!r}, because only {problems.height:,} problems "
                "are left. Choose another fraction or another `seed`.",
            )
        n_solutions = solutions.filter(pl.col("split") == name).height
        stats[name] = SelectionSize(problems=n_problems, solutions=n_solutions)
    return stats


def _row_options(options: SelectOptions, against: Sequence[BenchmarkRef]) -> dict[str, Any]:
    """Return the given options that determine the rows, and the seed."""
    values = given_values(options)
    for name in ("data", "out", "dry_run", "resume"):
        values.pop(name, None)
    if against:
        values["against"] = [benchmark.to_dict() for benchmark in against]
    if options.per_problem is not None:
        values["stratify"] = options.stratify
    return to_json_values({**values, "seed": options.seed})


@dataclass(frozen=True)
class SelectStage(Stage):
    """Writes the selected problems and solutions, or only one split."""

    name = SELECT_STAGE
    writes = (SELECTED_ROWS,)

    selection: Selection  #: The chosen rows.
    split: str = ""  #: The split that is written; empty without splits.

    def options(self) -> dict[str, Any]:
        """Return the options of the selection; ``part`` is the split that the dataset has.

        ``earlier`` has the same of the selections that the parent went through.
        """
        part = {"part": self.split} if self.split else {}
        earlier = self.selection.earlier
        options = {"options": self.selection.options, **part}
        return {**options, "earlier": earlier} if earlier else options

    def run(self, draft: DatasetDraft) -> AnyRecord:
        """Write the rows."""
        selection = self.selection
        problems = selection.problems
        solutions = selection.solutions
        if self.split:
            problems = problems.filter(pl.col("split") == self.split)
            solutions = solutions.filter(pl.col("split") == self.split)
        write_problems(draft.parent_files("problems"), problems, draft.root)
        text_digests = write_solutions(
            draft.parent_files("solutions"), solutions, draft.root, draft.progress
        )
        draft.files = {PROBLEMS_PATH: None, **text_digests}
        draft.update_pairs()
        update_overlaps(draft.manifest, problems.height)
        return self.make_record(selection.counts)


def make_select_stages(options: SelectOptions, progress: Progress) -> dict[Path, Stage]:
    """Choose the rows, and return the stage of each split, by directory."""
    selection = choose_rows(options, progress)
    out = Path(options.out)
    names = [*options.split_fractions()]
    stages: dict[Path, Stage] = {
        out.with_name(f"{out.name}-{name}"): SelectStage(selection, name) for name in names
    }
    stages[out] = SelectStage(selection, REST if names else "")
    return stages


def make_select_stage(options: SelectOptions) -> SelectStage:
    """Return the stage of a selection without splits, for pipelines."""
    return SelectStage(choose_rows(options))


def describe_plan(options: SelectOptions, progress: Progress) -> str:
    """Return the statistics of a selection, without writing the rows."""
    return format_selection(choose_rows(options, progress).counts)


def describe_selection(manifest: Manifest) -> str:
    """Return the statistics of a selection from its manifest."""
    return format_selection(manifest.get(SELECT_STAGE, SelectRecord).counts)


def format_selection(stats: SelectionCounts) -> str:
    """Return the dropped rows of each filter, and the statistics before and after, as lines."""
    lines = [
        f"{name.replace('_', ' ')}: dropped {size.problems:,} problems, "
        f"{size.solutions:,} solutions"
        for name, size in stats.filters.items()
    ]
    if stats.without_pass_rate:
        lines.append(
            f"{stats.without_pass_rate:,} problems have no graded solution, and no pass rate"
        )
    lines += ["", f"{'':<16}{'before':>12}{'after':>12}"]
    available, selected = (_row_values(rows) for rows in (stats.available, stats.selected))
    for name in dict.fromkeys([*available, *selected]):
        lines.append(f"{name:<16}{available.get(name, '0'):>12}{selected.get(name, '0'):>12}")
    for name, size in (stats.splits or {}).items():
        lines.append(f"split {name}: {size.problems:,} problems, {size.solutions:,} solutions")
    return "\n".join(lines).strip()


def _row_values(rows: RowStats) -> dict[str, str]:
    """Return the statistics of rows as texts, by name."""
    accuracy = rows.accuracy.value
    return {
        "problems": f"{rows.problems:,}",
        "mixed problems": f"{rows.mixed_problems:,}",
        "solutions": f"{rows.solutions:,}",
        "unique": f"{rows.unique_solutions:,}",
        **{outcome: f"{count:,}" for outcome, count in rows.outcomes.items()},
        "accuracy": "none" if accuracy is None else f"{accuracy:.1%}",
        "mean steps": _format_mean(rows.mean_steps),
        "mean tokens": _format_mean(rows.mean_tokens),
    }


def _format_mean(mean: float | None) -> str:
    return "unknown" if mean is None else f"{mean:,.1f}"


def _summarize(record: SelectRecord, statistics: DatasetStatistics) -> list[Row]:
    """Return the row of the summary."""
    available = record.counts.available
    text = (
        f"of {available.problems:,} problems and {available.solutions:,} solutions with an "
        f"accuracy of {format_mean(available.accuracy)}"
    )
    return [("selection", text)]


STAGES.register(
    StageEntry(
        name=SELECT_STAGE,
        options_class=SelectOptions,
        make_stage=make_select_stage,
        make_stages=make_select_stages,
        describe_plan=describe_plan,
        record=SelectRecord,
        summarize=_summarize,
        card_row="| selection | {% for choice in earlier | default([]) %}"
        "{{ choice.options | options }}"
        "{% if choice.part is defined %}; split {{ choice.part | code }}{% endif %}; then "
        "{% endfor %}"
        "{{ options | options }}"
        "{% if part is defined %}; split {{ part | code }}{% endif %} |",
        describe_result=describe_selection,
    )
)
