"""Compare the decoders of runs with baselines that need no reward model.

The baselines are an average sample, the vote, and the sample with the highest likelihood under the
policy itself. A reward model is useful only if its choice is better than theirs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdpo_bench.decode.decoder import DecoderSetup
from fsdpo_bench.decode.records import ProblemRecord
from fsdpo_bench.decoders import parse_result_name
from fsdpo_bench.metrics.choices import best_of_n
from fsdpo_bench.results.outcomes import key_records
from fsdpo_bench.runs.records import read_config, read_records
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.statistics import Mean, MeanDifference, mean_difference, mean_rate
from fsdpo_data.engines.load import load_likelihood
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.models.resolve import resolve_weights

#: Lower bound of a step's probability in the likelihood of a solution.
_MIN_PROBABILITY = 1e-300

#: Key of a problem: benchmark, problem id, and number of earlier occurrences.
_Key = tuple[str, str, int]
#: The log-likelihoods of the samples of each problem.
_Likelihoods = Mapping[_Key, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to take one solution of a problem, in a table of its accuracies."""

    name: str  #: Name of the result, such as ``sc@8``.
    description: str  #: Explanation for readers.


@dataclass(frozen=True, slots=True)
class ChoiceAccuracy:
    """The accuracy of one choice on one benchmark, in one or two runs."""

    task: str  #: Name of the benchmark.
    choice: Choice  #: The way to take one solution.
    accuracies: Sequence[Mean]  #: The accuracy in each run.
    difference: MeanDifference | None = None  #: Second run minus first run; None for one run.


def compare_choices(
    runs: Sequence[Path], policies: Sequence[str], options: ScorerOptions | None = None
) -> list[ChoiceAccuracy]:
    """Return the accuracies of all choices that the runs share, by benchmark.

    Args:
        runs: One or two runs.
        policies: The model of each run, for the choice by likelihood; empty to leave it out.
        options: Engine options of the likelihood.

    Raises:
        InputError: if the runs have no common benchmark or different problems, or if a policy is
            not the model of its run.
    """
    if not 1 <= len(runs) <= 2:
        raise InputError(f"{len(runs)} runs: expected one or two.", field="runs")
    if policies and len(policies) != len(runs):
        raise InputError(
            f"{len(policies)} models for {len(runs)} runs. Give the model of each run.",
            field="likelihood",
        )
    all_records = [dict(key_records(read_records(run))) for run in runs]
    _check_problems(runs, all_records)
    all_likelihoods: list[_Likelihoods] = [{} for _ in runs]
    if policies:
        all_likelihoods = [
            _sample_likelihoods(run, policy, records, options)
            for run, policy, records in zip(runs, policies, all_records, strict=True)
        ]
    rows = []
    for task in dict.fromkeys(task for task, _, _ in all_records[0]):
        keys = [key for key in all_records[0] if key[0] == task]
        clusters = [all_records[0][key].metadata.get("cluster") for key in keys]
        for choice in _common_choices(task, all_records, has_likelihood=bool(policies)):
            values_by_run = [
                _values(choice, keys, records, likelihoods)
                for records, likelihoods in zip(all_records, all_likelihoods, strict=True)
            ]
            rows.append(_choice_accuracy(task, choice, values_by_run, clusters))
    return rows


def _check_problems(
    runs: Sequence[Path], all_records: Sequence[Mapping[_Key, ProblemRecord]]
) -> None:
    """Raise InputError if a run is empty, or the runs have different problems."""
    for run, records in zip(runs, all_records, strict=True):
        if not records:
            raise InputError(f"{run} contains no records. Continue the run with `resume=True`.")
    if any(records.keys() != all_records[0].keys() for records in all_records):
        raise InputError(
            f"{' and '.join(map(str, runs))} have different problems. Compare runs with the same "
            "`limit` and `limit_seed`."
        )


def _sample_likelihoods(
    run: Path,
    policy: str,
    records: Mapping[_Key, ProblemRecord],
    options: ScorerOptions | None,
) -> _Likelihoods:
    """Return log π of each sample, without its end-of-sequence token.

    Raises:
        InputError: if the policy is not the model of the run.
    """
    model = read_config(run).model
    if resolve_weights(policy).ref.revision != model.revision:
        raise InputError(
            f"{run} has samples of {model.name} at {model.revision}, which is another model.",
            field="likelihood",
            value=policy,
        )
    scorer = load_likelihood(policy, options)
    items = [
        ScorerInput(record.prompt, sample.steps)
        for record in records.values()
        for sample in record.samples
    ]
    scores = iter(scorer.score(items))
    return {
        key: [log_likelihood(next(scores)) for _ in record.samples]
        for key, record in records.items()
    }


