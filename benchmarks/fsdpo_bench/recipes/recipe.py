"""Recipes: a row of the paper's tables as command lines, with what they cost.

A recipe knows nothing but command lines, so that measuring never depends on training code.
"""

import json
import os
import shlex
import subprocess
import sysconfig
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from fsdpo_bench.results.published import published_results, shipped_path
from fsdpo_data.core.errors import FsdpoError, InputError, suggest_names
from fsdpo_data.core.toml_tables import TomlTable

WorkKind = Literal["generate", "score", "train", "pairs", "none"]

UTILISATION = 0.4  #: Share of a GPU's FLOP per second that training and scoring reach.


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a plan is made for; fields as in ``gpus.toml``."""

    title: str
    peak: float
    bandwidth: float
    source: str
    decode_tokens_per_second: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second that it writes with a model of 7 billion parameters."""
        known = GPUS["a100"]
        return (
            self.decode_tokens_per_second
            or known.decode_tokens_per_second * self.bandwidth / known.bandwidth
        )

    @property
    def assumptions(self) -> str:
        """What estimates for it rest on."""
        how = "" if self.decode_tokens_per_second else ", the A100's by memory bandwidth"
        return (
            f"GPU-hours are of one {self.title}. Generation: tokens written / "
            f"({self.tokens_per_second:,.0f} per second{how}, x 7 / billions of parameters). Training: 8 x parameters x tokens "
            "FLOP (forward, backward, and forward again for gradient checkpointing); scoring and "
            f"reference log-probabilities: 2 x; both at {100 * UTILISATION:.0f} % of "
            f"{self.peak:,.0f} TFLOP/s ({self.source}). Token counts per text are estimates, those "
            "of sequences are upper bounds. What was spent is what runs have counted; training "
            "counts nothing."
        )


GPUS = TomlTable(str(Path(__file__).with_name("gpus")), lambda _, **told: Gpu(**told))


@dataclass(frozen=True, slots=True)
class Workload:
    """How much a stage computes."""

    #: ``generate`` writes the completions, ``score`` reads prompt and completion once, ``train``
    #: learns from both, ``pairs`` does so with a reference model, its prompts counted once;
    #: ``none`` needs no GPU.
    kind: WorkKind
    sequences: int = 0
    prompts: int = 0  #: Different prompts, for ``pairs``.
    prompt_tokens: int = 0
    tokens: int = 0
    parameters: float = 0.0  #: Billions of parameters of the model.
    epochs: float = 1.0


@dataclass(frozen=True, slots=True)
class RecipeStage:
    """One command of a recipe."""

    name: str
    purpose: str  #: What it is for, and where it departs from the paper.
    command: str
    done_file: str  #: File that is there once it has ended; empty for one that is always run.
    gpus: int
    work: Workload

    @property
    def argv(self) -> list[str]:
        """The command line, split as a shell would."""
        return shlex.split(self.command)

    def plan_dict(self, gpu: Gpu) -> dict[str, Any]:
        """Return what it does and costs, for machines."""
        cost, real = estimate(self.work, gpu), measured_cost(self)
        told = {
            name: getattr(self, name)
            for name in ("name", "purpose", "command", "done_file", "gpus")
        }
        told |= {"tokens": round(cost.tokens or 0), "gpu_hours": round(cost.gpu_hours, 3)}
        return told | {"spent": real and real._asdict()}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A row of the paper's tables as commands."""

    name: str
    title: str
    about: str
    backbone: str  #: The row's model as the paper's tables have it; empty for none.
    method: str
    stages: tuple[RecipeStage, ...]

    @property
    def gpu_hours(self) -> float:
        """What all stages together cost."""
        return sum(estimate(stage.work).gpu_hours for stage in self.stages)

    @property
    def expected(self) -> str:
        """The paper's greedy numbers for the row."""
        row = (self.backbone, self.method)
        cells = (each for each in published_results() if (each.backbone, each.method) == row)
        shown = (each for each in cells if each.table != "prm" and each.task != "average")
        return ", ".join(f"{each.task} {each.value}" for each in shown)

    def plan_dict(self, stages: Sequence[RecipeStage], gpu: Gpu) -> dict[str, Any]:
        """Return what some stages do and cost, for machines."""
        return {
            "recipe": self.name,
            "title": self.title,
            "assumptions": gpu.assumptions,
            "stages": [stage.plan_dict(gpu) for stage in stages],
        }

    def select_stages(self, names: Sequence[str]) -> list[RecipeStage]:
        """Return the stages of some names, in their order; all if there are none.

        Raises:
            InputError: if there is no stage of a name.
        """
        known = [each.name for each in self.stages]
        for name in set(names) - set(known):
            raise InputError(f"expected one of {', '.join(known)}.", field="stage", value=name)
        return [each for each in self.stages if not names or each.name in names]


class CostEstimate(NamedTuple):
    """What a stage costs, by the formulas of :attr:`Gpu.assumptions`, or has cost."""

    tokens: float | None  #: None where nobody has counted.
    gpu_hours: float


