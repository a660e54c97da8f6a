"""Simulate how often each 95 % interval covers the truth.

    python benchmarks/intervals/interval_coverage.py [--repeats 2000] [--seed 0] [--only study]

Each row draws a set of problems from a population with a known mean, `--repeats` times. It prints
how often the interval covers that mean, how often it lies wholly above or below it, and its mean
width. With 2,000 repeats, the standard error of a coverage of 95 % is 0.5 points. Populations near
0 and 1 are the hard ones: most draws contain none of the few problems that decide the mean.

Every function that returns an interval has rows:

- ``wilson_interval``: accuracy on independent problems. The first errors of a reward model and the
  series of recorded responses use the same function.
- ``proportion``: accuracy, avg@n and pass@k.
- ``mean_interval``: the rows of ``proportion`` for clusters, and solutions per problem, which is
  the accuracy in the manifest of a dataset.
- ``macro_average`` and ``macro_difference``: means over benchmarks.
- ``paired_interval``: paired differences of accuracies, also on clusters.
- ``mean_difference``: paired avg@n and pass@k, also on clusters.
- ``auc_interval`` and ``mean_auc``: AUCs. The training of reward models uses the same functions.
- ``margin_interval``: the margin of step rewards.
- ``estimate``: the study.
- ``Bootstrap.mean``: the accuracy of best-of-N and of votes, and their paired differences.
"""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import typer
from fsdpo_bench.intervals import (
    macro_average,
    macro_difference,
    mean_difference,
    paired_interval,
    pass_at_k,
    proportion,
)
from fsdpo_bench.prm.dataset_report import margin_interval
from fsdpo_bench.rerank.intervals import Bootstrap

from fsdpo_data.core.statistics import auc_interval, mean_auc, mean_interval, problem_aucs

sys.path.insert(0, str(Path(__file__).parents[1] / "study"))
from measure import estimate

#: Number of problems of a population from which its true mean is computed.
POPULATION_PROBLEMS = 400_000

Generator = np.random.Generator
Interval = tuple[float, float]
#: Draws the probability of a correct sample for each of n problems.
Population = Callable[[Generator, int], np.ndarray]


@dataclass(frozen=True)
class Case:
    """An interval on one population."""

    name: str  #: Name of the statistic and of the population.
    truth: float  #: Value that the interval should cover.
    draw_interval: Callable[[Generator], Interval | None]  #: Interval of one random draw.


@dataclass(frozen=True)
class Coverage:
    """The result of one case."""

    covered: float  #: Fraction of the draws whose interval contains the truth.
    above: float  #: Fraction of the draws whose interval is above the truth.
    below: float  #: Fraction of the draws whose interval is below the truth.
    width: float  #: Mean width of the intervals.


POPULATIONS: dict[str, Population] = {
    "beta(1, 3)": lambda rng, n: rng.beta(1, 3, n),
    "beta(1, 1)": lambda rng, n: rng.beta(1, 1, n),
    "beta(2, 0.5)": lambda rng, n: rng.beta(2, 0.5, n),
    "beta(5, 1)": lambda rng, n: rng.beta(5, 1, n),
    "3 % hard": lambda rng, n: np.where(
        rng.random(n) < 0.03, rng.beta(0.3, 10, n), rng.beta(5, 1, n)
    ),
}


def main(repeats: int = 2000, seed: int = 0, only: str = "") -> None:
    """Print one row per case whose name contains ``only``."""
    print(f"{'':64}{'truth':>8}{'covered':>9}{'above':>8}{'below':>8}{'width':>8}")
    lowest = 1.0
    for case in make_cases(seed):
        if only not in case.name:
            continue
        result = measure_coverage(case, np.random.default_rng(seed + 1), repeats)
        print(
            f"{case.name:64}{case.truth:8.4f}{result.covered:9.1%}{result.above:8.1%}"
            f"{result.below:8.1%}{result.width:8.4f}",
            flush=True,
        )
        lowest = min(lowest, result.covered)
    print(f"lowest coverage {lowest:.1%}")


