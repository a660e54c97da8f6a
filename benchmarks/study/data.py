"""What policies are trained on: made by commands, and the same pairs with rewards of each source.

A source of rewards is data. ``prm`` is what the pairs were chosen by; ``truth`` is 1 before the
first wrong step and 0 from it on; ``shuffled`` is either in another order within each solution;
``rollouts`` is the share of continuations of a step that end correct; ``likelihood`` is the
probability that the policy gives a step.
"""

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean

import polars as pl
from fsdpo_bench.recipes.recipe import RecipeStage, Workload, pending_command, run_stages
from plan import COMMANDS, KINDS, SIZES, STAGES, Arm, Size

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.lazy import torch, transformers
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.core.statistics import auc
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.engines.load import load_likelihood, load_sampler
from fsdpo_data.engines.options import SamplerOptions, ScorerOptions
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.problems.embedded import CHECKPOINT, PROMPT
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import final_answer, first_wrong_step, write_solution

MAX_TOKENS, TEMPERATURE = 240, 0.8  #: The longest right solutions have some 210 tokens.
#: Seeds of problems: no stage meets those of another one. Those of tests follow the last.
DEMONSTRATIONS, PAIRS, VALIDATION, TEST = range(1, 5)
ROLLOUTS = 2  #: Continuations of each step.
SIDES = ("chosen", "rejected")

#: Rewards by prompt and steps.
Rewards = dict[tuple[str, tuple[str, ...]], list[float]]


@dataclass(frozen=True)
class StudyDirectory:
    """A directory in which a study of a size is made."""

    out: Path
    size: Size

    def problems(self) -> list[Problem]:
        """Return the problems that pairs are made of."""
        return make_problems("train", self.size.problems, PAIRS, KINDS["solve"])

    def sft(self) -> Path:
        """Return the SFT policy."""
        return (self.out.parent / self.size.policy if self.size.policy else self.out) / "sft"

    def run_command(self, name: str) -> Path:
        """Return what a command of the plan makes; it goes on where it was."""
        place = {"out": self.out, "sft": self.sft(), **asdict(self.size)}
        out, told = self.out / name, COMMANDS[name].format(**place)
        done = "README.md" if told.split()[0] == "fsdpo-train" else "manifest.json"
        stage = RecipeStage(name, "", f"{told} --out {out}", str(out / done), 0, Workload("none"))
        if pending_command(stage):
            run_stages([stage], print)
        return out


def make_data(place: StudyDirectory) -> None:
    """Make the SFT policy, its samples, a PRM trained on their outcomes, and the pairs."""
    place.out.mkdir(parents=True, exist_ok=True)
    if not (place.sft() / "README.md").exists():
        make_policy(StudyDirectory(place.sft().parent, SIZES.get(place.size.policy, place.size)))
    asked = [{"question": each.question, "answer": each.answer} for each in place.problems()]
    pl.DataFrame(asked).write_ndjson(place.out / "problems.jsonl")
    for name in ("sampled", "prm", "scored", "pairs"):
        place.run_command(name)


def make_policy(place: StudyDirectory) -> None:
    """Teach the SFT policy, which starts from the embedded model."""
    rng, solve, counts = random.Random(0), KINDS["solve"], place.size.demonstrations
    deepen(place.out / "start", place.size.copies)
    demonstrated = iter(make_problems("train", sum(counts.values()), DEMONSTRATIONS, solve))
    for name, stage in STAGES.items():
        shown = [
            {"prompt": prompt_of(each), "completion": "".join(write_solution(each, rng, **stage))}
            for each in islice(demonstrated, counts[name])
        ]
        pl.DataFrame(shown).write_ndjson(place.out / f"{name}.jsonl")
        place.run_command(name)


def deepen(out: Path, copies: int) -> None:
    """Write the embedded model with copies behind each layer, which say nothing until trained."""
    model = transformers.AutoModelForCausalLM.from_pretrained(CHECKPOINT, trust_remote_code=False)
    layers = [deepcopy(layer) for layer in model.model.layers for _ in range(copies)]
    for at, layer in enumerate(layers):
        layer.self_attn.layer_idx = at
        if at % copies:
            layer.self_attn.o_proj.weight.data.zero_()
            layer.mlp.down_proj.weight.data.zero_()
    model.model.layers = torch.nn.ModuleList(layers)
    model.config.update({"num_hidden_layers": len(layers), "layer_types": None})
    model.save_pretrained(out)
    tokenizer = transformers.AutoTokenizer.from_pretrained(CHECKPOINT, trust_remote_code=False)
    tokenizer.save_pretrained(out)


