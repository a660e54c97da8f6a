"""One policy of the study: train it, then measure its sampled and its greedy solutions."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from data import (
    MAX_TOKENS,
    TEMPERATURE,
    TEST_SEED,
    VALIDATION_SEED,
    StudyDirectory,
    arm_pairs,
    format_prompt,
)
from plan import KINDS, SFT, TRAINING, Policy

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.files import write_text
from fsdpo_data.core.sampling import Prompt, SamplingSpec
from fsdpo_data.engines.item_errors import collect_results
from fsdpo_data.engines.load import load_likelihood, load_sampler
from fsdpo_data.engines.options import SamplerOptions, ScorerOptions
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import final_answer, first_wrong_step
from fsdpo_data.steps.segment import split_at_step_markers
from fsdpo_train import DpoConfig, train_dpo
from fsdpo_train.losses.preference_losses import PREFERENCE_LOSSES

#: Values by kind of problem and metric, one value per problem. The metric ``kl`` is
#: log π − log π_SFT of a sampled solution, in nats; the other metrics are fractions.
#: Draws of the data have only ``sampled`` and ``progress``, because each draw takes minutes.
Measurements = Mapping[str, Mapping[str, list[float]]]


def train_policy(directory: StudyDirectory, policy: Policy) -> Path:
    """Train a policy, unless it is finished, and return its directory.

    All arms have the same reference policy, optimizer steps and prompts per step.
    """
    arm = policy.arm
    if arm == SFT:
        return directory.sft()
    out = directory.out / "policies" / policy.name
    if (out / "README.md").exists():
        return out
    train_dpo(training_config(directory, policy, arm_pairs(directory, arm), out))
    return out


def training_config(directory: StudyDirectory, policy: Policy, pairs: Path, out: Path) -> DpoConfig:
    """Return the options of the training of a policy on a file of pairs.

    Only losses with step rewards read γ.
    """
    arm = policy.arm
    loss_options = {"gamma": arm.gamma} if PREFERENCE_LOSSES[arm.loss].uses_rewards else {}
    return DpoConfig(
        data=pairs,
        out=out,
        model=str(directory.sft()),
        loss=arm.loss,
        lr=policy.lr,
        beta=policy.beta,
        seed=policy.training_seed,
        max_steps=directory.size.steps,
        reference_cache=directory.out / f"reference-{pairs.stem}",
        resume=out.exists(),
        **loss_options,
        **TRAINING,
    )


def measure_policy(directory: StudyDirectory, split: str, policy: Policy) -> Measurements:
    """Measure a policy on the problems of a split, or read its measurements if they exist.

    Each training seed has its own test problems. Validation runs all use the first seed, so they
    share their problems.
    """
    file = directory.out / split / f"{policy.name}.json"
    if not file.exists():
        model = train_policy(directory, policy)
        write_text(
            file, json.dumps(_measure_problems(model, directory, split, policy.training_seed))
        )
    measurements: Measurements = json.loads(file.read_text())
    return measurements


def _measure_problems(
    model: Path, directory: StudyDirectory, split: str, training_seed: int
) -> Measurements:
    is_test = split == "test"
    counts = directory.size.test if is_test else directory.size.validation
    first_seed = TEST_SEED if is_test else VALIDATION_SEED
    sampler = load_sampler(str(model), SamplerOptions(engine="transformers"))
    measurements: dict[str, Mapping[str, list[float]]] = {}
    for kind, (count, n) in counts.items():
        problems = make_problems(split, count, first_seed + training_seed, KINDS[kind])
        texts = _sample_texts(sampler, problems, n, TEMPERATURE)
        samples = list(zip(problems, texts, strict=True))
        measurements[kind] = {
            "sampled": [fmean(_is_correct(problem, texts)) for problem, texts in samples],
            "progress": [fmean(_progress(problem, texts)) for problem, texts in samples],
        }
        if is_test and kind == "solve" and not directory.size.draws:
            greedy_texts = _sample_texts(sampler, problems, 1, 0)
            greedy = zip(problems, greedy_texts, strict=True)
            measurements[kind] |= {
                "greedy": [_is_correct(problem, texts)[0] for problem, texts in greedy],
                "kl": _log_ratios(model, directory.sft(), samples),
            }
    return measurements


def _sample_texts(
    sampler: Sampler, problems: Sequence[Problem], n: int, temperature: float
) -> list[list[str]]:
    """Return ``n`` solutions per problem; every policy samples with the same random numbers."""
    sampling = SamplingSpec(n=n, temperature=temperature, max_tokens=MAX_TOKENS, seed=1)
    prompts = [Prompt(format_prompt(problem)) for problem in problems]
    results = collect_results(sampler.sample(prompts, sampling))
    return [[completion.text for completion in completions] for completions in results]


def _is_correct(problem: Problem, texts: Sequence[str]) -> list[float]:
    return [float(final_answer(text) == problem.answer) for text in texts]


def _progress(problem: Problem, texts: Sequence[str]) -> list[float]:
    """Return the right steps before the first error, divided by the needed steps, per solution.

    The value of a solution without an error is 1, also if the solution stops early.
    """
    needed_steps = len(problem.metadata["nodes"])
    first_errors = (first_wrong_step(problem, split_at_step_markers(text)) for text in texts)
    return [1.0 if error is None else min(1.0, error / needed_steps) for error in first_errors]


def _log_ratios(
    model: Path, sft: Path, samples: Sequence[tuple[Problem, list[str]]]
) -> list[float]:
    """Return log π − log π_SFT of the first sample of each problem, in nats."""
    items = [
        ScorerInput(format_prompt(problem), split_at_step_markers(texts[0]))
        for problem, texts in samples
    ]
    ratios: list[float] = np.subtract(_logprobs(model, items), _logprobs(sft, items)).tolist()
    return ratios


def _logprobs(policy: Path, items: Sequence[ScorerInput]) -> list[float]:
    """Return the log-probability of each solution, without its end-of-sequence token."""
    scorer = load_likelihood(str(policy), ScorerOptions(engine="transformers"))
    # A solution without text has the probability 1.
    return [value or 0.0 for value in scorer.log_likelihoods(items)]
