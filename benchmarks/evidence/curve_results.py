"""The numbers of the curve over the solutions of a reward model: one row per problem in CSV files.

The decoder and the aggregate of a reward model are chosen on samples of training problems. Only the
chosen pair is measured on the test samples.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fsdpo_bench.decoders.estimators import best_of_n, vote, weighted_vote
from real_results import (
    BEST,
    POLICIES_FILE,
    RANKING_AUC,
    START,
    VOTE,
    WEIGHTED_VOTE,
    ProblemSamples,
    format_number,
    has_manifest,
    read_problem_samples,
    record_policy,
    record_processbench,
    replace_rows,
)

from fsdpo_data.core.entities import GRADED_OUTCOMES
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.steps.rewards import DEFAULT_AGGREGATE

CURVE_FILE = "curve.csv"
CURVE_COLUMNS = ("solutions", "problems", "choice", "problem_id", "value")
RATES_FILE = "rates.csv"  #: Policies on training problems, with the columns of the other policies.
#: Names of the problems in the file of the curve, and of the datasets with their samples.
TRAINING = "training"
TEST = "test"
NO_SOLUTIONS = ""  #: Number of solutions of a choice without a reward model.


class Choice(NamedTuple):
    """A decoder with the aggregate of its step rewards."""

    decoder: str  #: The decoder.
    aggregate: str  #: The aggregate.

    @property
    def name(self) -> str:
        """Name of the choice in the file."""
        return f"{self.decoder} by {self.aggregate}"

    def is_correct(self, samples: ProblemSamples) -> bool:
        """Return whether the chosen sample of a problem is correct."""
        rewards = samples.aggregate_rewards(self.aggregate)
        if self.decoder == BEST:
            return samples.is_choice_correct(best_of_n(rewards))
        return samples.is_choice_correct(weighted_vote(samples.classes(), rewards))


#: The choices in the order of the plan, in which the first of equally accurate ones is taken.
CHOICES = tuple(
    Choice(decoder, aggregate)
    for decoder in (BEST, WEIGHTED_VOTE)
    for aggregate in ("mean", "min", "prod", "last")
)


def best_choice(n_correct: Mapping[str, float]) -> Choice:
    """Return the choice with the most correct problems; the first one of a tie.

    Args:
        n_correct: Number of correct problems by the name of the choice.
    """
    # The first of equal maxima is the result of `max`.
    return max(CHOICES, key=lambda choice: n_correct[choice.name])


def record_curve(run: Path, results: Path, *, processbench_file: Path, policy_samples: int) -> None:
    """Write the numbers of the complete datasets of a run; numbers of other stages stay.

    Args:
        run: Folder of the datasets.
        results: Folder of the results.
        processbench_file: File of ProcessBench.
        policy_samples: Number of samples that measure a policy.
    """
    for problems in filter(lambda name: has_manifest(run / name), (TRAINING, TEST)):
        _record_vote(results, run / problems, problems)
    for scored in filter(has_manifest, sorted(run.glob(f"{TEST}-*"))):
        point = scored.name.removeprefix(f"{TEST}-")
        if has_manifest(run / f"{TRAINING}-{point}"):
            _record_point(results, run, point)
    for scored in filter(has_manifest, sorted(run.glob("processbench-*"))):
        solutions = count_labelled(run / f"samples-{scored.name.removeprefix('processbench-')}")
        record_processbench(results, scored, rows_file=processbench_file, prm=str(solutions))
    for problems, file_name in ((TRAINING, RATES_FILE), (TEST, POLICIES_FILE)):
        policies = [*filter(has_manifest, sorted(run.glob(f"*-seed*-{problems}")))]
        if not policies or not has_manifest(run / problems):
            continue
        datasets = {f"{START}-seed0": run / problems}
        datasets |= {test.name.removesuffix(f"-{problems}"): test for test in policies}
        for name, test in datasets.items():
            policy, _, seed = name.rpartition("-seed")
            record_policy(
                results / file_name,
                test,
                None,
                policy=policy,
                seed=int(seed),
                n_samples=policy_samples,
            )


def count_labelled(dataset: Path) -> int:
    """Return the number of solutions with an outcome, from which a reward model learns."""
    files = read_manifest(dataset).config_paths(dataset, "solutions")
    is_graded = pl.col("outcome").is_in(GRADED_OUTCOMES)
    return int(collect_rows(scan_rows("solutions", files).select(is_graded.sum())).item())


def _record_vote(results: Path, dataset: Path, problems: str) -> None:
    """Write whether the vote among the samples of each problem is correct."""
    values = {
        samples.problem_id: samples.is_choice_correct(vote(samples.classes()))
        for samples in read_problem_samples(dataset)
    }
    _replace_choices(results, NO_SOLUTIONS, problems, {VOTE: values})


def _record_point(results: Path, run: Path, point: str) -> None:
    """Write all choices on the training samples, and the chosen one on the test samples.

    Args:
        results: Folder of the results.
        run: Folder of the datasets.
        point: End of the names of the datasets of a reward model.
    """
    solutions = str(count_labelled(run / f"samples-{point}"))
    training = [*read_problem_samples(run / f"{TRAINING}-{point}")]
    training_values = {
        choice.name: {samples.problem_id: choice.is_correct(samples) for samples in training}
        for choice in CHOICES
    }
    _replace_choices(results, solutions, TRAINING, training_values)
    choice = best_choice({name: sum(values.values()) for name, values in training_values.items()})
    test = [*read_problem_samples(run / f"{TEST}-{point}")]
    areas = {samples.problem_id: samples.ranking_auc(DEFAULT_AGGREGATE) for samples in test}
    test_values: dict[str, dict[str, float]] = {
        choice.name: {samples.problem_id: choice.is_correct(samples) for samples in test},
        RANKING_AUC: {key: area for key, area in areas.items() if area is not None},
    }
    _replace_choices(results, solutions, TEST, test_values)


def _replace_choices(
    results: Path,
    solutions: str,
    problems: str,
    values: Mapping[str, Mapping[str, float]],
) -> None:
    """Write the values of each choice by problem id, in place of earlier values of the model."""
    rows = [
        (solutions, problems, name, problem_id, format_number(value))
        for name, by_problem in values.items()
        for problem_id, value in by_problem.items()
    ]
    replace_rows(
        results / CURVE_FILE, CURVE_COLUMNS, rows, lambda row: row[:2] == [solutions, problems]
    )


def best_rate(n_correct: Mapping[str, int]) -> str:
    """Return the learning rate with the most correct samples; the lowest one of a tie.

    Args:
        n_correct: Number of correct samples of the same problems, by learning rate.
    """
    return max(sorted(n_correct, key=float), key=lambda rate: n_correct[rate])