def prompt_of(problem: Problem) -> str:
    """Return how policies are asked."""
    return PROMPT.format(question=problem.question)


def pairs_of(place: StudyDirectory, arm: Arm) -> Path:
    """Return what an arm is trained on; it is made if it is not there."""
    if arm.loss == "step-dpo":
        return place.run_command("steps")
    file = place.out / "rewards" / f"{arm.rewards}.jsonl"
    if not file.exists():
        pairs = _pairs(place)
        found = SOURCES[arm.rewards](place, _by_prm(pairs))
        for pair in pairs:
            for side in SIDES:
                key = pair["prompt"], tuple(pair[f"{side}_steps"])
                pair[f"{side}_rewards"] = found[key]
        file.parent.mkdir(exist_ok=True)
        pl.DataFrame(pairs).write_ndjson(file)
    return file


def agreement(place: StudyDirectory, arm: Arm) -> float:
    """Return the chance that rewards rank a right step above one from the first error on."""
    rewards = _by_prm(pl.read_ndjson(pairs_of(place, arm)).to_dicts())
    right = [each == 1 for truth in _true(place, rewards).values() for each in truth]
    return auc([each for some in rewards.values() for each in some], right) or 0.5


def _pairs(place: StudyDirectory) -> list[dict[str, object]]:
    sealed = place.out / "pairs"
    return pl.read_parquet(read_manifest(sealed).config_paths(sealed, "pairs")).to_dicts()


def _by_prm(pairs: Sequence[dict[str, object]]) -> Rewards:
    return {
        (pair["prompt"], tuple(pair[f"{side}_steps"])): pair[f"{side}_rewards"]
        for pair in pairs
        for side in SIDES
    }


def _shuffle_rewards(_: StudyDirectory, by_prm: Rewards) -> Rewards:
    rng = random.Random(0)
    return {key: rng.sample(rewards, len(rewards)) for key, rewards in by_prm.items()}


def _true(place: StudyDirectory, by_prm: Rewards) -> Rewards:
    problems, found = {prompt_of(each): each for each in place.problems()}, {}
    for prompt, steps in by_prm:
        wrong = first_wrong_step(problems[prompt], steps)
        found[prompt, steps] = [float(wrong is None or at < wrong) for at in range(len(steps))]
    return found


def _likelihood(place: StudyDirectory, by_prm: Rewards) -> Rewards:
    scorer = load_likelihood(str(place.sft()), ScorerOptions(engine="transformers"))
    scores = scorer.score([ScorerInput(*key) for key in by_prm])
    return {key: score or [] for key, score in zip(by_prm, scores, strict=True)}


def _rollouts(place: StudyDirectory, by_prm: Rewards) -> Rewards:
    """Continue every step; after the last, whose answer is there, nothing is left to say."""
    golds = {prompt_of(each): each.answer for each in place.problems()}
    begun = [(key, "".join(key[1][: at + 1])) for key in by_prm for at in range(len(key[1]) - 1)]
    sampler = load_sampler(str(place.sft()), SamplerOptions(engine="transformers"))
    spec = SamplingSpec(n=ROLLOUTS, temperature=TEMPERATURE, max_tokens=MAX_TOKENS, seed=3)
    ends = sampler.sample([key[0] + text for key, text in begun], spec)
    found: Rewards = {key: [] for key in by_prm}
    for (key, text), samples in zip(begun, ends, strict=True):
        found[key].append(fmean(final_answer(text + s.text) == golds[key[0]] for s in samples))
    for prompt, steps in by_prm:
        found[prompt, steps].append(float(final_answer("".join(steps)) == golds[prompt]))
    return found


SOURCES: dict[str, Callable[[StudyDirectory, Rewards], Rewards]] = {
    "prm": lambda _, by_prm: by_prm,
    "shuffled": _shuffle_rewards,
    "truth": _true,
    "truth-shuffled": lambda place, by_prm: _shuffle_rewards(place, _true(place, by_prm)),
    "rollouts": _rollouts,
    "likelihood": _likelihood,
}