def measure_coverage(case: Case, rng: Generator, repeats: int) -> Coverage:
    """Draw the interval of ``case`` ``repeats`` times; draws without an interval do not count."""
    intervals = [case.draw_interval(rng) for _ in range(repeats)]
    bounds = np.array([interval for interval in intervals if interval is not None])
    low, high = bounds[:, 0], bounds[:, 1]
    return Coverage(
        covered=float(np.mean((low <= case.truth) & (case.truth <= high))),
        above=float(np.mean(low > case.truth)),
        below=float(np.mean(high < case.truth)),
        width=float(np.mean(high - low)),
    )


def make_cases(seed: int) -> Iterator[Case]:
    """Yield the cases, statistic by statistic."""
    yield from accuracy_cases()
    yield from clustered_accuracy_cases()
    yield from sampled_cases(np.random.default_rng(seed))
    yield from macro_average_cases()
    yield from paired_cases()
    yield from paired_mean_cases(np.random.default_rng(seed))
    yield from paired_cluster_cases(np.random.default_rng(seed))
    yield from macro_difference_cases(np.random.default_rng(seed))
    yield from auc_cases(np.random.default_rng(seed))
    yield from paired_accuracy_cluster_cases(np.random.default_rng(seed))
    yield from unequal_group_cases()
    yield from margin_cases(np.random.default_rng(seed))
    yield from study_cases()
    yield from rerank_cases(np.random.default_rng(seed))


def accuracy_cases() -> Iterator[Case]:
    """Yield Wilson's interval of the accuracy on independent problems."""
    for n_problems in (30, 500):
        for accuracy in (0.5, 0.9, 0.98):

            def draw(
                rng: Generator, n_problems: int = n_problems, accuracy: float = accuracy
            ) -> Interval | None:
                return proportion((rng.random(n_problems) < accuracy).tolist()).ci95

            yield Case(f"accuracy, {n_problems} problems", accuracy, draw)


def clustered_accuracy_cases() -> Iterator[Case]:
    """Yield the interval of the accuracy on problems in clusters of eight variants."""
    for n_clusters in (20, 200):
        for accuracy in (0.5, 0.95):

            def draw(
                rng: Generator, n_clusters: int = n_clusters, accuracy: float = accuracy
            ) -> Interval | None:
                ease = rng.beta(2 * accuracy, 2 * (1 - accuracy), n_clusters)
                is_right = rng.random((n_clusters, 8)) < ease[:, None]
                clusters = np.repeat(np.arange(n_clusters), 8).tolist()
                return proportion(is_right.ravel().astype(float).tolist(), clusters).ci95

            yield Case(f"accuracy, {n_clusters} clusters of 8", accuracy, draw)


def sampled_cases(rng: Generator) -> Iterator[Case]:
    """Yield the intervals of avg@n and of pass@k."""
    for population_name, population in POPULATIONS.items():
        probabilities = population(rng, POPULATION_PROBLEMS)
        for n_problems, n_samples, k in (
            *((30, 8, 1), (500, 8, 1)),
            *((30, 64, 8), (100, 16, 8), (500, 8, 4), (500, 64, 32)),
        ):
            name = f"avg@{n_samples}" if k == 1 else f"pass@{k} of {n_samples}"

            def draw(
                rng: Generator,
                population: Population = population,
                n_problems: int = n_problems,
                n_samples: int = n_samples,
                k: int = k,
            ) -> Interval | None:
                correct = rng.binomial(n_samples, population(rng, n_problems))
                values = _pass_at_k_table(n_samples, k)[correct]
                return proportion(values.tolist(), trials=n_samples).ci95

            truth = float(np.mean(1 - (1 - probabilities) ** k))
            yield Case(f"{name}, {n_problems} problems, {population_name}", truth, draw)