def recipe_names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(file.stem for file in shipped_path("recipes").glob("*.toml"))


def load_recipe(name: str) -> Recipe:
    """Load a recipe by its name or from a file; InputError for no name, or a malformed file."""
    file = Path(name) if name.endswith(".toml") else shipped_path("recipes") / f"{name}.toml"
    if not file.is_file():
        near = suggest_names(name, recipe_names())
        raise InputError(f"no recipe {name!r}.{near} `fsdpo-bench recipe` lists them.")
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
        row = {"backbone": "", "method": "", **told.get("row", {})}
        stages = tuple(_stage(**each) for each in told["stage"])
        return Recipe(file.stem, told["title"], _line(told["about"]), stages=stages, **row)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{file} is not a recipe: {error!r}. Compare it with the others."
        ) from None


def _line(text: str) -> str:
    return " ".join(text.split())


def _stage(*, purpose: str, command: str, work: dict[str, Any], **told: Any) -> RecipeStage:
    if work["kind"] not in get_args(WorkKind):
        raise ValueError(
            f"work kind {work['kind']!r}: expected one of {', '.join(get_args(WorkKind))}"
        )
    return RecipeStage(
        purpose=_line(purpose), command=_line(command), work=Workload(**work), **told
    )


def estimate(work: Workload, gpu: Gpu | None = None) -> CostEstimate:
    """Estimate what a stage costs, on the paper's A100 if no other GPU is given."""
    gpu = gpu or GPUS["a100"]
    if work.kind == "none":
        return CostEstimate(0.0, 0.0)
    if work.kind == "generate":
        tokens = float(work.sequences * work.tokens)
        return CostEstimate(tokens, tokens / (gpu.tokens_per_second * 7 / work.parameters) / 3600)
    prompts = work.prompts if work.kind == "pairs" else work.sequences
    once = float(prompts * work.prompt_tokens + work.sequences * work.tokens)
    passes = {"score": 2.0, "train": 8 * work.epochs, "pairs": 8 * work.epochs + 2}[work.kind]
    flop = passes * work.parameters * 1e9 * once
    return CostEstimate(once * work.epochs, flop / (gpu.peak * 1e12 * UTILISATION) / 3600)


def measured_cost(stage: RecipeStage) -> CostEstimate | None:
    """Return what a stage has cost, as its manifest or results count it; None if they do not.

    A manifest counts all stages of its dataset, so that what came in with the data is taken off.
    """
    here, before = (
        _read_throughput(Path(at))
        for at in (stage.done_file, "/".join([*stage.argv[2:3], "manifest.json"]))
    )
    if here is None:
        return None
    tokens, seconds = before or (0, 0.0)
    both = None if tokens is None or here[0] is None else here[0] - tokens
    return CostEstimate(both, (here[1] - seconds) * max(1, stage.gpus) / 3600)


def _read_throughput(file: Path) -> tuple[float | None, float] | None:
    """Return the tokens and seconds that a file counts; of decoders, samples they share once."""
    if file.name not in ("manifest.json", "results.json") or not file.is_file():
        return None
    costs = json.loads(file.read_text(encoding="utf-8"))["cost"]
    if file.name == "results.json":
        shared = [costs.pop(name) for name in list(costs) if "@" in name and "," not in name]
        each = [*costs.values(), *sorted(shared, key=lambda cost: cost["seconds"])[-1:]]
    else:
        each = [costs]
    tokens = [cost["tokens"] for cost in each]
    return None if "unknown" in tokens else sum(tokens), sum(cost["seconds"] for cost in each)


def pending_command(stage: RecipeStage) -> list[str] | None:
    """Return the command that a stage still needs; None if it is done.

    One that was stopped goes on with ``--resume``.
    """
    if stage.done_file and Path(stage.done_file).exists():
        return None
    argv = stage.argv
    started = "--out" in argv and Path(argv[argv.index("--out") + 1]).is_dir()
    return [*argv, "--resume"] if started else argv


def run_stages(stages: Sequence[RecipeStage], say: Callable[[str], None]) -> None:
    """Run the stages that are not done, in order, up to the first FsdpoError."""
    # Our programs stand beside this Python, also where its environment was not activated.
    path = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))
    for stage in stages:
        command = pending_command(stage)
        if command is None:
            say(f"{stage.name}: done ({stage.done_file})")
            continue
        say(f"{stage.name}: {shlex.join(command)}")
        try:
            code = subprocess.run(command, env={**os.environ, "PATH": path}).returncode
        except FileNotFoundError:
            raise InputError(
                f"stage {stage.name}: no program {command[0]!r}. Install fsdpo, and for torchrun "
                "its extra `train`."
            ) from None
        if code:
            raise FsdpoError(
                f"stage {stage.name} ended with exit code {code}. Mend what it says above; the "
                "same command goes on from there."
            )
