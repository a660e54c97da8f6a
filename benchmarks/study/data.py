"""The training data of the study: one set of pairs, with step rewards from several sources.

The sources of rewards, by the name in ``plan.toml``:

- ``prm``: the rewards of the process reward model that selected the pairs.
- ``truth``: 1 for each step before the first wrong step, and 0 from that step on. In the positive
  control, where ``control.py`` writes the pairs, only the wrong steps have 0.
- ``shuffled``, ``truth-shuffled``: the same rewards in random order within each solution.
- ``rollouts``: the fraction of continuations of a step that end correct.
- ``likelihood``: the probability of a step under the SFT policy.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl
from control import CONTROL_PAIRS_FILE, write_control_pairs
from fsdpo_bench.recipes.recipe import RecipeStage
from fsdpo_bench.recipes.run_stages import pending_command, run_stages
from plan import COMMANDS, DRAW_SEED_STEP, KINDS, PAIR_SEED, SIZES, STAGES, Arm, Size

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.parquet_files import collect_rows, scan_parquet
from fsdpo_data.core.sampling import Prompt, SamplingSpec
from fsdpo_data.core.statistics import auc
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.engines.item_errors import collect_results
from fsdpo_data.engines.load import load_likelihood, load_sampler
from fsdpo_data.engines.options import SamplerOptions, ScorerOptions
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.problems.embedded import PROMPT
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import final_answer, first_wrong_step
from fsdpo_train.demonstrations import demonstration

MAX_TOKENS = 240  #: Tokens per solution. The longest correct solutions have about 210.
TEMPERATURE = 0.8
#: Seeds of the generated problems, different for each stage, so that no problem is used twice.
#: The test problems of training seed `s` have the seed ``TEST_SEED + s``.
DEMONSTRATION_SEED = 1
VALIDATION_SEED = 3
TEST_SEED = 4
CONTINUATIONS_PER_STEP = 2
SIDES = ("chosen", "rejected")

#: Step rewards by solution: (prompt, steps).
Rewards = dict[tuple[str, tuple[str, ...]], list[float]]


@dataclass(frozen=True)
class StudyDirectory:
    """The directory of a study of one size."""

    out: Path  #: Path of the directory.
    size: Size  #: Number of problems, samples, training steps and seeds.
    draw: int = (
        0  #: Number of the draw of the data; it changes all random numbers but the first stage.
    )

    def problems(self) -> list[Problem]:
        """Return the problems of the preference pairs."""
        seed = PAIR_SEED + DRAW_SEED_STEP * self.draw
        return make_problems("train", self.size.problems, seed, KINDS["solve"])

    def right(self) -> Path:
        """Return the directory of the first stage of SFT, which all draws share."""
        if self.size.draws:
            return self.out.parent.parent / self.size.based_on / "right"
        return self.out / "right"

    def sft(self) -> Path:
        """Return the directory of the SFT policy."""
        return self.out / "sft"

    def run_command(self, name: str) -> Path:
        """Run a command of the plan, unless it is finished, and return its output directory."""
        fields = {
            **asdict(self.size),
            "out": self.out,
            "right": self.right(),
            "sft": self.sft(),
            "draw": self.draw,
        }
        out = self.out / name
        command = COMMANDS[name].format_map(fields)
        last_file = "README.md" if command.split()[0] == "fsdpo-train" else "manifest.json"
        stage = RecipeStage(
            name=name,
            purpose="",
            command=f"{command} --out {out}",
            done_file=str(out / last_file),
            gpus=0,
        )
        if pending_command(stage):
            run_stages([stage], print)
        return out


def make_data(directory: StudyDirectory) -> None:
    """Train the SFT policy, sample from it, train a PRM on the outcomes, and build the pairs."""
    directory.out.mkdir(parents=True, exist_ok=True)
    make_policy(directory)
    if directory.size.lucky_chosen is not None:
        pl.DataFrame(write_control_pairs(directory.size, directory.draw)).write_ndjson(
            directory.out / CONTROL_PAIRS_FILE
        )
        return
    rows = [
        {"question": problem.question, "answer": problem.answer} for problem in directory.problems()
    ]
    pl.DataFrame(rows).write_ndjson(directory.out / "problems.jsonl")
    for name in ("sampled", "prm", "scored", "pairs"):
        directory.run_command(name)


def make_policy(directory: StudyDirectory) -> None:
    """Train the SFT policy on generated solutions, starting from the embedded model."""
    size = directory.size
    if size.draws:
        base = StudyDirectory(directory.right().parent, SIZES[size.based_on])
        train_stage(base, "right", list(STAGES))
        train_stage(directory, "sft", ["sft"])
        return
    for name in STAGES:
        train_stage(directory, name, list(STAGES))


def train_stage(directory: StudyDirectory, name: str, stages: Sequence[str]) -> None:
    """Train one stage of SFT, unless it is finished.

    Args:
        directory: The directory of the stage.
        name: Name of the stage.
        stages: The stages that share the problems, in their order. Each problem is used once.
    """
    if (directory.out / name / "README.md").exists():
        return
    directory.out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(directory.draw)
    counts = directory.size.demonstrations
    seed = DEMONSTRATION_SEED + DRAW_SEED_STEP * directory.draw
    n_problems = sum(counts[stage] for stage in stages)
    unused_problems = iter(make_problems("train", n_problems, seed, KINDS["solve"]))
    for stage in stages:
        demonstrations = [
            demonstration(problem, rng, **STAGES[stage])
            for problem in islice(unused_problems, counts[stage])
        ]
        if stage == name:
            pl.DataFrame(demonstrations).write_ndjson(directory.out / f"{name}.jsonl")
    directory.run_command(name)


def format_prompt(problem: Problem) -> str:
    """Return the prompt of a problem, the same for all policies."""
    return PROMPT.format(question=problem.question)


def arm_pairs(directory: StudyDirectory, arm: Arm) -> Path:
    """Return the file or dataset of pairs that an arm is trained on; make it if it is missing."""
    if arm.loss == "step-dpo":
        return directory.run_command("steps")
    file = directory.out / "rewards" / f"{arm.rewards}.jsonl"
    if not file.exists():
        pairs = _pairs(directory)
        rewards = SOURCES[arm.rewards](directory, _rewards_by_solution(pairs))
        for pair in pairs:
            for side in SIDES:
                solution = (pair["prompt"], tuple(pair[f"{side}_steps"]))
                pair[f"{side}_rewards"] = rewards[solution]
        file.parent.mkdir(exist_ok=True)
        pl.DataFrame(pairs).write_ndjson(file)
    return file


def reward_auc(directory: StudyDirectory, arm: Arm) -> float:
    """Return the AUC of an arm's rewards, for steps before the first error against later steps."""
    rewards = _rewards_by_solution(pl.read_ndjson(arm_pairs(directory, arm)).to_dicts())
    labels = _true_labels(directory, rewards)
    step_labels = [label == 1 for label in chain.from_iterable(labels.values())]
    step_rewards = list(chain.from_iterable(rewards.values()))
    area = auc(step_rewards, step_labels)
    return 0.5 if area is None else area


