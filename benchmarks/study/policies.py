"""One policy: trained, then measured by its samples and its greedy solutions."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from data import MAX_TOKENS, TEMPERATURE, TEST, VALIDATION, StudyDirectory, pairs_of, prompt_of
from plan import KINDS, SFT, TRAINING, Policy

from fsdpo_data.core.entities import Problem
from fsdpo_data.core.files import write_text
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.engines.load import load_likelihood, load_sampler
from fsdpo_data.engines.options import SamplerOptions, ScorerOptions
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.problems.embedded.generator import make_problems
from fsdpo_data.problems.embedded.solutions import final_answer, first_wrong_step
from fsdpo_data.steps.segment import split_at_step_markers
from fsdpo_train import DpoConfig, train_dpo

#: What was measured: of each kind of problems a list for each number, one value a problem; and
#: ``kl``, the nats per solution by which the policy is more confident in its samples than before.
Measurements = Mapping[str, Mapping[str, list[float]]]


def train_policy(place: StudyDirectory, policy: Policy) -> Path:
    """Train a policy; all arms have the same reference, optimizer steps and prompts a step."""
    out, arm = place.out / "policies" / policy.name, policy.arm
    if arm == SFT or (out / "README.md").exists():
        return place.sft() if arm == SFT else out
    data = pairs_of(place, arm)
    train_dpo(
        DpoConfig(
            data=data,
            out=out,
            model=str(place.sft()),
            loss=arm.loss,
            gamma=arm.gamma,
            lr=policy.lr,
            beta=policy.beta,
            seed=policy.seed,
            max_steps=place.size.steps,
            reference_cache=place.out / f"reference-{data.stem}",
            resume=out.exists(),
            **TRAINING,
        )
    )
    return out


def measure_policy(place: StudyDirectory, split: str, policy: Policy) -> Measurements:
    """Measure a policy on the problems of a split, in tests those of its seed; or read it again."""
    file = place.out / split / f"{policy.name}.json"
    if not file.exists():
        write_text(
            file, json.dumps(_measure(train_policy(place, policy), place, split, policy.seed))
        )
    found: Measurements = json.loads(file.read_text())
    return found


def _measure(model: Path, place: StudyDirectory, split: str, seed: int) -> Measurements:
    test = split == "test"
    asked, first = (place.size.test, TEST) if test else (place.size.validation, VALIDATION)
    sampler = load_sampler(str(model), SamplerOptions(engine="transformers"))
    found: dict[str, Mapping[str, list[float]]] = {}
    for kind, (count, n) in asked.items():
        problems = make_problems(split, count, first + seed, KINDS[kind])
        texts = _solutions(sampler, problems, n, TEMPERATURE)
        each = list(zip(problems, texts, strict=True))
        found[kind] = {
            "sampled": [fmean(_correct(problem, some)) for problem, some in each],
            "progress": [fmean(_progress(problem, some)) for problem, some in each],
        }
        if test and kind == "solve":
            greedy = _solutions(sampler, problems, 1, 0)
            found[kind] |= {
                "greedy": [_correct(*one)[0] for one in zip(problems, greedy, strict=True)],
                "kl": _log_ratios(model, place.sft(), each),
            }
    return found


def _solutions(
    sampler: Sampler, problems: Sequence[Problem], n: int, temperature: float
) -> list[list[str]]:
    # Every policy draws with the same random numbers, so that what separates two is the policies.
    spec = SamplingSpec(n=n, temperature=temperature, max_tokens=MAX_TOKENS, seed=1)
    prompts = [prompt_of(each) for each in problems]
    return [[sample.text for sample in some] for some in sampler.sample(prompts, spec)]


def _correct(problem: Problem, texts: Sequence[str]) -> list[float]:
    return [float(final_answer(text) == problem.answer) for text in texts]


def _progress(problem: Problem, texts: Sequence[str]) -> list[float]:
    """Return the share of a problem's steps that each solution has right before its first error."""
    needed = len(problem.metadata["nodes"])
    wrong = (first_wrong_step(problem, split_at_step_markers(text)) for text in texts)
    return [1.0 if at is None else min(1.0, at / needed) for at in wrong]


def _log_ratios(model: Path, sft: Path, each: Sequence[tuple[Problem, list[str]]]) -> list[float]:
    """Return log π − log π_SFT of a sample of each problem."""
    items = [
        ScorerInput(prompt_of(problem), split_at_step_markers(some[0])) for problem, some in each
    ]
    spent: list[float] = np.subtract(_logprobs(model, items), _logprobs(sft, items)).tolist()
    return spent


def _logprobs(policy: Path, items: Sequence[ScorerInput]) -> list[float]:
    scores = load_likelihood(str(policy), ScorerOptions(engine="transformers")).score(items)
    return [sum(math.log(max(each, 1e-30)) for each in score or ()) for score in scores]
