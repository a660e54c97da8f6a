"""Mix several sealed datasets into one, without the duplicates across them.

A problem of several datasets is one problem of the mixture, with the solutions of all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import digest, to_json_values
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.progress import Progress
from fsdpo_data.core.sampling import UNKNOWN, Seed
from fsdpo_data.dataset.manifest import Manifest, make_manifest, read_manifest
from fsdpo_data.dataset.manifest_sections import (
    CostStats,
    FilterStats,
    JudgeStats,
    MixedPartStats,
    RolloutStats,
    StepLabelStats,
    plugin_entries,
)
from fsdpo_data.dataset.run import MANIFEST_FILE, lock_run_directory
from fsdpo_data.dataset.schema import replace_column
from fsdpo_data.dataset.stage import seal_dataset
from fsdpo_data.dataset.validate import check_files, explain_damage
from fsdpo_data.engines.options import Resume
from fsdpo_data.models.prompts import RECORDED_TEMPLATE
from fsdpo_data.selection.funnel import Funnel, row_stats
from fsdpo_data.selection.row_index import (
    IndexRequest,
    SourceDataset,
    add_counts,
    build_index,
)
from fsdpo_data.selection.tally import tally_index
from fsdpo_data.selection.write_rows import write_problems, write_solutions
from fsdpo_data.stages.label_columns import (
    count_labels,
    label_stats,
    restore_outcome_labels,
)
from fsdpo_data.stages.score import reward_statistics
from fsdpo_data.stages.select import count_step_labels

#: Columns that `drop` removes, with the section of the spec that determines their values.
_SECTION_BY_COLUMN = {"step_rewards": "score", "rollouts": "label"}
#: Fields of the spec that must be equal in all datasets, because outcomes would not be comparable.
_EQUAL_FIELDS = ("grader", "labels", "thinking")


@dataclass(frozen=True, kw_only=True)
class MixOptions(Options):
    """Mix several datasets into one new dataset, without the duplicates across them.

    A problem of several datasets occurs once, with the solutions of all of them. If an earlier
    dataset has a question with another gold answer, the problem of the later dataset is dropped. A
    solution whose text an earlier dataset has is dropped too. Pairs are not copied; run `pair`
    again.

    Attributes:
        datasets: Sealed datasets, in order of preference. PATH:WEIGHT takes a random sample of the
            problems, and WEIGHT is their fraction. Without a weight, all problems are taken.
        out: Directory of the new dataset.
        resume: Continue the run in `out`.
        deduplicate: Drop the duplicates across the datasets.
        drop: Column to leave out, if the datasets have it from different models or not at all; may
            be given several times.
        seed: Seed of the samples.

    Examples:
        fsdpo-data mix runs/gsm8k runs/math:0.3 runs/olympiad --out runs/mixture

        fsdpo-data mix runs/scored runs/unscored --drop step_rewards --out runs/both
    """

    datasets: Annotated[
        Sequence[str | Path], Option(positional=True, metavar="DATA[:WEIGHT]...")
    ] = field(kw_only=False)
    out: Annotated[str | Path, Option(in_digest=False)]
    resume: Resume = False
    deduplicate: bool = True
    drop: Sequence[Literal["step_rewards", "rollouts"]] = ()
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.datasets) < 2:
            raise self.field_error(
                "datasets", "expected two or more. `fsdpo-data select` samples one dataset."
            )
        self.parts()

    def parts(self) -> list[_Part]:
        """Return the path and the weight of each dataset.

        Raises:
            InputError: if a weight is not a fraction, or a dataset is given twice.
        """
        parts = [self._parse_part(str(text)) for text in self.datasets]
        paths = [part.path.resolve() for part in parts]
        if len(set(paths)) < len(paths):
            raise self.field_error("datasets", "a dataset is given twice. Remove one of them.")
        if Path(self.out).resolve() in paths:
            raise self.field_error("out", "a sealed dataset is never changed. Choose a new one.")
        return parts

    def _parse_part(self, text: str) -> _Part:
        path, separator, weight_text = text.rpartition(":")
        if not separator or Path(text).exists():
            return _Part(Path(text), 1)
        try:
            weight = float(weight_text)
        except ValueError:
            weight = 0.0
        if not 0 < weight <= 1:
            raise InputError(
                "expected PATH:WEIGHT with a weight above 0 and at most 1, such as runs/b:0.3. No "
                "problem is repeated.",
                field="MixOptions.datasets",
                value=text,
            )
        return _Part(Path(path), weight)


class _Part(NamedTuple):
    """A dataset of a mixture."""

    path: Path  #: Its directory.
    weight: float  #: Fraction of its problems in the sample.


@dataclass(frozen=True)
class Mixture:
    """The rows of a mixture."""

    files: Sequence[Path]  #: The files of solutions of all datasets, in order.
    problems: pl.DataFrame  #: The problems of the mixture.
    solutions: pl.DataFrame  #: The solutions of the mixture, with the numbers of ``problems``.
    parts: Sequence[MixedPartStats]  #: The statistics of each dataset.


def mix_datasets(options: MixOptions, progress: Progress) -> tuple[Path, Manifest]:
    """Write and seal a mixture; return its directory and manifest.

    Raises:
        InputError: if the datasets do not fit together, or no solution is left.
        RunMismatchError: if ``out`` contains another run.
        SchemaError: if a directory is not a sealed dataset, or was changed after the seal.
        StoreError: if the disk fails.
    """
    out = Path(options.out)
    parts = options.parts()
    sources = [SourceDataset(part.path, read_manifest(part.path)) for part in parts]
    section = {
        "datasets": [
            {"dataset": source.manifest.digest, "weight": part.weight}
            for part, source in zip(parts, sources, strict=True)
        ],
        "deduplicate": options.deduplicate,
        "drop": sorted(set(options.drop)),
        "seed": options.seed,
    }
    manifests = [source.manifest for source in sources]
    if len({manifest.digest for manifest in manifests}) < len(manifests):
        raise options.field_error("datasets", "two datasets have the same content. Remove one.")
    _check_compatible(options, manifests)
    is_sealed = (out / MANIFEST_FILE).exists()
    with ExitStack() as stack:
        if not is_sealed:
            for source in sources:
                check_files(source.root, source.manifest.files)
                stack.enter_context(explain_damage(source.root))
            mixture = _choose_rows(options, sources, progress)
        stack.enter_context(lock_run_directory(out, {"mix": section}, resume=options.resume))
        if not is_sealed:
            _write_mixture(options, out, sources, mixture, section, progress)
        return out, read_manifest(out)


def _write_mixture(
    options: MixOptions,
    out: Path,
    sources: Sequence[SourceDataset],
    mixture: Mixture,
    section: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Write the files of a mixture, and seal them."""
    manifests = [source.manifest for source in sources]
    remove_columns = _column_remover(options.drop)
    files = [write_problems(sources, mixture.problems, out)]
    files += write_solutions(
        mixture.files, mixture.solutions, out, progress, transform=remove_columns
    )
    quarantined: Counter[str] = Counter()
    for manifest in manifests:
        quarantined.update(manifest.quarantined)
    mixed_manifest = make_manifest(
        _mixed_spec(manifests, mixture, section),
        [file.entry(out) for file in files],
        tally_index(mixture.solutions),
        quarantined,
    )
    solution_files = [out / file.path for file in files[1:]]
    _complete_manifest(mixed_manifest, manifests, mixture, solution_files)
    progress.phase("validate", 1)
    seal_dataset(out, mixed_manifest)
    progress.advance(1)


