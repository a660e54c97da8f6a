"""Recipes: a row of the paper's tables as command lines, with what they cost.

A recipe knows nothing but command lines, so that measuring never depends on training code.
"""

import shlex
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from fsdpo_bench.results.published import published, shipped
from fsdpo_data.core.errors import FsdpoError, InputError, nearest

Kind = Literal["generate", "score", "train", "pairs", "none"]

#: Tokens per second that one GPU writes with a model of 7 billion parameters. The paper's own
#: figure: 8.5 A100-hours for 32 solutions of 10,795 problems, at 300 tokens each.
WRITES = 3_400.0
#: Dense bfloat16 FLOP per second of an A100, and the share of it that training and scoring reach.
PEAK, UTILISATION = 312e12, 0.4

ASSUMPTIONS = (
    "GPU-hours are of an A100-80GB. Generation: tokens written / (3,400 per second x 7 / billions "
    "of parameters). Training: 8 x parameters x tokens FLOP (forward, backward, and forward again "
    "for gradient checkpointing); scoring and reference log-probabilities: 2 x; both at 40 % of "
    "312 TFLOP/s. Token counts per text are estimates, those of sequences are upper bounds."
)


@dataclass(frozen=True, slots=True)
class Work:
    """How much a stage computes."""

    #: ``generate`` writes the completions, ``score`` reads prompt and completion once, ``train``
    #: learns from both, ``pairs`` does so with a reference model, its prompts counted once;
    #: ``none`` needs no GPU.
    kind: Kind
    sequences: int = 0
    prompts: int = 0  #: Different prompts, for ``pairs``.
    prompt_tokens: int = 0
    tokens: int = 0
    parameters: float = 0.0  #: Billions of parameters of the model.
    epochs: float = 1.0


@dataclass(frozen=True, slots=True)
class Stage:
    """One command of a recipe."""

    name: str
    does: str  #: What it is for, and where it departs from the paper.
    run: str
    done: str  #: File that is there once it has ended; empty for one that is always run.
    gpus: int
    work: Work

    @property
    def argv(self) -> list[str]:
        """The command line, split as a shell would."""
        return shlex.split(self.run)

    def plan(self) -> dict[str, Any]:
        """Return what it does and costs, for machines."""
        cost = estimate(self.work)
        told = {name: getattr(self, name) for name in ("name", "does", "run", "done", "gpus")}
        return told | {"tokens": round(cost.tokens), "gpu_hours": round(cost.gpu_hours, 3)}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A row of the paper's tables as commands."""

    name: str
    title: str
    about: str
    backbone: str  #: The row's model as the paper's tables have it; empty for none.
    method: str
    stages: tuple[Stage, ...]

    @property
    def gpu_hours(self) -> float:
        """What all stages together cost."""
        return sum(estimate(stage.work).gpu_hours for stage in self.stages)

    @property
    def expected(self) -> str:
        """The paper's greedy numbers for the row."""
        row = (self.backbone, self.method)
        cells = (each for each in published() if (each.backbone, each.method) == row)
        shown = (each for each in cells if each.table != "prm" and each.task != "average")
        return ", ".join(f"{each.task} {each.value}" for each in shown)

    def plan(self, stages: Sequence[Stage]) -> dict[str, Any]:
        """Return what some stages do and cost, for machines."""
        return {
            "recipe": self.name,
            "title": self.title,
            "assumptions": ASSUMPTIONS,
            "stages": [stage.plan() for stage in stages],
        }

    def chosen(self, names: Sequence[str]) -> list[Stage]:
        """Return the stages of some names, in their order; all if there are none.

        Raises:
            InputError: if there is no stage of a name.
        """
        known = [each.name for each in self.stages]
        for name in set(names) - set(known):
            raise InputError(f"expected one of {', '.join(known)}.", field="stage", value=name)
        return [each for each in self.stages if not names or each.name in names]


class Estimate(NamedTuple):
    """What a stage costs, by the formulas of ``ASSUMPTIONS``."""

    tokens: float
    gpu_hours: float


def recipe_names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(file.stem for file in shipped("recipes").glob("*.toml"))


def load_recipe(name: str) -> Recipe:
    """Load a recipe by its name or from a file; InputError for no name, or a malformed file."""
    file = Path(name) if name.endswith(".toml") else shipped("recipes") / f"{name}.toml"
    if not file.is_file():
        near = nearest(name, recipe_names())
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


def _stage(*, does: str, run: str, work: dict[str, Any], **told: Any) -> Stage:
    if work["kind"] not in get_args(Kind):
        raise ValueError(f"work kind {work['kind']!r}: expected one of {', '.join(get_args(Kind))}")
    return Stage(does=_line(does), run=_line(run), work=Work(**work), **told)


def estimate(work: Work) -> Estimate:
    """Estimate what a stage costs."""
    if work.kind == "none":
        return Estimate(0.0, 0.0)
    if work.kind == "generate":
        tokens = float(work.sequences * work.tokens)
        return Estimate(tokens, tokens / (WRITES * 7 / work.parameters) / 3600)
    prompts = work.prompts if work.kind == "pairs" else work.sequences
    once = float(prompts * work.prompt_tokens + work.sequences * work.tokens)
    passes = {"score": 2.0, "train": 8 * work.epochs, "pairs": 8 * work.epochs + 2}[work.kind]
    flop = passes * work.parameters * 1e9 * once
    return Estimate(once * work.epochs, flop / (PEAK * UTILISATION) / 3600)


def owed(stage: Stage) -> list[str] | None:
    """Return the command that a stage still needs; None if it is done.

    One that was stopped goes on with ``--resume``.
    """
    if stage.done and Path(stage.done).exists():
        return None
    argv = stage.argv
    started = "--out" in argv and Path(argv[argv.index("--out") + 1]).is_dir()
    return [*argv, "--resume"] if started else argv


def run_stages(stages: Sequence[Stage], say: Callable[[str], None]) -> None:
    """Run the stages that are not done, in order, up to the first FsdpoError."""
    for stage in stages:
        command = owed(stage)
        if command is None:
            say(f"{stage.name}: done ({stage.done})")
            continue
        say(f"{stage.name}: {shlex.join(command)}")
        try:
            code = subprocess.run(command, check=False).returncode
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
