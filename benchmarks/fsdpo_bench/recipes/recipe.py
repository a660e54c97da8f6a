"""Recipes: rows of the paper's tables as command lines, with their measured cost.

Recipes contain only command lines, so the benchmark package does not depend on training code.
"""

import os
import shlex
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fsdpo_bench.decode.decoders import parse_result_name
from fsdpo_bench.results.published import published_results
from fsdpo_bench.results.result_types import RESULTS_FILE, read_results
from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.core.input_files import read_json
from fsdpo_data.core.workers import run_child
from fsdpo_data.dataset.run import MANIFEST_FILE


@dataclass(frozen=True, slots=True)
class RecipeStage:
    """One command of a recipe."""

    name: str  #: Name of the stage.
    purpose: str  #: Purpose of the stage, and differences from the paper.
    command: str  #: The command line.
    done_file: str  #: File that exists after the stage; empty for a stage that always runs.
    gpus: int  #: Number of GPUs; 0 for a stage on the CPU.

    @property
    def argv(self) -> list[str]:
        """The arguments of the command line, split as in a shell."""
        return shlex.split(self.command)

    def plan_dict(self) -> dict[str, Any]:
        """Return the command with its measured cost, as JSON values."""
        cost = measured_cost(self)
        return {
            "name": self.name,
            "purpose": self.purpose,
            "command": self.command,
            "done_file": self.done_file,
            "gpus": self.gpus,
            "spent": cost and cost._asdict(),
        }


@dataclass(frozen=True, slots=True)
class Recipe:
    """A row of the paper's tables as commands."""

    name: str  #: Name of the recipe.
    title: str  #: Title in the list of recipes.
    about: str  #: Description of the recipe.
    backbone: str  #: Model of the row in the paper's tables; empty for other recipes.
    method: str  #: Training method of the row in the paper's tables; empty for other recipes.
    stages: tuple[RecipeStage, ...]  #: The stages in order.
    file: Path  #: File of the recipe.

    @property
    def expected(self) -> str:
        """The paper's greedy results for the row, in words."""
        results = [
            f"{result.task} {result.value}"
            for result in published_results()
            if (result.backbone, result.method) == (self.backbone, self.method)
            and result.table != "prm"
            and result.task != "average"
        ]
        return ", ".join(results)

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


class _RecordedCost(NamedTuple):
    """The cost in a manifest or in results."""

    tokens: float | None  #: Processed tokens; None if unknown.
    seconds: float  #: Seconds of computation.


class StageCost(NamedTuple):
    """The measured cost of a stage."""

    tokens: float | None  #: Processed tokens; None if unknown.
    gpu_hours: float  #: Hours times GPUs; a stage on the CPU counts as one.


def measured_cost(stage: RecipeStage) -> StageCost | None:
    """Return the cost of a stage from its manifest or results; None if they do not record it.

    A manifest includes the cost of the input dataset, which is subtracted.
    """
    total = _read_cost(Path(stage.done_file))
    if total is None:
        return None
    input_manifest = "/".join([*stage.argv[2:3], "manifest.json"])
    input_cost = _read_cost(Path(input_manifest)) or _RecordedCost(0, 0.0)
    tokens = None
    if total.tokens is not None and input_cost.tokens is not None:
        tokens = total.tokens - input_cost.tokens
    return StageCost(tokens, (total.seconds - input_cost.seconds) * max(1, stage.gpus) / 3600)


def _read_cost(file: Path) -> _RecordedCost | None:
    """Return the cost in a manifest or in results; decoders with common samples count once."""
    if file.name not in (MANIFEST_FILE, RESULTS_FILE) or not file.is_file():
        return None
    if file.name == MANIFEST_FILE:
        cost = read_json(file)["cost"]
        return _RecordedCost(cost["tokens"], cost["seconds"])
    costs_by_decoder = read_results(file).cost
    # Decoders that choose share their samples. The slowest includes all samples.
    setups = {name: parse_result_name(name) for name in costs_by_decoder}
    sample_names = [
        name for name, setup in setups.items() if setup and setup.decoder.choose is not None
    ]
    costs = [cost for name, cost in costs_by_decoder.items() if name not in sample_names]
    sample_costs = [costs_by_decoder[name] for name in sample_names]
    costs += sorted(sample_costs, key=lambda cost: cost.seconds)[-1:]
    tokens = [cost.tokens for cost in costs if isinstance(cost.tokens, int | float)]
    return _RecordedCost(
        tokens=int(sum(tokens)) if len(tokens) == len(costs) else None,
        seconds=sum(cost.seconds for cost in costs),
    )


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


def _with_this_python(command: Sequence[str]) -> list[str]:
    """Return a command whose `python` is the running one; some systems have only `python3`."""
    program, *arguments = command
    return [sys.executable if program == "python" else program, *arguments]


def run_stages(stages: Sequence[RecipeStage], print_line: Callable[[str], None]) -> None:
    """Run the incomplete stages in order.

    Raises:
        InputError: if the program of a stage is not installed.
        FsdpoError: if a stage fails.
    """
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
