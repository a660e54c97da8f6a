"""Compare the PRM scorer's solutions and steps per second with other ways of scoring.

    python benchmarks/perf/score.py [--problems 24] [--samples 16] [--rounds 3] [--threads 1] \
        [--published] [--model DIR] [--actors N]

All variants score the same solutions of embedded problems in one process, and the order of the
variants alternates. The PRM is the embedded model, or the model in DIR, with a random head:

- `scorer`: the scorer of `fsdpo-data score`. Batches have similar lengths, and each prompt is
  computed once;
- `no sharing`: the same, but the prompt is computed for every solution;
- `step by step`: one forward pass per step, each over the solution up to that step.

`--published` gives the PRM the form of TRL's models: two classes and a step token after every step.

`--actors N` compares N replicas on a Ray cluster with one replica. Each replica has `--threads`
cores. This comparison uses clock time, so the machine must be idle. The solutions of a problem stay
together, as in a dataset; otherwise several replicas would compute the same prompt. Problems with
many steps come first, so the parts are uneven. The script also measures N processes without Ray.
Their speed is the upper limit, because the cores share their memory.

All solutions differ, so repeated texts give no advantage. The times are processor times, and the
results are ratios. The rewards of all variants must agree.
"""

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import typer

from fsdpo_data.core.lazy import torch
from fsdpo_data.engines.item_errors import collect_results
from fsdpo_data.engines.load import load_scorer
from fsdpo_data.engines.samplers import close_engine
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.prm import PrmScorer
from fsdpo_data.engines.scorers.published_prm import load_prm
from fsdpo_data.engines.weights import resolve_prm
from fsdpo_data.problems.embedded import CHECKPOINT, PROMPT
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import write_solution

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from bare_scorers import SCORER_OPTIONS, time_processes
from random_model import save_random_prm

#: The step rewards of each solution.
Rewards = list[list[float] | None]
ScoreFunction = Callable[[Sequence[ScorerInput]], Rewards]


def main(
    problems: int = 24,
    samples: int = 16,
    rounds: int = 3,
    threads: int = 1,
    published: bool = False,
    model: Path = CHECKPOINT,
    actors: int = 1,
) -> None:
    """Time the ways of scoring in alternating order."""
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for the processes that this one starts
    torch.set_num_threads(threads)
    items = make_solutions(problems, samples)
    n_steps = sum(len(item.steps) for item in items)
    print(f"{len(items)} solutions, {n_steps} steps")
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        prm = save_random_prm(Path(folder), model, labels=2 if published else 1)
        if actors > 1:
            compare_replicas(str(prm), items, actors, rounds)
            return
        variants = load_variants(prm)
        # Scoring once to compare the rewards also warms up.
        check_agreement({name: score(items) for name, score in variants.items()})
        seconds: dict[str, list[float]] = {name: [] for name in variants}
        for round_index in range(rounds):
            names = list(variants) if round_index % 2 else list(reversed(variants))
            for name in names:
                started = time.process_time()
                variants[name](items)
                seconds[name].append(time.process_time() - started)
    print_rates(seconds, n_solutions=len(items), n_steps=n_steps)


def compare_replicas(prm: str, items: Sequence[ScorerInput], replicas: int, rounds: int) -> None:
    """Time one replica and several, on a Ray cluster and as processes without Ray."""
    items_by_problem: dict[str | None, list[ScorerInput]] = {}
    for item in items:
        items_by_problem.setdefault(item.question, []).append(item)
    most_steps_first = sorted(
        items_by_problem.values(), key=lambda group: -sum(len(item.steps) for item in group)
    )
    measurements = {"actors": time_ray_actors, "processes without Ray": time_processes}
    speedups: dict[str, list[float]] = {name: [] for name in measurements}
    for round_index in range(rounds):
        for name, measure in measurements.items():
            counts = (1, replicas) if round_index % 2 else (replicas, 1)
            seconds = {count: measure(prm, most_steps_first, count) for count in counts}
            speedups[name].append(seconds[1] / seconds[replicas])
    for name, ratios in speedups.items():
        print(f"{replicas} {name}: {statistics.median(ratios):.2f} x as fast, median of {rounds}")


