"""Recipes: rows of the paper's tables as command lines, with their measured cost.

Recipes contain only command lines, so the benchmark package does not depend on training code.
"""

import os
import shlex
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from fsdpo_bench.metrics.result_records import Results, read_results
from fsdpo_bench.report.published import PublishedResult
from fsdpo_bench.run_folder import FORMAT_VERSION, RESULTS_FILE, read_version
from fsdpo_data.core.cost import NO_COST, Cost
from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.core.input_files import read_json
from fsdpo_data.core.workers import run_child
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

    @property
    def argv(self) -> list[str]:
        """The arguments of the command line, split as in a shell."""
        return shlex.split(self.command)

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


def pending_command(stage: RecipeStage) -> list[str] | None:
    """Return the command that completes a stage; None if it is complete.

    A stage with an existing output directory gets ``--resume``, except scripts, which start again.
    """
    if stage.done_file and Path(stage.done_file).exists():
        return None
    argv = stage.argv
    if argv[0] == "python" and argv[1].endswith(".py"):
        return argv
    is_started = "--out" in argv and Path(argv[argv.index("--out") + 1]).is_dir()
    return [*argv, "--resume"] if is_started else argv


def merge_stages(stages_by_recipe: Iterable[Sequence[RecipeStage]]) -> Iterator[RecipeStage]:
    """Yield the stages of several recipes, each output once."""
    done_files = set()
    for stages in stages_by_recipe:
        for stage in stages:
            if not stage.done_file or stage.done_file not in done_files:
                done_files.add(stage.done_file)
                yield stage


def _with_this_python(command: Sequence[str]) -> list[str]:
    """Return a command whose `python` is the running one; some systems have only `python3`."""
    program, *arguments = command
    return [sys.executable if program == "python" else program, *arguments]


def run_stages(stages: Sequence[RecipeStage], print_line: Callable[[str], None]) -> None:
    """Run the incomplete stages in order.

    Raises:
        InputError: if the program of a stage is not installed, or results in the output of a stage
            are not of this release.
        FsdpoError: if a stage fails.
    """
    for stage in stages:
        if stage.has_results:
            read_results(Path(stage.done_file))  # refuses other versions before hours of work
    # The programs are in the folder of this Python, which need not be in PATH.
    path = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))
    for stage in stages:
        command = pending_command(stage)
        if command is None:
            print_line(f"{stage.name}: done ({stage.done_file})")
            continue
        print_line(f"{stage.name}: {shlex.join(command)}")
        try:
            code = run_child(_with_this_python(command), env={**os.environ, "PATH": path})
        except FileNotFoundError:
            raise InputError(
                f"stage {stage.name}: the program {command[0]!r} is not installed. Install "
                "fsdpo; torchrun needs its extra `train`."
            ) from None
        if code:
            raise FsdpoError(
                f"stage {stage.name} ended with exit code {code}. Fix the error above, and "
                "repeat the command to continue."
            )