@cache
def _pass_at_k_table(n_samples: int, k: int) -> np.ndarray:
    """Return pass@k by the number of correct samples."""
    return np.array([pass_at_k(n_samples, correct, k) for correct in range(n_samples + 1)])


def macro_average_cases() -> Iterator[Case]:
    """Yield the interval of the mean over three benchmarks of different sizes."""
    for accuracies in ((0.3, 0.5, 0.8), (0.9, 0.95, 0.99)):

        def draw(rng: Generator, accuracies: tuple[float, ...] = accuracies) -> Interval | None:
            return macro_average(
                [
                    proportion((rng.random(n_problems) < accuracy).tolist())
                    for n_problems, accuracy in zip((30, 200, 500), accuracies, strict=True)
                ]
            ).ci95

        name = ", ".join(f"{accuracy:.0%}" for accuracy in accuracies)
        yield Case(f"mean of three benchmarks, {name}", math.fsum(accuracies) / 3, draw)


def paired_cases() -> Iterator[Case]:
    """Yield the interval of the difference of two accuracies on the same problems."""
    for n_problems in (30, 500):
        for won, lost in ((0.1, 0.05), (0.02, 0.0), (0.3, 0.3)):

            def draw(
                rng: Generator, n_problems: int = n_problems, won: float = won, lost: float = lost
            ) -> Interval | None:
                gains = rng.choice([1, -1, 0], n_problems, p=[won, lost, 1 - won - lost])
                return paired_interval(gains.tolist())

            name = f"paired difference, {n_problems} problems, {won:.0%} won, {lost:.0%} lost"
            yield Case(name, won - lost, draw)