def time_ray_actors(prm: str, problems: Sequence[list[ScorerInput]], count: int) -> float:
    """Return the seconds that ``count`` Ray actors take for all solutions."""
    items = [item for problem_items in problems for item in problem_items]
    replica_pool = load_scorer(prm, SCORER_OPTIONS.replace(engine="ray", actors=count))
    collect_results(replica_pool.score(items))  # warm up
    started = time.perf_counter()
    collect_results(replica_pool.score(items))
    seconds = time.perf_counter() - started
    close_engine(replica_pool)
    return seconds


def make_solutions(problems: int, samples: int) -> list[ScorerInput]:
    """Return different solutions of many lengths: right, wrong, and with superfluous steps."""
    rng = random.Random(0)
    items = []
    for problem in make_problems("test", problems):
        prompt = PROMPT.format(question=problem.question)
        for sample in range(samples):
            steps = [step.rstrip("\n") + "\n" for step in write_solution(problem, rng, 0.3)]
            # The lengths of sampled solutions vary more than the lengths of demonstrations.
            extra_steps = [
                f"Step {k}: that is {sample} and {k}.\n" for k in range(rng.randrange(8))
            ]
            items.append(ScorerInput(prompt, [*steps, *extra_steps], problem.question))
    return items


def load_variants(folder: Path) -> dict[str, ScoreFunction]:
    """Load the PRM and return the ways of scoring by name."""
    weights = resolve_prm(str(folder), SCORER_OPTIONS)
    sharing_scorer = load_prm(weights, SCORER_OPTIONS)
    unshared_scorer = load_prm(weights, SCORER_OPTIONS)
    assert isinstance(unshared_scorer, PrmScorer)
    unshared_scorer._can_share_prompts = False
    return {
        "scorer": lambda items: collect_results(sharing_scorer.score(items)),
        "no sharing": lambda items: collect_results(unshared_scorer.score(items)),
        "step by step": partial(score_step_by_step, unshared_scorer),
    }


def score_step_by_step(scorer: PrmScorer, items: Sequence[ScorerInput]) -> Rewards:
    """Compute the reward of every step with a forward pass of its own."""

    def last_reward(item: ScorerInput, n_steps: int) -> float:
        """Return the reward of step ``n_steps``, the last step of the prefix."""
        prefix = scorer._encode(replace(item, steps=item.steps[:n_steps]))
        return scorer._activate(scorer._compute_logits([prefix]))[0, -1].item()

    return [[last_reward(item, n + 1) for n in range(len(item.steps))] for item in items]


def check_agreement(rewards_by_variant: dict[str, Rewards]) -> None:
    """Raise an error if the rewards of a variant differ from the scorer's by 1e-4 or more."""
    expected = rewards_by_variant["scorer"]
    for name, rewards in rewards_by_variant.items():
        max_difference = max(
            abs(reward - expected_reward)
            for solution_rewards, expected_rewards in zip(rewards, expected, strict=True)
            for reward, expected_reward in zip(
                solution_rewards or [], expected_rewards or [], strict=True
            )
        )
        assert max_difference < 1e-4, f"{name} differs from the scorer by {max_difference}"


def print_rates(seconds: dict[str, list[float]], *, n_solutions: int, n_steps: int) -> None:
    """Print the rates of each variant, and the ratio of its time to the scorer's."""
    scorer_seconds = seconds["scorer"]
    for name, variant_seconds in seconds.items():
        median_seconds = statistics.median(variant_seconds)
        ratios = sorted(
            variant / scorer
            for variant, scorer in zip(variant_seconds, scorer_seconds, strict=True)
        )
        print(
            f"{name:<13} {n_solutions / median_seconds:8,.0f} solutions/s "
            f"{n_steps / median_seconds:9,.0f} steps/s   "
            f"{statistics.median(ratios):5.2f} x the scorer's time "
            f"(from {ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    typer.run(main)