def count_pairs(directory: StudyDirectory) -> list[dict[str, object]]:
    """Return the number of pairs and of their problems, for each set of pairs that exists.

    ``lucky`` is the number of pairs whose chosen solution is correct in spite of a wrong step. It
    is empty for pairs of single steps.
    """
    rows: list[dict[str, object]] = []
    for name in ("pairs", "steps"):
        if name == "pairs" or (directory.out / name / "manifest.json").exists():
            pairs = _pairs(directory, name)
            counts = {"problems": len({pair["prompt"] for pair in pairs}), "pairs": len(pairs)}
            lucky = _count_lucky(directory, pairs) if name == "pairs" else ""
            rows.append({"data": name, "draw": directory.draw, **counts, "lucky": lucky})
    return rows


def _count_lucky(directory: StudyDirectory, pairs: Sequence[dict[str, Any]]) -> int:
    labels = _true_labels(directory, _rewards_by_solution(pairs))
    return sum(0 in labels[pair["prompt"], tuple(pair["chosen_steps"])] for pair in pairs)


def _pairs(directory: StudyDirectory, name: str = "pairs") -> list[dict[str, object]]:
    if directory.size.lucky_chosen is not None:
        return pl.read_ndjson(directory.out / CONTROL_PAIRS_FILE).to_dicts()
    sealed = directory.out / name
    files = read_manifest(sealed).config_paths(sealed, "pairs")
    return collect_rows(scan_parquet(files)).to_dicts()


