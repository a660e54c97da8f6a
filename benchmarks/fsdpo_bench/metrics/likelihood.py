"""The likelihood of samples under the policy that wrote them."""

from __future__ import annotations

import math
from dataclasses import replace

from fsdpo_bench.decoders.decoders import SAMPLES_PART
from fsdpo_bench.metrics.full_solutions import read_problem_solutions
from fsdpo_bench.metrics.pools import Pool
from fsdpo_bench.metrics.sample_arrays import Samples
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import np
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.stage_records import SAMPLE_STAGE, SampleRecord
from fsdpo_data.engines.load import load_likelihood
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.models.resolve import resolve_weights


def with_likelihoods(pool: Pool, policy: str, options: ScorerOptions | None = None) -> Pool:
    """Return a pool whose samples have their log-likelihoods, without end-of-sequence tokens.

    Raises:
        InputError: if there are no samples, or the policy is not the model that wrote them.
    """
    root = pool.parts[pool.main_part]
    if pool.main_part != SAMPLES_PART:
        raise InputError(
            f"{root} has one solution per problem, and nothing to choose from. Remove the option.",
            field="likelihood",
            value=policy,
        )
    model = read_manifest(root).get(SAMPLE_STAGE, SampleRecord).options.model
    if resolve_weights(policy).ref.revision != model.revision:
        raise InputError(
            f"{root} has samples of {model.name} at {model.revision}, which is another model.",
            field="likelihood",
            value=policy,
        )
    scorer = load_likelihood(policy, options)
    benchmarks = {}
    for name, benchmark in pool.benchmarks.items():
        samples = benchmark.main
        items = _scorer_inputs(samples)
        # A sample without a likelihood is the least likely one.
        values = [-math.inf if value is None else value for value in scorer.log_likelihoods(items)]
        log_likelihood_PM = np.array(values).reshape(samples.outcome_PM.shape)
        samples = replace(samples, log_likelihood_PM=log_likelihood_PM)
        benchmarks[name] = replace(benchmark, parts={**benchmark.parts, SAMPLES_PART: samples})
    return replace(pool, benchmarks=benchmarks)


def _scorer_inputs(samples: Samples) -> list[ScorerInput]:
    """Return the samples of all problems, problem by problem."""
    problem_ids = [benchmark_problem.problem_id for benchmark_problem in samples.problems]
    solutions = read_problem_solutions(samples.root, problem_ids)
    return [
        ScorerInput(solution.prompt, tuple(solution.completions))
        for problem_id in problem_ids
        for solution in solutions[problem_id][: samples.n_samples]
    ]
