"""Functions that make problems, samplers and datasets for several test files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from fakes import FixedSampler, PartlyRightSampler

from fsdpo_data.answers.grader import GRADER_NAME
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.identity import ModelRef, SourceRef, digest
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.stage import Stage, derive_dataset
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.models.prompts import get_template
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.stages.continuations import ContinuationSampler, continuation_sampling
from fsdpo_data.stages.label import LabelStage
from fsdpo_data.stages.sample import BuildJob, BuildSpec, build

RIGHT = "Step 1: 20 + 22 = 42.\nStep 2: So it is 42. The answer is: 42"
WRONG = "Step 1: 20 + 22 = 43.\nStep 2: So it is 43. The answer is: 43"
SILENT = "I do not know"
TEXTS = (RIGHT, WRONG, SILENT, "")


def problem_set(count: int = 3, answer: str = "42") -> ProblemSet:
    problems = [
        Problem(f"What is {20} + {22}, asked for the {i}th time?", answer, "test", "train")
        for i in range(count)
    ]
    return ProblemSet(problems, [SourceRef("test", "1", "train")])


def seal_json(manifest: dict[str, Any]) -> str:
    """Return an edited manifest as JSON with a matching digest."""
    fields = {name: value for name, value in manifest.items() if name != "manifest_digest"}
    return json.dumps({**fields, "manifest_digest": digest(fields)})


def build_spec(n: int = 4, **changes: Any) -> BuildSpec:
    settings: dict[str, Any] = {
        "model": ModelRef("fixed", "0"),
        "sources": (SourceRef("test", "1", "train"),),
        "template": get_template("problem"),
        "sampling": SamplingSpec(n=n, **changes),
        "engine": {"name": "replay", "dtype": "auto"},
        "segmenter": "auto@1",
        "grader": GRADER_NAME,
    }
    return BuildSpec(**settings)


def fixed_sampler(source: ProblemSet, texts: tuple[str, ...] = TEXTS) -> FixedSampler:
    template = get_template("problem")
    return FixedSampler({template.render(problem.question): texts for problem in source.problems})


def small_build(
    out: Path,
    source: ProblemSet | None = None,
    *,
    spec: BuildSpec | None = None,
    make_sampler: Callable[[], Sampler] | None = None,
    **options: Any,
) -> dict[str, Any]:
    source = source or problem_set()
    resume = options.pop("resume", False)
    make = make_sampler or (lambda: fixed_sampler(source))
    job = BuildJob(spec or build_spec(), source, make, **options)
    return build(job, out, resume=resume, progress=LineProgress()).to_dict()


def derive(source: Path, out: Path, stage: Stage, **options: Any) -> dict[str, Any]:
    """Run a stage, validate the new dataset, and return its manifest."""
    manifest = derive_dataset(source, out, [stage], progress=LineProgress(), **options)
    assert validate(out) == manifest
    return manifest.to_dict()


def label_with_rollouts(
    source: Path,
    out: Path,
    sampler: PartlyRightSampler | None = None,
    *,
    n: int = 4,
    **options: Any,
) -> dict[str, Any]:
    """Label a dataset by continuations of its prefixes, and return the new manifest."""
    manifest = read_manifest(source)
    chosen = sampler or PartlyRightSampler()
    continuer = ContinuationSampler(
        chosen.model,
        continuation_sampling(manifest, n, seed=1),
        {"name": "replay", "dtype": "auto"},
        lambda: chosen,
        batch_size=options.pop("batch", 2),
    )
    stage = LabelStage(continuer)
    return derive(source, out, stage, **options)


def rollouts(out: Path) -> list[Any]:
    return pl.read_parquet(out / "solutions/*.parquet")["rollouts"].to_list()
