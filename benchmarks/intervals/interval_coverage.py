"""Simulate how often each 95 % interval covers the truth.

    python benchmarks/intervals/interval_coverage.py [--repeats 2000] [--seed 0]

Each row draws problems from a population with a known mean, `--repeats` times. It prints how often
the interval covers that mean, and its mean width. With 2,000 repeats, the standard error of a
coverage of 95 % is 0.5 points.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import typer
from fsdpo_bench.decoders.estimators import pass_at_k

from fsdpo_data.agreement.kappa import cohen_kappa, kappa_interval
from fsdpo_data.core.statistics import (
    Interval,
    auc,
    auc_interval,
    mean_difference,
    mean_rate,
    ranking_auc,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "study"))
from measure import estimate

Generator = np.random.Generator
Items = tuple[list[int], list, list[bool]]  #: Problem, first and second value of each item.

#: Resamples of the bootstrap of the study in the simulation; the study itself uses more.
STUDY_RESAMPLES = 500
#: Number of problems of a population from which its true mean is computed.
POPULATION_PROBLEMS = 20_000


@dataclass(frozen=True)
class Case:
    """An interval on one population."""

    name: str  #: Name of the statistic and of the population.
    truth: float  #: Value that the interval should cover.
    draw_interval: Callable[[Generator], Interval | None]  #: Interval of one random draw.


def main(repeats: int = 2000, seed: int = 0) -> None:
    """Print one row per case."""
    print(f"{'':56}{'truth':>8}{'covered':>9}{'width':>8}")
    for case in make_cases(seed):
        rng = np.random.default_rng(seed + 1)
        intervals = [case.draw_interval(rng) for _ in range(repeats)]
        bounds = np.array([interval for interval in intervals if interval is not None])
        low, high = bounds.T
        covered = np.mean((low <= case.truth) & (case.truth <= high))
        width = np.mean(high - low)
        print(f"{case.name:56}{case.truth:8.4f}{covered:9.1%}{width:8.4f}", flush=True)


def make_cases(seed: int) -> Iterator[Case]:
    """Yield the cases, statistic by statistic."""
    for n_problems, accuracy in ((30, 0.9), (30, 0.98), (100, 0.98), (500, 0.98)):
        draw = partial(draw_accuracy, n_problems=n_problems, accuracy=accuracy)
        yield Case(f"accuracy, {n_problems} problems", accuracy, draw)
    yield Case("accuracy, 20 clusters of 8", 0.95, draw_clustered_accuracy)
    yield Case("pass@4 of 8, 500 problems", pass_at_4_of_population(), draw_pass_at_4)
    yield Case("paired accuracy, 500 problems, 2 % won", 0.02, draw_paired_accuracy)
    for n_problems, samples in ((30, 8), (30, 64), (200, 4)):
        draw = partial(draw_paired_mean, n_problems=n_problems, samples=samples)
        yield Case(f"paired avg@{samples}, {n_problems} problems, equal policies", 0.0, draw)
    yield Case("paired avg@8, 20 clusters of 8, equal policies", 0.0, draw_clustered_mean)
    yield Case("paired avg@4, 300 problems, 5 % gain a half", 0.025, draw_rare_gain)
    rng = np.random.default_rng(seed)
    items = draw_scores(rng, POPULATION_PROBLEMS)
    yield Case("ranking AUC, 30 problems", ranking_auc(*items).value, draw_ranking_auc)
    yield Case("AUC over all items, 30 problems", auc(*items[1:]), draw_pooled_auc)
    for n_problems in (30, 200):
        _, first, second = draw_labels(rng, POPULATION_PROBLEMS)
        draw = partial(draw_kappa, n_problems=n_problems)
        yield Case(f"kappa, {n_problems} problems", cohen_kappa(first, second), draw)
    for n_seeds in (3, 5):
        for deviation in (0.02, 0.1):
            draw = partial(draw_study, n_seeds=n_seeds, deviation=deviation)
            yield Case(f"study, {n_seeds} seeds, deviation of seeds {deviation:.2f}", 0.05, draw)


def draw_accuracy(rng: Generator, n_problems: int, accuracy: float) -> Interval | None:
    """Return the interval of the accuracy on independent problems."""
    return mean_rate(rng.random(n_problems) < accuracy).ci95


def draw_clustered_accuracy(rng: Generator) -> Interval | None:
    """Return the interval of the accuracy on clusters of variants of a base problem."""
    ease = rng.beta(1.9, 0.1, 20)
    is_right = rng.random((20, 8)) < ease[:, None]
    clusters = np.repeat(np.arange(20), 8).tolist()
    return mean_rate(is_right.ravel(), clusters).ci95


def pass_at_4_of_population() -> float:
    """Return the mean of 1 - (1 - p)^4 over a beta(2, 0.5) distribution of p."""
    # The fourth moment of 1 - p, whose distribution is beta(0.5, 2).
    moments = [(0.5 + power) / (2.5 + power) for power in range(4)]
    return 1 - float(np.prod(moments))


def draw_pass_at_4(rng: Generator) -> Interval | None:
    """Return the interval of pass@4 of 8 samples of each problem."""
    correct = rng.binomial(8, rng.beta(2, 0.5, 500))
    return mean_rate([pass_at_k(8, count, 4) for count in correct.tolist()]).ci95


def draw_paired_accuracy(rng: Generator) -> Interval:
    """Return the interval of the difference of two accuracies on the same problems."""
    return mean_difference(rng.choice([1, 0], 500, p=[0.02, 0.98])).ci95


def draw_paired_mean(rng: Generator, n_problems: int, samples: int) -> Interval:
    """Return the interval of the difference of avg@k of two equal policies."""
    probabilities = rng.beta(1, 1, n_problems)
    differences = rng.binomial(samples, probabilities) - rng.binomial(samples, probabilities)
    return mean_difference(differences / samples).ci95


def draw_clustered_mean(rng: Generator) -> Interval:
    """Return the same interval on clusters whose problems gain or lose together."""
    base = rng.uniform(0.2, 0.8, (20, 1))
    shift = rng.uniform(-0.2, 0.2, (20, 1))
    differences = rng.binomial(8, base + shift, (20, 8)) - rng.binomial(8, base, (20, 8))
    clusters = np.repeat(np.arange(20), 8).tolist()
    return mean_difference((differences / 8).ravel(), clusters).ci95


def draw_rare_gain(rng: Generator) -> Interval:
    """Return the interval where few problems change at all."""
    return mean_difference(rng.choice([0.5, 0.0], 300, p=[0.05, 0.95])).ci95


def draw_scores(rng: Generator, n_problems: int) -> Items:
    """Draw eight scored items per problem; right items score higher."""
    ease = rng.normal(0, 1, n_problems)
    is_right = rng.random((n_problems, 8)) < 0.3 + 0.4 * (ease > 0)[:, None]
    scores = rng.normal(ease[:, None] + 0.5 * is_right, 1)
    problems = np.repeat(np.arange(n_problems), 8)
    return problems.tolist(), scores.ravel().tolist(), is_right.ravel().tolist()


def draw_ranking_auc(rng: Generator) -> Interval | None:
    """Return the interval of the mean AUC within problems."""
    return ranking_auc(*draw_scores(rng, 30)).ci95


def draw_pooled_auc(rng: Generator) -> Interval | None:
    """Return the interval of the AUC over the items of all problems."""
    return auc_interval(*draw_scores(rng, 30))


def draw_labels(rng: Generator, n_problems: int) -> Items:
    """Draw six steps per problem, with the labels of two labellers."""
    rates = rng.beta(2, 1, (n_problems, 1))
    noise = rng.beta(1, 4, (n_problems, 1))
    first = rng.random((n_problems, 6)) < rates
    second = first ^ (rng.random((n_problems, 6)) < noise)
    problems = np.repeat(np.arange(n_problems), 6)
    return problems.tolist(), first.ravel().tolist(), second.ravel().tolist()


def draw_kappa(rng: Generator, n_problems: int) -> Interval | None:
    """Return the interval of the kappa of two labellers."""
    return kappa_interval(*draw_labels(rng, n_problems))


def draw_study(rng: Generator, n_seeds: int, deviation: float) -> Interval:
    """Return the interval of the study: seeds of a training, each with problems of its own."""
    effects = rng.normal(0.05, deviation, (n_seeds, 1))
    values = rng.normal(effects, 0.3, (n_seeds, 96))
    return estimate(values, resamples=STUDY_RESAMPLES).ci95


if __name__ == "__main__":
    typer.run(main)