def log_likelihood(probabilities: Sequence[float] | None) -> float:
    """Return the logarithm of the product of step probabilities; -∞ without probabilities."""
    if not probabilities:
        return -math.inf
    return sum(math.log(max(probability, _MIN_PROBABILITY)) for probability in probabilities)


def _common_choices(
    task: str, all_records: Sequence[Mapping[_Key, ProblemRecord]], *, has_likelihood: bool
) -> list[Choice]:
    """Return the choices that all runs have: decoders, baselines and the perfect choice."""
    first_records = [
        next(record for key, record in records.items() if key[0] == task) for records in all_records
    ]
    names = [
        name
        for name in first_records[0].decoded
        if all(name in record.decoded for record in first_records)
    ]
    setups = {name: setup for name in names if (setup := parse_result_name(name))}
    n_samples = min(len(record.samples) for record in first_records)
    choices_by_kind: dict[str, list[Choice]] = {"single": [], "vote": [], "rewards": []}
    for name, setup in setups.items():
        kind = "vote"
        if setup.decoder.choose is None:
            kind = "single"
        elif setup.decoder.needs_rewards:
            kind = "rewards"
        choices_by_kind[kind].append(Choice(name, _description(setup)))
    if not n_samples:
        return choices_by_kind["single"]
    average = Choice(f"avg@{n_samples}", "an average sample")
    likely = Choice(f"likely@{n_samples}", "the most likely sample, without a PRM")
    perfect = Choice(f"pass@{n_samples}", "a perfect choice, the upper bound")
    return [
        *choices_by_kind["single"],
        average,
        *choices_by_kind["vote"],
        *([likely] if has_likelihood else []),
        *choices_by_kind["rewards"],
        perfect,
    ]


def _description(setup: DecoderSetup) -> str:
    """Return the title of a decoder with its number of samples."""
    return setup.decoder.title.replace("K samples", f"{setup.k} samples")


def _values(
    choice: Choice,
    keys: Sequence[_Key],
    records: Mapping[_Key, ProblemRecord],
    likelihoods: _Likelihoods,
) -> list[float | None]:
    """Return the accuracy of a choice for each problem; None for a problem that does not count."""
    return [_value(choice, records[key], likelihoods.get(key, ())) for key in keys]


def _value(choice: Choice, record: ProblemRecord, likelihoods: Sequence[float]) -> float | None:
    """Return the accuracy of a choice for one problem; None if the problem does not count."""
    if choice.name in record.decoded:
        correct = record.decoded[choice.name].correct
        return None if correct is None else float(correct)
    name, _, count = choice.name.partition("@")
    samples = record.samples[: int(count)]
    verdicts = [sample.correct for sample in samples]
    graded = [verdict for verdict in verdicts if verdict is not None]
    if not graded:
        return None
    if name == "avg":
        return sum(graded) / len(graded)
    if name == "pass":
        return float(any(graded))
    return float(bool(samples[best_of_n(likelihoods[: len(samples)])].correct))


def _choice_accuracy(
    task: str,
    choice: Choice,
    values_by_run: Sequence[Sequence[float | None]],
    clusters: Sequence[str | None],
) -> ChoiceAccuracy:
    """Return the accuracies of a choice, and their difference over the problems that count."""
    value_rows = [
        (values, cluster)
        for *values, cluster in zip(*values_by_run, clusters, strict=True)
        if None not in values
    ]
    cluster_names = [cluster for _, cluster in value_rows if cluster is not None]
    value_clusters = cluster_names if value_rows and len(cluster_names) == len(value_rows) else None
    columns = [[values[index] for values, _ in value_rows] for index in range(len(values_by_run))]
    accuracies = [mean_rate(column, value_clusters) for column in columns]
    if len(columns) == 1 or not value_rows:
        return ChoiceAccuracy(task, choice, accuracies)
    gains = [second - first for first, second in zip(*columns, strict=True)]
    return ChoiceAccuracy(task, choice, accuracies, mean_difference(gains, value_clusters))