def _rewards_by_solution(pairs: Sequence[dict[str, object]]) -> Rewards:
    return {
        (pair["prompt"], tuple(pair[f"{side}_steps"])): pair[f"{side}_rewards"]
        for pair in pairs
        for side in SIDES
    }


def _shuffle_rewards(directory: StudyDirectory, rewards: Rewards) -> Rewards:
    rng = random.Random(directory.draw)
    return {
        solution: rng.sample(step_rewards, len(step_rewards))
        for solution, step_rewards in rewards.items()
    }


def _true_labels(directory: StudyDirectory, rewards: Rewards) -> Rewards:
    if directory.size.lucky_chosen is not None:
        return _rewards_by_solution(_pairs(directory))  # The control writes labels as rewards.
    problems = {format_prompt(problem): problem for problem in directory.problems()}
    labels: Rewards = {}
    for prompt, steps in rewards:
        first_wrong = first_wrong_step(problems[prompt], steps)
        labels[prompt, steps] = [
            float(first_wrong is None or index < first_wrong) for index in range(len(steps))
        ]
    return labels


def _shuffled_true_labels(directory: StudyDirectory, rewards: Rewards) -> Rewards:
    return _shuffle_rewards(directory, _true_labels(directory, rewards))


def _likelihood(directory: StudyDirectory, rewards: Rewards) -> Rewards:
    scorer = load_likelihood(str(directory.sft()), ScorerOptions(engine="transformers"))
    scores = collect_results(
        scorer.score([ScorerInput(prompt, steps) for prompt, steps in rewards])
    )
    return {solution: score or [] for solution, score in zip(rewards, scores, strict=True)}


def _rollouts(directory: StudyDirectory, rewards: Rewards) -> Rewards:
    """Return the fraction of correct continuations of each step.

    The last step contains the answer, so it needs no continuation.
    """
    golds = {format_prompt(problem): problem.answer for problem in directory.problems()}
    prefixes = [
        (solution, "".join(solution[1][: index + 1]))
        for solution in rewards
        for index in range(len(solution[1]) - 1)
    ]
    sampler = load_sampler(str(directory.sft()), SamplerOptions(engine="transformers"))
    sampling = SamplingSpec(
        n=CONTINUATIONS_PER_STEP, temperature=TEMPERATURE, max_tokens=MAX_TOKENS, seed=3
    )
    prompts = [Prompt(prompt, solution_text=text) for (prompt, _), text in prefixes]
    fractions: Rewards = {solution: [] for solution in rewards}
    for (solution, text), completions in zip(
        prefixes, collect_results(sampler.sample(prompts, sampling)), strict=True
    ):
        gold = golds[solution[0]]
        correct = [final_answer(text + completion.text) == gold for completion in completions]
        fractions[solution].append(fmean(correct))
    for prompt, steps in rewards:
        fractions[prompt, steps].append(float(final_answer("".join(steps)) == golds[prompt]))
    return fractions


#: Functions that compute the rewards of a source, from the rewards of the PRM.
SOURCES: dict[str, Callable[[StudyDirectory, Rewards], Rewards]] = {
    "prm": lambda _, rewards: rewards,
    "shuffled": _shuffle_rewards,
    "truth": _true_labels,
    "truth-shuffled": _shuffled_true_labels,
    "rollouts": _rollouts,
    "likelihood": _likelihood,
}
