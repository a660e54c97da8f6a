"""Recipes: rows of the paper's tables as command lines, with their measured cost.

Recipes contain only command lines, so the benchmark package does not depend on training code.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from fsdpo_bench.metrics.result_records import Results, read_results
from fsdpo_bench.report.published import PublishedResult
from fsdpo_bench.run_folder import FORMAT_VERSION, RESULTS_FILE, read_version
from fsdpo_data.core.cost import NO_COST, Cost
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.input_files import read_json
from fsdpo_data.dataset.run_directory import MANIFEST_FILE


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """The row of the paper's tables that a stage measures."""

    backbone: str  #: Name of the model before preference training; empty for no row.
    method: str  #: The training method; empty for models of other publishers.
    prm: str = ""  #: The reward model of the decoders that choose by one.

    def includes(self, result: PublishedResult) -> bool:
        """Tell whether a published number is about this row."""
        is_same_model = (result.backbone, result.method) == (self.backbone, self.method)
        return is_same_model and result.prm in ("", self.prm)


@dataclass(frozen=True, slots=True)
class RecipeStage:
    """One command of a recipe."""

    name: str  #: Name of the stage.
    purpose: str  #: Purpose of the stage, and differences from the paper.
    command: str  #: The command line.
    done_file: str  #: File that exists after the stage; empty for a stage that always runs.
    gpus: int  #: Number of GPUs; 0 for a stage on the CPU.
    samples: str = ""  #: Number of solutions that the stage samples, in words; empty for none.
    pairs: str = ""  #: Number of pairs that the stage forms, in words; empty for none.
    measures: MeasuredRow | None = None  #: The row of the paper's tables; None for other stages.
    minutes: float = 0  #: Time limit; 0 for none.
    #: Amount of work, in a unit that all stages with the same program share, such as solutions. It
    #: gives the estimated time; 0 for a stage that takes no time worth an estimate.
    work: float = 0

    @property
    def argv(self) -> list[str]:
        """The arguments of the command line, split as in a shell."""
        return shlex.split(self.command)

    @property
    def program(self) -> tuple[str, ...]:
        """The program with its subcommand, such as ``fsdpo-train prm``."""
        return tuple(self.argv[:2])

    @property
    def outputs(self) -> set[str]:
        """The paths that the stage writes."""
        argv = self.argv
        out = argv[argv.index("--out") + 1] if "--out" in argv else ""
        return {out, self.done_file} - {""}

    def reads(self, other: "RecipeStage") -> bool:
        """Whether an argument of the command is an output of another stage."""
        return not other.outputs.isdisjoint(set(self.argv) - self.outputs)

    @property
    def has_results(self) -> bool:
        """Whether the stage has written results, of any version."""
        file = Path(self.done_file)
        return file.name == RESULTS_FILE and file.is_file()

    def read_results(self) -> Results | None:
        """Return the results of the stage; None before it ran, or if they have another version."""
        file = Path(self.done_file)
        is_readable = self.has_results and read_version(file) == FORMAT_VERSION
        return read_results(file) if is_readable else None

    def plan_dict(self) -> dict[str, Any]:
        """Return the command with its measured cost, as JSON values."""
        cost = measured_cost(self)
        return {
            "name": self.name,
            "purpose": self.purpose,
            "command": self.command,
            "done_file": self.done_file,
            "gpus": self.gpus,
            "samples": self.samples,
            "pairs": self.pairs,
            "spent": cost and cost._asdict(),
        }


@dataclass(frozen=True, slots=True)
class Recipe:
    """A row of the paper's tables as commands."""

    name: str  #: Name of the recipe.
    title: str  #: Title in the list of recipes.
    about: str  #: Description of the recipe.
    stages: tuple[RecipeStage, ...]  #: The stages in order.
    file: Path  #: File of the recipe.
    #: Environment variables of the commands, in addition to those of the process.
    environment: dict[str, str] = field(default_factory=dict)
    #: CSV file that gets the time and memory of each stage; None for none.
    stages_file: Path | None = None

    @property
    def gpus(self) -> int:
        """The number of GPUs that the recipe needs."""
        return max((stage.gpus for stage in self.stages), default=0)

    def without_counts(self) -> Self:
        """Return the recipe without numbers of samples and pairs, and without rows of the paper.

        A small run has other numbers, and its results are not the paper's.
        """
        stages = [replace(stage, samples="", pairs="", measures=None) for stage in self.stages]
        return replace(self, stages=tuple(stages))

    def plan_dict(self, stages: Sequence[RecipeStage]) -> dict[str, Any]:
        """Return the commands and measured costs of stages, as JSON values."""
        return {
            "recipe": self.name,
            "title": self.title,
            "stages": [stage.plan_dict() for stage in stages],
        }

    def select_stages(self, names: Sequence[str]) -> list[RecipeStage]:
        """Return the named stages in the order of the recipe; all stages without names.

        Raises:
            InputError: if there is no stage with one of the names.
        """
        stage_names = [stage.name for stage in self.stages]
        for name in set(names) - set(stage_names):
            raise InputError(
                f"expected one of {', '.join(stage_names)}.", field="stage", value=name
            )
        return [stage for stage in self.stages if not names or stage.name in names]


class StageCost(NamedTuple):
    """The measured cost of a stage."""

    tokens: float | None  #: Processed tokens; None if unknown.
    #: Hours times GPUs; a stage on the CPU counts as one. None if unknown.
    gpu_hours: float | None


def measured_cost(stage: RecipeStage) -> StageCost | None:
    """Return the cost of a stage from its manifest or results; None if they do not record it.

    A manifest includes the cost of the input dataset, which is subtracted.
    """
    results = stage.read_results()
    if results is not None:
        total = sum((dataset.cost for dataset in results.run.datasets.values()), NO_COST)
        return _stage_cost(total, NO_COST, stage.gpus)
    total_cost = _read_manifest_cost(Path(stage.done_file))
    if total_cost is None:
        return None
    input_manifest = "/".join([*stage.argv[2:3], MANIFEST_FILE])
    input_cost = _read_manifest_cost(Path(input_manifest)) or NO_COST
    return _stage_cost(total_cost, input_cost, stage.gpus)


def _read_manifest_cost(file: Path) -> Cost | None:
    """Return the cost in a manifest; None for other files, and before the stage ran."""
    if file.name != MANIFEST_FILE or not file.is_file():
        return None
    return Cost.model_validate(read_json(file)["cost"])


def _stage_cost(total: Cost, input_cost: Cost, gpus: int) -> StageCost:
    """Return the cost of a stage without the cost of its input; an unknown number stays unknown."""
    tokens = gpu_hours = None
    if total.tokens is not None and input_cost.tokens is not None:
        tokens = total.tokens - input_cost.tokens
    if total.seconds is not None and input_cost.seconds is not None:
        gpu_hours = (total.seconds - input_cost.seconds) * max(1, gpus) / 3600
    return StageCost(tokens, gpu_hours)


def merge_stages(stages_by_recipe: Iterable[Sequence[RecipeStage]]) -> Iterator[RecipeStage]:
    """Yield the stages of several recipes, each output once."""
    done_files = set()
    for stages in stages_by_recipe:
        for stage in stages:
            if not stage.done_file or stage.done_file not in done_files:
                done_files.add(stage.done_file)
                yield stage
