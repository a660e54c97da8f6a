"""A stage that gives all steps the same reward, as a baseline for reward models."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fsdpo_data.dataset.schema import replace_column
from fsdpo_data.dataset.stage import Stage, StageOptions
from fsdpo_data.dataset.stage_registry import StageEntry
from fsdpo_data.stages.score import plot_rewards, summarize_rewards


class UniformOptions(StageOptions):
    """Give all steps the same reward.

    Examples:
        fsdpo-data uniform runs/demo --out runs/uniform
    """

    reward: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The reward of a step."""


@dataclass(frozen=True)
class UniformStage(Stage):
    """Writes ``step_rewards``."""

    name = "uniform"
    writes = ("step_rewards",)

    reward: float  #: The reward of a step.

    def options(self):
        """Return the options that determine the rewards."""
        return {"reward": self.reward}

    def run(self, draft):
        """Rewrite the solutions."""
        draft.rewrite_config("solutions", phase="uniform", transform=self._add_rewards)
        draft.update_pairs()
        return self.make_record()

    def _add_rewards(self, table):
        rewards = [[self.reward] * len(steps) for steps in table["completions"].to_pylist()]
        return replace_column(table, "step_rewards", rewards)


def make_uniform_stage(options):
    """Return the stage."""
    return UniformStage(options.reward)


UNIFORM = StageEntry(
    name="uniform",
    options_class=UniformOptions,
    make_stage=make_uniform_stage,
    summarize=summarize_rewards,
    plot=plot_rewards,
    card_row="| step rewards | {{ reward }} for every step |",
)