def _check_compatible(options: MixOptions, manifests: Sequence[Manifest]) -> None:
    """Refuse datasets whose outcomes, labels or rewards mean different things."""
    first = manifests[0].spec
    for text, manifest in zip(options.datasets[1:], manifests[1:], strict=True):
        for name in _EQUAL_FIELDS:
            value = getattr(manifest.spec, name)
            if value != getattr(first, name):
                raise InputError(
                    f"the {name} is {value!r}, and {getattr(first, name)!r} in "
                    f"{options.datasets[0]}. Grade one of them again with `fsdpo-data grade`; "
                    "imported step labels are mixed only with imported step labels.",
                    field="MixOptions.datasets",
                    value=text,
                )
    for column, key in _SECTION_BY_COLUMN.items():
        sections = [_section(manifest, key) for manifest in manifests]
        if column not in options.drop and any(section != sections[0] for section in sections):
            raise options.field_error(
                "datasets",
                f"the datasets have {column} from different models, or not all have them. Make "
                f"them equal with `fsdpo-data {key}`, or leave the column out with "
                f"`drop={column}`.",
            )


def _section(manifest: Manifest, key: str) -> dict[str, Any] | None:
    section = getattr(manifest.spec, key)
    return None if section is None else section.to_dict()


def _choose_rows(
    options: MixOptions, sources: Sequence[SourceDataset], progress: Progress
) -> Mixture:
    """Sample each dataset, and drop the duplicates of earlier datasets."""
    index = build_index(sources, IndexRequest(), progress)
    part_of_problem = index.problems.select("problem", "part")
    all_solutions = index.solutions.join(
        part_of_problem, on="problem", how="left", maintain_order="left"
    )
    funnels = []
    available_rows = []
    for number, part in enumerate(options.parts()):
        funnel = Funnel(
            index.problems.filter(pl.col("part") == number),
            all_solutions.filter(pl.col("part") == number),
        )
        available_rows.append(funnel.rows())
        if part.weight < 1:
            funnel.keep_sample(part.weight, options.seed)
        funnels.append(funnel)
    problems = pl.concat([funnel.problems for funnel in funnels])
    solutions = pl.concat([funnel.solutions for funnel in funnels])
    problems, solutions = _merge_problems(problems, solutions, options.deduplicate)
    if solutions.is_empty():
        raise options.field_error("datasets", "no solution is left. Choose larger weights.")
    parts = []
    for number, (part, funnel, rows) in enumerate(
        zip(options.parts(), funnels, available_rows, strict=True)
    ):
        part_solutions = solutions.filter(pl.col("part") == number)
        part_problems = part_solutions.select("problem").unique()
        duplicates = FilterStats(
            name="duplicates",
            # A problem of an earlier dataset counts there too, so it is not dropped.
            problems=funnel.problems.height - part_problems.height,
            solutions=funnel.solutions.height - part_solutions.height,
        )
        manifest = sources[number].manifest
        parts.append(
            MixedPartStats(
                dataset=manifest.digest,
                model=manifest.spec.model,
                weight=part.weight,
                available=rows,
                selected=row_stats(part_problems, part_solutions),
                filters=[*funnel.counts, duplicates],
            )
        )
    return Mixture(index.files, add_counts(problems, solutions), solutions, parts)


