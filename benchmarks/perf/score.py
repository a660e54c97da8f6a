"""Solutions and steps per second of the PRM scorer, against the ways others score.

    python benchmarks/perf/score.py [--problems 24] [--samples 16] [--rounds 3] [--threads 1] \
        [--published] [--model DIR] [--actors N]

Everything runs on the same solutions of the embedded world, with the same random head on the
embedded model or that in DIR, in one process, in an order that turns from round to round:

- `scorer`: what `fsdpo-data score` runs: batches of like length, a prompt computed once;
- `no sharing`: the same, the prompt computed for every solution;
- `step by step`: one forward pass per step, each of the solution up to there.

`--published` scores as TRL's models are, with two classes and a mark behind each step, in place of
a model of our own.

`--actors N` times N copies on a Ray cluster against one instead, each on `--threads` cores, by the
clock: the machine has to be idle. Solutions of a problem stand together, as in a dataset: parted,
each copy would compute its prompt. Problems with many steps come first, so halves are uneven. The
same for N processes without Ray tells what the machine allows: cores share their memory.

Solutions are different from each other, so that repeated texts give no advantage. The times are
process times; the ratios are what counts. The rewards of all must agree.
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
from fsdpo_data.engines.load import load_scorer
from fsdpo_data.engines.samplers import close_engine
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.prm import PrmScorer
from fsdpo_data.problems.embedded import CHECKPOINT, PROMPT
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import write_solution

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from bare_scorers import ALONE, bare
from random_model import save_random_prm

Rewards = list[list[float] | None]


def main(
    problems: int = 24,
    samples: int = 16,
    rounds: int = 3,
    threads: int = 1,
    published: bool = False,
    model: Path = CHECKPOINT,
    actors: int = 1,
) -> None:
    """Time the ways of scoring, in turns."""
    os.environ["OMP_NUM_THREADS"] = str(threads)  # of processes started here
    torch.set_num_threads(threads)
    items = solutions(problems, samples)
    steps = sum(len(item.steps) for item in items)
    print(f"{len(items)} solutions, {steps} steps")
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        prm = save_random_prm(Path(folder), model, labels=2 if published else 1)
        if actors > 1:
            return spread(str(prm), items, actors, rounds)
        ways = make_ways(prm)
        agree({name: score(items) for name, score in ways.items()})  # warms up, too
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds):
            names = list(ways) if number % 2 else list(reversed(ways))
            for name in names:
                started = time.process_time()
                ways[name](items)
                seconds[name].append(time.process_time() - started)
    report(seconds, len(items), steps)


def spread(prm: str, items: Sequence[ScorerInput], actors: int, rounds: int) -> None:
    """Time one copy and several, on a Ray cluster and as bare processes, in turns."""
    problems: dict[str | None, list[ScorerInput]] = {}
    for item in items:
        problems.setdefault(item.question, []).append(item)
    order = sorted(problems.values(), key=lambda some: -sum(len(each.steps) for each in some))
    ratios: dict[str, list[float]] = {"actors": [], "processes without Ray": []}
    for number in range(rounds):
        for name, way in zip(ratios, (over_ray, bare), strict=True):
            counts = (1, actors) if number % 2 else (actors, 1)
            seconds = {count: way(prm, order, count) for count in counts}
            ratios[name].append(seconds[1] / seconds[actors])
    for name, found in ratios.items():
        print(f"{actors} {name}: {statistics.median(found):.2f} x as fast, median of {rounds}")


def over_ray(prm: str, problems: Sequence[list[ScorerInput]], count: int) -> float:
    """Seconds that so many actors take for all solutions."""
    items = [item for some in problems for item in some]
    copies = load_scorer(prm, replace(ALONE, engine="ray", actors=count))
    copies.score(items)
    started = time.perf_counter()
    copies.score(items)
    seconds = time.perf_counter() - started
    close_engine(copies)
    return seconds


def solutions(problems: int, samples: int) -> list[ScorerInput]:
    """Different solutions of many lengths: right ones, wrong ones, and ones that go on and on."""
    rng = random.Random(0)
    items = []
    for problem in make_problems("test", problems):
        prompt = PROMPT.format(question=problem.question)
        for sample in range(samples):
            steps = write_solution(problem, rng, 0.3)
            # Sampled solutions differ in length by more than demonstrations do.
            more = [f"Step {k}: that is {sample} and {k}.\n" for k in range(rng.randrange(8))]
            steps = [*(s.rstrip("\n") + "\n" for s in steps), *more]
            items.append(ScorerInput(prompt, steps, problem.question))
    return items


def make_ways(folder: Path) -> dict[str, Callable[[Sequence[ScorerInput]], Rewards]]:
    ours, apart = (load_scorer(str(folder), ALONE) for _ in range(2))
    assert isinstance(apart, PrmScorer)
    apart._can_share_prompts = False
    step_wise = partial(step_by_step, apart)
    return {"scorer": ours.score, "no sharing": apart.score, "step by step": step_wise}


def step_by_step(scorer: PrmScorer, items: Sequence[ScorerInput]) -> Rewards:
    def reward(item: ScorerInput, count: int) -> float:
        beginning = scorer._encode(replace(item, steps=item.steps[:count]))
        return scorer._activate(scorer._compute_logits([beginning]))[0, -1].item()

    return [[reward(item, n + 1) for n in range(len(item.steps))] for item in items]


def agree(found: dict[str, Rewards]) -> None:
    expected = found["scorer"]
    for name, rewards in found.items():
        pairs = (zip(a or [], b or [], strict=True) for a, b in zip(rewards, expected, strict=True))
        worst = max(abs(a - b) for pair in pairs for a, b in pair)
        assert worst < 1e-4, f"{name} differs from the scorer by {worst}"


def report(seconds: dict[str, list[float]], n_solutions: int, n_steps: int) -> None:
    ours = seconds["scorer"]
    for name, taken in seconds.items():
        best = statistics.median(taken)
        ratios = sorted(theirs / our for theirs, our in zip(taken, ours, strict=True))
        print(
            f"{name:<13} {n_solutions / best:8,.0f} solutions/s {n_steps / best:9,.0f} steps/s   "
            f"{statistics.median(ratios):5.2f} x the scorer's time "
            f"(from {ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    typer.run(main)
