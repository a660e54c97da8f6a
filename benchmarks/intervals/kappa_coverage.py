"""Simulate how often the clustered 95 % interval of Cohen's kappa covers the truth.

    python benchmarks/intervals/kappa_coverage.py [--repeats 1000] [--seed 0]

Each problem has solutions whose steps are right up to an error. The labeller repeats the labels of
the reference, except in solutions that it reads wrongly, where it draws its own error. Problems
differ in their error rate and in how well the labeller reads them, so steps of a problem depend on
each other. The true kappa comes from a population of many problems.
"""

import argparse
from dataclasses import dataclass

import numpy as np

from fsdpo_data.agreement.kappa import cohen_kappa, kappa_interval

#: Number of problems from which the true kappa is computed.
POPULATION_PROBLEMS = 40_000
SOLUTIONS = 4  #: Solutions of a problem.
MAX_STEPS = 8  #: Largest number of steps of a solution; the smallest is 2.


@dataclass(frozen=True)
class StepPopulation:
    """A population of problems."""

    problems: int  #: Problems of one draw.
    error_rate: float  #: Mean probability that a solution has an error.
    misread_rate: float  #: Mean probability that the labeller misreads a solution.
    spread: float  #: Sum of the parameters of the beta distributions; small for unlike problems.


CASES = [
    StepPopulation(problems, error_rate, misread_rate, spread)
    for problems in (30, 200)
    for error_rate in (0.5, 0.1)
    for misread_rate in (0.4, 0.1, 0.02)
    for spread in (2.0, 20.0)
]


def draw(
    rng: np.random.Generator, case: StepPopulation, problems: int
) -> tuple[list[int], list, list]:
    """Return the problem of each step, and both labels of each step."""
    names: list[int] = []
    reference: list[bool] = []
    labeller: list[bool] = []
    for problem in range(problems):
        error_rate = rng.beta(case.error_rate * case.spread, (1 - case.error_rate) * case.spread)
        misread_rate = rng.beta(
            case.misread_rate * case.spread, (1 - case.misread_rate) * case.spread
        )
        for _ in range(SOLUTIONS):
            n_steps = int(rng.integers(2, MAX_STEPS + 1))
            first_errors = [
                int(rng.integers(n_steps)) if rng.random() < error_rate else n_steps
                for _ in range(2)
            ]
            if rng.random() >= misread_rate:
                first_errors[1] = first_errors[0]
            names += [problem] * n_steps
            reference += [step < first_errors[0] for step in range(n_steps)]
            labeller += [step < first_errors[1] for step in range(n_steps)]
    return names, reference, labeller


def measure(case: StepPopulation, repeats: int, seed: int) -> str:
    """Return one line with the coverage of a case."""
    rng = np.random.default_rng(seed)
    _, reference, labeller = draw(rng, case, POPULATION_PROBLEMS)
    truth = cohen_kappa(reference, labeller)
    assert truth is not None
    intervals = [kappa_interval(*draw(rng, case, case.problems)) for _ in range(repeats)]
    defined_intervals = [interval for interval in intervals if interval is not None]
    above = sum(low > truth for low, _ in defined_intervals) / len(defined_intervals)
    below = sum(high < truth for _, high in defined_intervals) / len(defined_intervals)
    width = sum(high - low for low, high in defined_intervals) / len(defined_intervals)
    name = (
        f"{case.problems} problems, {case.error_rate:.0%} errors, {case.misread_rate:.0%} misread, "
        f"spread {case.spread:g}"
    )
    return f"{name:<52}{truth:8.4f} {1 - above - below:8.1%} {above:7.1%} {below:7.1%} {width:8.4f}"


def main() -> None:
    """Print one line per population."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{'':<52}{'kappa':>8} {'covered':>8} {'above':>7} {'below':>7} {'width':>8}")
    for case in CASES:
        print(measure(case, options.repeats, options.seed), flush=True)


if __name__ == "__main__":
    main()