def _merge_problems(
    problems: pl.DataFrame, solutions: pl.DataFrame, deduplicate: bool
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Merge the problems of several datasets, and drop duplicates of earlier datasets.

    Returns:
        The problems, and the solutions with the numbers of these problems.
    """
    numbers = problems.select("problem", merged=pl.col("problem").min().over("problem_id"))
    solutions = solutions.join(numbers, on="problem", how="left", maintain_order="left")
    solutions = solutions.with_columns(problem=pl.col("merged")).drop("merged")
    problems = problems.filter(pl.col("problem_id").is_first_distinct())
    if deduplicate:
        # Two problems of one dataset with the same question stay; its owner kept both.
        is_earliest = pl.col("part") == pl.col("part").min().over("question_key")
        problems = problems.filter(is_earliest)
        solutions = solutions.join(
            problems.select("problem"), on="problem", how="semi", maintain_order="left"
        )
        is_earliest = pl.col("part") == pl.col("part").min().over("problem", "text")
        solutions = solutions.filter(is_earliest)
    solutions = solutions.filter(pl.struct("problem", "id").is_first_distinct())
    problems = problems.join(
        solutions.select("problem").unique(), on="problem", how="semi", maintain_order="left"
    )
    return problems, solutions


def _column_remover(names: Sequence[str]) -> Callable[[pa.Table], pa.Table]:
    """Return a function that sets columns of solutions to null."""

    def remove(table: pa.Table) -> pa.Table:
        for name in names:
            table = replace_column(table, name, [None] * table.num_rows)
        # Labels of a search belong to its rollouts.
        return restore_outcome_labels(table) if "rollouts" in names else table

    return remove


def _common(values: Sequence[Any], other: Any) -> Any:
    """Return the value if all values are equal, else ``other``."""
    return values[0] if all(value == values[0] for value in values) else other


def _mixed_spec(
    manifests: Sequence[Manifest], mixture: Mixture, section: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the spec of a mixture: the common values, and ``unknown`` where they differ."""
    specs = [manifest.spec.to_dict() for manifest in manifests]
    samplings = [{**spec["sampling"], "n": 0} for spec in specs]
    sampling = {
        name: _common([sampling[name] for sampling in samplings], [] if name == "stop" else UNKNOWN)
        for name in samplings[0]
    }
    sampling["n"] = mixture.solutions.group_by("problem").len()["len"].max()
    ids = mixture.problems["problem_id"].to_list()
    engine = {"name": UNKNOWN, "dtype": UNKNOWN}
    spec: dict[str, Any] = {
        "model": _common(
            [spec["model"] for spec in specs],
            {"name": UNKNOWN, "revision": digest([spec["model"] for spec in specs])},
        ),
        "sources": list(
            {digest(source): source for spec in specs for source in spec["sources"]}.values()
        ),
        "problems": {"count": len(ids), "digest": digest(ids)},
        "template": _common(
            [spec["template"] for spec in specs], RECORDED_TEMPLATE.manifest_entry()
        ),
        "sampling": sampling,
        "engine": _common([spec["engine"] for spec in specs], engine),
        "segmenter": _common([spec["segmenter"] for spec in specs], UNKNOWN),
        "grader": specs[0]["grader"],
        "labels": specs[0]["labels"],
    }
    if "thinking" in specs[0]:
        spec["thinking"] = specs[0]["thinking"]
    for column, key in _SECTION_BY_COLUMN.items():
        if column not in section["drop"] and key in specs[0]:
            spec[key] = specs[0][key]
    if step_labels := [spec["step_labels"] for spec in specs if "step_labels" in spec]:
        spec["step_labels"] = _common(step_labels, _join_step_labels(step_labels))
    spec["mix"] = section
    values: dict[str, Any] = to_json_values(spec)
    return values


def _join_step_labels(sections: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return one section for the step labels of several formats."""
    by_format = {section["format"]: section for section in sections}
    return {
        "format": " + ".join(by_format),
        **{
            name: "; ".join(f"{key}: {section[name]}" for key, section in by_format.items())
            for name in ("meaning", "drops")
        },
    }


def _complete_manifest(
    manifest: Manifest, manifests: Sequence[Manifest], mixture: Mixture, files: list[Path]
) -> None:
    """Add the sections of the mixture, of rewards and of labels to its manifest."""
    costs = [item.cost for item in manifests]
    has_tokens = all(isinstance(cost.tokens, int) for cost in costs)
    manifest.parent = digest([item.digest for item in manifests])
    manifest.grader_rules = {}  # the rows do not have the rule that decided their outcome
    manifest.mixture = list(mixture.parts)
    manifest.cost = CostStats(
        tokens=sum(int(cost.tokens) for cost in costs) if has_tokens else UNKNOWN,
        prm_calls=sum(cost.prm_calls for cost in costs),
        seconds=round(sum(cost.seconds for cost in costs), 3),
    )
    plugins = [entry for item in manifests for entry in item.plugins or ()]
    manifest.plugins = plugin_entries(plugins)
    if manifest.spec.score is not None:
        manifest.rewards = reward_statistics(files)
    if manifest.spec.label is not None:
        rollouts = [item.rollouts.to_dict() for item in manifests if item.rollouts]
        judges = [item.judge.to_dict() for item in manifests if item.judge]
        if rollouts:
            is_searched = manifest.spec.labels_are_searched
            values = _sum_values(rollouts) | label_stats(files, is_searched=is_searched)
            manifest.rollouts = RolloutStats.model_validate(values)
            if is_searched:
                manifest.labels = count_labels(files)
        if judges:
            manifest.judge = JudgeStats.model_validate(_sum_values(judges))
    if manifest.spec.step_labels is not None:
        right, wrong = count_step_labels(files)
        manifest.step_labels = StepLabelStats(
            rows=sum(item.step_labels.rows for item in manifests if item.step_labels),
            steps=right + wrong,
            right=right,
            wrong=wrong,
        )


def _sum_values(sections: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up the costs and counts of sections with the same number ``n`` of continuations."""
    total: dict[str, Any] = {}
    for name in sections[0]:
        values = [section.get(name) for section in sections]
        if name == "n" or None in values:
            total[name] = values[0]
        elif UNKNOWN in values:
            total[name] = UNKNOWN
        else:
            total[name] = sum(values)
    return total


def describe_parts(names: Sequence[str | Path], manifest: Manifest) -> str:
    """Return the rows of each dataset of a mixture as lines, for the terminal."""
    lines = []
    for name, part in zip(names, manifest.mixture or (), strict=True):
        share = part.selected.solutions / manifest.rows.solutions
        lines.append(
            f"{name}: {part.selected.problems:,} of {part.available.problems:,} problems, "
            f"{part.selected.solutions:,} of {part.available.solutions:,} solutions "
            f"({share:.1%} of the mixture)"
        )
        lines += [
            f"  {item.name}: dropped {item.problems:,} problems, {item.solutions:,} solutions"
            for item in part.filters
        ]
    return "\n".join(lines)
