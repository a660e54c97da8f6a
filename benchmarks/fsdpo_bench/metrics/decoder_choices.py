"""The choices of decoders among the samples of a benchmark, and their expected correctness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from fsdpo_bench.decoders.decoders import (
    DECODERS,
    SAMPLES_PART,
    Candidates,
    Decoder,
    DecoderSetup,
    parse_result_name,
)
from fsdpo_bench.decoders.estimators import (
    distribute_choices,
    expected_values,
    random_orders,
    subsets_of_size,
)
from fsdpo_bench.metrics.full_solutions import read_problem_solutions
from fsdpo_bench.metrics.pools import Benchmark, Pool
from fsdpo_bench.metrics.sample_arrays import Rewards, Samples
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import np
from fsdpo_data.core.statistics import Mean, mean_rate
from fsdpo_data.steps.rewards import AGGREGATES, check_aggregate


@dataclass(frozen=True, slots=True)
class SubsetSpec:
    """The random subsets of samples that votes average over."""

    max_subsets: int = 320  #: Number of random subsets; fewer subsets are all taken.
    seed: int = 0  #: Seed of the subsets.


@dataclass(frozen=True)
class DecoderChoices:
    """What one decoder chooses on one benchmark."""

    setup: DecoderSetup  #: The decoder with its parameters.
    samples: Samples  #: The solutions from which the decoder chooses.
    #: Probability that each solution is chosen. If a vote chooses nothing, the sum of a row is less
    #: than 1.
    chosen_PM: np.ndarray

    @property
    def name(self) -> str:
        """Name of the result."""
        return self.setup.name

    @property
    def reward_model(self) -> str:
        """Name of the reward model by whose step rewards it chooses; empty without one."""
        if not self.setup.decoder.uses_sample_rewards:
            return ""
        return _find_rewards(self.samples, self.setup).model

    def expected_P(self, value_PM: np.ndarray) -> np.ndarray:
        """Return the expected value of the chosen solution for each problem; 0 without a choice."""
        return expected_values(self.chosen_PM, value_PM)

    @cached_property
    def correct_P(self) -> np.ndarray:
        """Probability that the chosen solution is correct, for each problem."""
        return self.expected_P(self.samples.is_correct_PM)

    @property
    def exactly_correct_P(self) -> np.ndarray | None:
        """The same without the tolerance of the benchmark; None without a tolerance."""
        exactly_correct_PM = self.samples.exactly_correct_PM
        return None if exactly_correct_PM is None else self.expected_P(exactly_correct_PM)

    @property
    def upper_bound_P(self) -> np.ndarray:
        """The same if undecided answers and timeouts are correct."""
        samples = self.samples
        return self.expected_P(samples.is_correct_PM | samples.is_unknown_PM)

    @property
    def without_judge_P(self) -> np.ndarray:
        """The same if the answers that a judge decided are wrong."""
        samples = self.samples
        return self.expected_P(samples.is_correct_PM & ~samples.is_judged_PM)

    @property
    def upper_bound_without_judge_P(self) -> np.ndarray:
        """The same if these answers, undecided ones and timeouts are correct."""
        samples = self.samples
        return self.expected_P(samples.is_correct_PM | samples.is_unknown_PM | samples.is_judged_PM)

    def mean(self, value_P: np.ndarray, selected_P: np.ndarray | None = None) -> Mean:
        """Return the mean over the problems that count, clustered by base problem."""
        counts_P = self.samples.counts_P
        if selected_P is not None:
            counts_P = counts_P & selected_P
        return mean_rate(value_P[counts_P], self.samples.clusters(counts_P))

    def outcome_counts(self) -> dict[str, int | float]:
        """Return the expected number of answers by outcome, over all problems.

        Sums of probabilities have rounding errors, so the counts are rounded to six digits.
        """
        outcome_PM = self.samples.outcome_PM
        counts = {
            str(outcome): float(self.expected_P(outcome_PM == outcome).sum())
            for outcome in sorted(set(outcome_PM.ravel()))
        }
        nothing_P = 1 - self.chosen_PM.sum(axis=1)
        # Without a choice there is no answer, unless the problem does not count.
        for outcome in sorted(set(outcome_PM[~self.samples.counts_P, 0])):
            counts[outcome] += float(nothing_P[outcome_PM[:, 0] == outcome].sum())
        n_missing = float(nothing_P[self.samples.counts_P].sum())
        counts["no_answer"] = counts.get("no_answer", 0.0) + n_missing
        rounded = {name: round(count, 6) for name, count in sorted(counts.items())}
        return {name: simplify_count(count) for name, count in rounded.items() if count > 0}

    def chosen_indices(self) -> list[int | None] | None:
        """Return the index of the chosen solution of each problem; None if it is not certain.

        The index is None without a choice.
        """
        if not np.isin(self.chosen_PM, (0, 1)).all():
            return None
        return [int(row_M.argmax()) if row_M.any() else None for row_M in self.chosen_PM]


def simplify_count(count: float) -> int | float:
    """Return a count without a fraction as an integer, so that files have 812 and not 812.0."""
    return int(count) if count.is_integer() else count


@cache
def _subsets(size: int, n_samples: int, spec: SubsetSpec) -> np.ndarray:
    """Return the subsets of a size; equal ones for all decoders, whose differences are paired."""
    return subsets_of_size(size, random_orders(n_samples, spec.max_subsets, spec.seed))


def decode(benchmark: Benchmark, setup: DecoderSetup, spec: SubsetSpec) -> DecoderChoices:
    """Return the choices of a decoder, averaged over subsets of K samples.

    Raises:
        InputError: if the benchmark has no such solutions or rewards, or fewer than K samples.
    """
    samples = benchmark.parts.get(setup.part)
    if samples is None:
        raise InputError(
            f"there are no solutions of this decoder, only {', '.join(benchmark.parts)}.",
            field="decoder",
            value=setup.name,
        )
    size = setup.k
    if size > samples.n_samples:
        raise InputError(
            f"the problems of {benchmark.title} have {samples.n_samples} samples each. Give a "
            "smaller value.",
            field="k",
            value=size,
        )
    reward_PM = _candidate_rewards(samples, setup)
    if not setup.decoder.has_k:
        # A decoder without K has one solution.
        member_RM = np.arange(samples.n_samples)[None, :] == 0
    else:
        member_RM = _subsets(size, samples.n_samples, spec)
    if setup.decoder.distribute is not None:
        chosen_PM = setup.decoder.distribute(samples.classes_P, reward_PM, member_RM)
    else:
        chosen_PM = _choose_from_subsets(samples, setup, reward_PM, member_RM)
    return DecoderChoices(setup, samples, chosen_PM)


def _candidate_rewards(samples: Samples, setup: DecoderSetup) -> np.ndarray:
    """Return the number of each sample by which a decoder chooses; NaN if it needs none."""
    if setup.decoder.needs == "likelihoods":
        if samples.log_likelihood_PM is None:
            raise InputError(
                "the samples have no likelihoods, which only `fsdpo-bench report --likelihood` "
                "computes.",
                field="decoder",
                value=setup.name,
            )
        return samples.log_likelihood_PM
    if not setup.decoder.uses_sample_rewards:
        return np.full(samples.outcome_PM.shape, np.nan)
    return _find_rewards(samples, setup).by_aggregate[setup.aggregate]


def _rewards_by(samples: Samples, setup: DecoderSetup) -> Rewards | None:
    """Return the step rewards of the reward model of a decoder, or of the only reward model."""
    return samples.rewards.get(setup.model or next(iter(samples.rewards), ""))


def _find_rewards(samples: Samples, setup: DecoderSetup) -> Rewards:
    """Return the step rewards by which a decoder chooses; InputError without any."""
    rewards = _rewards_by(samples, setup)
    if rewards is None or not rewards.has_scored_samples:
        raise InputError(
            f"the samples of {samples.problems[0].benchmark_row.name} have no step rewards. Score "
            "them with `fsdpo-data score`, or import the scores.",
            field="decoder",
            value=setup.name,
        )
    return rewards


def decodable_setups(
    benchmark: Benchmark, setups: Mapping[str, DecoderSetup]
) -> dict[str, DecoderSetup]:
    """Return the decoders without those whose reward model scored no sample of a benchmark."""

    def is_decodable(setup: DecoderSetup) -> bool:
        rewards = _rewards_by(benchmark.main, setup)
        is_unscored = rewards is not None and not rewards.has_scored_samples
        return not (setup.decoder.uses_sample_rewards and is_unscored)

    return {name: setup for name, setup in setups.items() if is_decodable(setup)}


def _choose_from_subsets(
    samples: Samples, setup: DecoderSetup, reward_PM: np.ndarray, member_RM: np.ndarray
) -> np.ndarray:
    """Return the distribution of a decoder by calling it for each subset."""
    problem_ids = [benchmark_problem.problem_id for benchmark_problem in samples.problems]
    solutions = read_problem_solutions(samples.root, problem_ids)

    def choose(problem: int, subset: Sequence[int]) -> int | None:
        rewards = [
            None if np.isnan(value) else float(value) for value in reward_PM[problem, subset]
        ]
        candidates = Candidates(
            solutions=[solutions[problem_ids[problem]][index] for index in subset],
            answer_classes=samples.classes_P[problem].select(subset),
            rewards=rewards,
        )
        return setup.decoder.choose(candidates)

    return distribute_choices(choose, len(problem_ids), member_RM)


def select_decoders(
    pool: Pool,
    sizes: Sequence[int] = (),
    aggregates: Sequence[str] = (),
) -> dict[str, DecoderSetup]:
    """Return the decoders of a report by result name, in the order of the registry.

    These are the decoders of the run, or all decoders that the datasets allow, at each N. Decoders
    that need likelihoods join the decoders of a run, because only a report has likelihoods.

    Args:
        pool: The datasets.
        sizes: Values of N; by default those of the run, or powers of 2 and all samples.
        aggregates: Aggregates of step rewards; by default those of the run, or all.
    """
    if pool.run is not None and not sizes and not aggregates:
        setups = [setup for name in pool.run.decoders if (setup := parse_result_name(name))]
        run_sizes = {setup.k for setup in setups if setup.decoder.has_k}
        setups += [
            setup
            for setup in _possible_setups(pool, sorted(run_sizes), aggregates)
            if setup.decoder.needs == "likelihoods"
        ]
    else:
        setups = list(_possible_setups(pool, sizes, aggregates))
    setups = [entry for setup in setups for entry in name_models(setup, pool.reward_models)]
    return {setup.name: setup for setup in setups if has_fitting_rewards(pool, setup)}


def name_models(setup: DecoderSetup, models: Sequence[str]) -> list[DecoderSetup]:
    """Return a decoder with each of several reward models, if it chooses by their rewards."""
    if len(models) < 2 or setup.model or not setup.decoder.uses_sample_rewards:
        return [setup]
    return [replace(setup, model=model) for model in models]


def has_fitting_rewards(pool: Pool, setup: DecoderSetup) -> bool:
    """Return whether the rewards of a decoder that needs probabilities are probabilities.

    True without rewards, whose lack is an error of :func:`decode`.
    """
    if setup.decoder.needs != "probabilities":
        return True
    samples = next(benchmark.main for benchmark in pool.benchmarks.values())
    rewards = _rewards_by(samples, setup)
    return rewards is None or rewards.are_probabilities


def _possible_setups(
    pool: Pool, sizes: Sequence[int], aggregates: Sequence[str]
) -> Iterator[DecoderSetup]:
    """Yield the decoders that the datasets of a pool allow, at each N and by each aggregate."""
    checked_aggregates = [check_aggregate(name) for name in aggregates or AGGREGATES]
    for decoder in DECODERS.values():
        if decoder.origin != "samples":
            for part in pool.parts:
                setup = parse_result_name(part)
                if setup is not None and setup.decoder is decoder:
                    yield setup
            continue
        if SAMPLES_PART not in pool.parts or not _has_needed_numbers(pool, decoder):
            continue
        has_aggregate = "aggregate" in decoder.parameters
        for size in subset_sizes(sizes, pool) if decoder.has_k else (1,):
            for aggregate in checked_aggregates if has_aggregate else ("",):
                yield DecoderSetup(decoder, k=size, aggregate=aggregate)


def _has_needed_numbers(pool: Pool, decoder: Decoder) -> bool:
    """Return whether the samples of a pool have the numbers by which a decoder chooses."""
    if decoder.needs == "likelihoods":
        return pool.has_likelihoods
    return bool(pool.scored) or not decoder.needs_rewards


def subset_sizes(sizes: Sequence[int], pool: Pool) -> list[int]:
    """Return the values of N, or powers of 2 and all samples of the smallest benchmark.

    Raises:
        InputError: if a benchmark has fewer samples than N.
    """
    n_samples = min(benchmark.main.n_samples for benchmark in pool.benchmarks.values())
    if not sizes:
        powers = [2**exponent for exponent in range(n_samples.bit_length())]
        return sorted({*powers, n_samples})
    if max(sizes) > n_samples:
        raise InputError(
            f"the problems have {n_samples} samples each. Give smaller values.",
            field="k",
            value=max(sizes),
        )
    return sorted(set(sizes))