@dataclass(frozen=True)
class PolicyPair:
    """Two policies on one population of problems."""

    #: Draws the probabilities of a correct sample of both policies, each an array of this shape.
    draw: Callable[[Generator, tuple[int, ...]], tuple[np.ndarray, np.ndarray]]

    def values(
        self, rng: Generator, shape: tuple[int, ...], n_samples: int, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw the values of both policies: pass@k of each problem, which is avg@n for k = 1."""
        first, second = self.draw(rng, shape)
        table = _pass_at_k_table(n_samples, k)
        return table[rng.binomial(n_samples, first)], table[rng.binomial(n_samples, second)]

    def differences(
        self, rng: Generator, shape: tuple[int, ...], n_samples: int, k: int
    ) -> np.ndarray:
        """Draw the paired differences of the problems."""
        first, second = self.values(rng, shape, n_samples, k)
        return second - first

    def true_difference(self, rng: Generator, k: int) -> float:
        """Return the true difference of pass@k, from one large population."""
        first, second = self.draw(rng, (POPULATION_PROBLEMS,))
        return float(np.mean((1 - first) ** k - (1 - second) ** k))


def _same_policies(a: float, b: float) -> PolicyPair:
    """Return two equal policies."""

    def draw(rng: Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        probabilities = rng.beta(a, b, shape)
        return probabilities, probabilities

    return PolicyPair(draw)


def _policies_by_problem(share: float, a: float, b: float) -> PolicyPair:
    """Return policies that differ on a share of the problems, which only the second solves."""

    def draw(rng: Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        is_changed = rng.random(shape) < share
        common = rng.beta(a, b, shape)
        first = np.where(is_changed, rng.beta(0.5, 20, shape), common)
        second = np.where(is_changed, rng.beta(20, 0.5, shape), common)
        return first, second

    return PolicyPair(draw)


def _independent_policies(a: float, b: float) -> PolicyPair:
    """Return policies whose problems have independent probabilities, of mirrored populations."""

    def draw(rng: Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        return rng.beta(a, b, shape), rng.beta(b, a, shape)

    return PolicyPair(draw)


POLICY_PAIRS: dict[str, PolicyPair] = {
    "equal": _same_policies(1, 1),
    "equal, near 1": _same_policies(60, 1),
    "3 % of problems gained": _policies_by_problem(0.03, 5, 1),
    "1 % gained, near 1": _policies_by_problem(0.01, 60, 1),
    "half gained": _policies_by_problem(0.5, 1, 1),
    "97 % gained": _policies_by_problem(0.97, 1, 1),
    "difference near 1": _independent_policies(0.5, 20),
    "unrelated": _independent_policies(1, 1),
}


def paired_mean_cases(rng: Generator) -> Iterator[Case]:
    """Yield the interval of the paired difference of avg@8 and of pass@4."""
    for pair_name, pair in POLICY_PAIRS.items():
        for n_problems, k in ((30, 1), (500, 1), (30, 4), (500, 4)):

            def draw(
                rng: Generator, pair: PolicyPair = pair, n_problems: int = n_problems, k: int = k
            ) -> Interval:
                return mean_difference(pair.differences(rng, (n_problems,), 8, k).tolist()).ci95

            name = "avg@8" if k == 1 else f"pass@{k} of 8"
            truth = pair.true_difference(rng, k)
            yield Case(f"paired {name}, {n_problems} problems, {pair_name}", truth, draw)


def _draw_variants(
    pair: PolicyPair, rng: Generator, n_clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the accuracies of two policies on clusters of eight variants of a base problem."""
    first, second = pair.draw(rng, (n_clusters, 1))
    shape = (n_clusters, 8)
    return np.broadcast_to(first, shape), np.broadcast_to(second, shape)


def _clusters(n_clusters: int) -> list[int]:
    """Return the cluster of each of eight variants."""
    clusters: list[int] = np.repeat(np.arange(n_clusters), 8).tolist()
    return clusters


def paired_cluster_cases(rng: Generator) -> Iterator[Case]:
    """Yield the interval of the paired avg@8 on clusters of eight variants of a base problem."""
    for pair_name in ("equal", "3 % of problems gained", "half gained", "difference near 1"):
        pair = POLICY_PAIRS[pair_name]
        for n_clusters in (20, 200):

            def draw(
                rng: Generator, pair: PolicyPair = pair, n_clusters: int = n_clusters
            ) -> Interval:
                first, second = _draw_variants(pair, rng, n_clusters)
                differences = (rng.binomial(8, second) - rng.binomial(8, first)) / 8
                return mean_difference(differences.ravel().tolist(), _clusters(n_clusters)).ci95

            truth = pair.true_difference(rng, 1)
            yield Case(f"paired avg@8, {n_clusters} clusters of 8, {pair_name}", truth, draw)


def macro_difference_cases(rng: Generator) -> Iterator[Case]:
    """Yield the interval of the mean paired avg@8 over benchmarks of 30, 200 and 500 problems."""
    for pair_name in ("equal, near 1", "3 % of problems gained", "half gained"):
        pair = POLICY_PAIRS[pair_name]

        def draw(rng: Generator, pair: PolicyPair = pair) -> Interval:
            singles = [
                mean_difference(pair.differences(rng, (n_problems,), 8, 1).tolist())
                for n_problems in (30, 200, 500)
            ]
            return macro_difference(
                [single.value for single in singles], [single.ci95 for single in singles], 730
            ).ci95

        truth = pair.true_difference(rng, 1)
        yield Case(f"paired avg@8, mean of three benchmarks, {pair_name}", truth, draw)


def auc_cases(rng: Generator) -> Iterator[Case]:
    """Yield the intervals of the pooled AUC and of the mean AUC within problems."""
    for shift in (0.5, 2.0):
        pooled, within = _true_aucs(rng, shift)
        for n_problems in (30, 300):

            def draw_pooled(
                rng: Generator, n_problems: int = n_problems, shift: float = shift
            ) -> Interval | None:
                return auc_interval(*_draw_scores(rng, n_problems, shift))

            def draw_within(
                rng: Generator, n_problems: int = n_problems, shift: float = shift
            ) -> Interval | None:
                return mean_auc(problem_aucs(*_draw_scores(rng, n_problems, shift))).ci95

            yield Case(f"pooled AUC, {n_problems} problems", pooled, draw_pooled)
            yield Case(f"AUC within problems, {n_problems} problems", within, draw_within)


def _true_aucs(rng: Generator, shift: float) -> tuple[float, float]:
    """Return the pooled AUC and the mean AUC within problems, by one large draw."""
    from fsdpo_data.core.statistics import auc

    problems, scores, labels = _draw_scores(rng, 40_000, shift)
    within = mean_auc(problem_aucs(problems, scores, labels)).value
    return auc(scores, labels) or math.nan, math.nan if within is None else within


def _draw_scores(rng: Generator, n_problems: int, shift: float) -> tuple[Any, Any, Any]:
    """Draw eight scored items per problem: (problems, scores, labels) of the items.

    Right items score ``shift`` higher. Easy problems have higher scores and more right items.
    """
    ease = rng.normal(0, 1, n_problems)
    is_right = rng.random((n_problems, 8)) < 0.3 + 0.4 * (ease > 0)[:, None]
    scores = rng.normal(ease[:, None] + shift * is_right, 1)
    problems = np.repeat(np.arange(n_problems), 8)
    return problems.tolist(), scores.ravel().tolist(), is_right.ravel().tolist()


def paired_accuracy_cluster_cases(rng: Generator) -> Iterator[Case]:
    """Yield the interval of the difference of two accuracies on clusters of eight variants."""
    for pair_name in ("equal", "3 % of problems gained", "half gained", "unrelated"):
        pair = POLICY_PAIRS[pair_name]
        for n_clusters in (20, 200):

            def draw(
                rng: Generator, pair: PolicyPair = pair, n_clusters: int = n_clusters
            ) -> Interval:
                first, second = _draw_variants(pair, rng, n_clusters)
                gains = (rng.random(second.shape) < second).astype(int)
                gains -= rng.random(first.shape) < first
                return paired_interval(gains.ravel().tolist(), _clusters(n_clusters))

            truth = pair.true_difference(rng, 1)
            yield Case(f"paired accuracy, {n_clusters} clusters of 8, {pair_name}", truth, draw)


def unequal_group_cases() -> Iterator[Case]:
    """Yield the interval of the accuracy over problems with 1 to 16 graded solutions."""
    for n_problems in (10, 30, 300):
        for accuracy in (0.5, 0.95):

            def draw(
                rng: Generator, n_problems: int = n_problems, accuracy: float = accuracy
            ) -> Interval | None:
                counts = rng.integers(1, 17, n_problems)
                ease = rng.beta(2 * accuracy, 2 * (1 - accuracy), n_problems)
                correct = rng.binomial(counts, ease)
                return mean_interval(list(zip(correct.tolist(), counts.tolist(), strict=True)))

            yield Case(f"accuracy, {n_problems} problems of 1 to 16 solutions", accuracy, draw)


@dataclass(frozen=True)
class RewardModel:
    """The distribution of the step rewards of a reward model, in [0, 1]."""

    #: Draws the mean reward of right and of wrong steps of n problems.
    draw_means: Callable[[Generator, int], tuple[np.ndarray, np.ndarray]]
    #: Concentration of the rewards around their means.
    concentration: float = 4.0


REWARD_MODELS: dict[str, RewardModel] = {
    "no margin": RewardModel(lambda rng, n: (rng.beta(2, 2, n),) * 2),
    "small margin": RewardModel(lambda rng, n: (rng.beta(6, 4, n), rng.beta(4, 6, n))),
    "large margin": RewardModel(lambda rng, n: (rng.beta(40, 1, n), rng.beta(1, 40, n))),
    "3 % with a margin": RewardModel(
        lambda rng, n: (rng.beta(20, 1, n), np.where(rng.random(n) < 0.03, 0.05, 0.95))
    ),
    "near 1, 3 % failures": RewardModel(
        lambda rng, n: (rng.beta(60, 1, n), np.where(rng.random(n) < 0.03, 0.95, 0.02)), 40.0
    ),
}


def _draw_margins(
    rng: Generator, model: RewardModel, n_problems: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw three right and three wrong steps per problem: (margin of each problem, all rewards)."""
    right_means, wrong_means = model.draw_means(rng, n_problems)
    means = np.repeat(np.stack([right_means, wrong_means], axis=1), 3, axis=1).clip(0.01, 0.99)
    rewards = rng.beta(means * model.concentration, (1 - means) * model.concentration)
    return rewards[:, :3].mean(1) - rewards[:, 3:].mean(1), rewards


def margin_cases(rng: Generator) -> Iterator[Case]:
    """Yield the interval of the margin of step rewards."""
    for name, model in REWARD_MODELS.items():
        truth = float(_draw_margins(rng, model, POPULATION_PROBLEMS)[0].mean())
        for n_problems in (10, 30, 300):

            def draw(
                rng: Generator, model: RewardModel = model, n_problems: int = n_problems
            ) -> Interval | None:
                margins, rewards = _draw_margins(rng, model, n_problems)
                return margin_interval(margins.tolist(), rewards.ravel().tolist())

            yield Case(f"margin of step rewards, {n_problems} problems, {name}", truth, draw)


#: Resamples of the bootstrap of the study in the simulation; the study itself uses more.
STUDY_RESAMPLES = 500


def study_cases() -> Iterator[Case]:
    """Yield the interval of the study: seeds of a training, each with 96 problems of its own."""
    for n_seeds in (1, 3, 5, 10):
        for seed_deviation in (0.0, 0.02, 0.1):
            if n_seeds == 1 and seed_deviation:
                continue  # one seed does not show how much seeds differ

            def draw(
                rng: Generator, n_seeds: int = n_seeds, seed_deviation: float = seed_deviation
            ) -> Interval:
                effects = rng.normal(0.05, seed_deviation, (n_seeds, 1))
                values = rng.normal(effects, 0.3, (n_seeds, 96))
                result = estimate(values, resamples=STUDY_RESAMPLES)
                return result.low, result.high

            seeds = "1 seed" if n_seeds == 1 else f"{n_seeds} seeds"
            deviation = f"deviation of seeds {seed_deviation:.2f}"
            yield Case(f"study, {seeds} of 96 problems, {deviation}", 0.05, draw)


def rerank_cases(rng: Generator) -> Iterator[Case]:
    """Yield the bootstrap interval of best-of-N and of votes, and of their paired difference."""
    for n_problems in (30, 100, 500):
        bootstrap = Bootstrap(n_problems, seed=0)
        for accuracy in (0.5, 0.9, 0.98):

            def draw_accuracy(
                rng: Generator,
                bootstrap: Bootstrap = bootstrap,
                n_problems: int = n_problems,
                accuracy: float = accuracy,
            ) -> Interval:
                return bootstrap.mean((rng.random(n_problems) < accuracy).astype(float)).ci95

            yield Case(f"rerank, {n_problems} problems", accuracy, draw_accuracy)
        for pair_name in ("equal", "3 % of problems gained", "half gained", "unrelated"):
            pair = POLICY_PAIRS[pair_name]

            def draw_difference(
                rng: Generator,
                bootstrap: Bootstrap = bootstrap,
                n_problems: int = n_problems,
                pair: PolicyPair = pair,
            ) -> Interval:
                return bootstrap.mean(pair.differences(rng, (n_problems,), 8, 1)).ci95

            truth = pair.true_difference(rng, 1)
            yield Case(
                f"rerank difference, {n_problems} problems, {pair_name}", truth, draw_difference
            )


if __name__ == "__main__":
    typer.run(main)
