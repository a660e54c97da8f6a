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
from fsdpo_data.core.identity import EngineRef, ModelRef, SourceRef, digest
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.core.sampling import ContinuationSettings, SamplingSpec
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.stage import Stage
from fsdpo_data.dataset.stage_records import (
    GradeSettings,
    ProblemsRecord,
    SampleRecord,
    SampleSettings,
)
from fsdpo_data.dataset.statistics import DatasetStatistics, StepRewardStatistics
from fsdpo_data.dataset.validate import validate
from fsdpo_data.engines.load import ResolvedPolicy, ResolvedRewardModel
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.scorers import Scorer
from fsdpo_data.engines.scorers.prm_formats import ScoreSettings
from fsdpo_data.models.prompts import Template, get_template
from fsdpo_data.models.resolve import ResolvedModel, ResolvedWeights
from fsdpo_data.pairs.statistics import PairStatistics
from fsdpo_data.problems.load import ProblemSet
from fsdpo_data.stages.continuations import ContinuationSampler, continuation_sampling
from fsdpo_data.stages.label import LabelStage
from fsdpo_data.stages.sample import BuildJob, BuildSettings, build
from fsdpo_data.steps.rewards import OUTCOME_LABELS

RIGHT = "Step 1: 20 + 22 = 42.\nStep 2: So it is 42. The answer is: 42"
WRONG = "Step 1: 20 + 22 = 43.\nStep 2: So it is 43. The answer is: 43"
SILENT = "I do not know"
REPLAY = EngineRef(name="replay", dtype="auto")
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


def sample_settings(n: int = 4, **changes: Any) -> SampleSettings:
    return SampleSettings(
        model=ModelRef("fixed", "0"),
        template=get_template("problem").ref,
        sampling=SamplingSpec(n=n, **changes),
        engine=REPLAY,
        segmenter="auto@1",
    )


def reward_model(
    model: ModelRef, make_scorer: Callable[[], Scorer], engine: str = "table"
) -> ResolvedRewardModel:
    ref = EngineRef(name=engine, dtype="auto")
    return ResolvedRewardModel(ResolvedWeights(model, ""), ref, make_scorer)


def build_job(
    source: ProblemSet,
    make_sampler: Callable[[], Sampler],
    sampling: SampleSettings | None = None,
    *,
    grader: str = GRADER_NAME,
    grade_thinking: bool = False,
    scoring: ScoreSettings | None = None,
    template: Template | None = None,
    batch_size: int = 64,
    **options: Any,
) -> BuildJob:
    sampling = sampling or sample_settings()
    policy = ResolvedPolicy(
        model=ResolvedModel(sampling.model, path="", template=template or get_template("problem")),
        author=sampling.model,
        engine=sampling.engine,
        unknown_fields=sampling.unknown_fields,
        batch_size=batch_size,
        make_sampler=make_sampler,
    )
    grading = GradeSettings(grader=grader, labels=OUTCOME_LABELS, grade_thinking=grade_thinking)
    return BuildJob(
        spec=BuildSettings(sampling, grading, scoring),
        source=source,
        policy=policy,
        **options,
    )


def continuation_settings(model: ModelRef, sampling: SamplingSpec) -> ContinuationSettings:
    return ContinuationSettings(model=model, sampling=sampling, engine=REPLAY)


def stage_entry(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the entry of a stage in a manifest."""
    [entry] = [entry for entry in manifest["stages"] if entry["name"] == name]
    return entry


def stage_options(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the options of a stage in a manifest."""
    return stage_entry(manifest, name)["options"]


def stage_counts(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the counts of a stage in a manifest."""
    return stage_entry(manifest, name)["counts"]


def statistics_of(root: Path) -> DatasetStatistics:
    """Return the statistics of a dataset."""
    return DatasetStatistics(root, read_manifest(root))


def pair_statistics_of(root: Path) -> PairStatistics:
    """Return the statistics of the pairs of a dataset, which must have some."""
    statistics = statistics_of(root).pairs
    assert statistics is not None
    return statistics


def reward_statistics_of(root: Path) -> StepRewardStatistics:
    """Return the statistics of the rewards of a dataset, which must have some."""
    statistics = statistics_of(root).rewards
    assert statistics is not None
    return statistics


def verdict_counts(root: Path) -> dict[str, int]:
    """Return the number of solutions by who gave their outcome."""
    counts = pl.read_parquet(root / "solutions/*.parquet")["verdict_by"].value_counts()
    return dict(counts.sort("verdict_by").iter_rows())


def remove_times(manifest: dict[str, Any]) -> None:
    """Remove the times of a manifest, and its digest, which covers them."""
    manifest["cost"].pop("seconds")
    manifest.pop("manifest_digest")
    for entry in manifest["stages"]:
        entry.get("cost", {}).pop("seconds", None)
        entry["counts"].get("answer_judge", {}).pop("seconds", None)


def read_sample_settings(manifest: Manifest) -> SampleSettings:
    """Return the settings of the samples of a dataset."""
    return manifest.get("sample", SampleRecord).options


def change_samples(manifest: Manifest, **fields: Any) -> None:
    """Change the settings of the samples of a manifest."""
    record = manifest.get("sample", SampleRecord)
    record.options = record.options.model_copy(update=fields)
    manifest.put(record)


def quarantine_counts(manifest: Manifest) -> dict[str, int]:
    """Return the unusable input rows of a dataset, by reason."""
    return manifest.get("problems", ProblemsRecord).counts.quarantined


def fixed_sampler(source: ProblemSet, texts: tuple[str, ...] = TEXTS) -> FixedSampler:
    template = get_template("problem")
    return FixedSampler({template.render(problem.question): texts for problem in source.problems})


def small_build(
    out: Path,
    source: ProblemSet | None = None,
    *,
    sampling: SampleSettings | None = None,
    make_sampler: Callable[[], Sampler] | None = None,
    **options: Any,
) -> dict[str, Any]:
    source = source or problem_set()
    resume = options.pop("resume", False)
    make = make_sampler or (lambda: fixed_sampler(source))
    job = build_job(source, make, sampling, **options)
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
        continuation_settings(chosen.model, continuation_sampling(manifest, n, seed=1)),
        lambda: chosen,
        batch_size=options.pop("batch", 2),
    )
    stage = LabelStage(continuer)
    return derive(source, out, stage, **options)


def rollouts(out: Path) -> list[Any]:
    return pl.read_parquet(out / "solutions/*.parquet")["rollouts"].to_list()


def stage_names(manifest: Manifest) -> set[str]:
    """Return the names of the stages of a dataset."""
    return {entry.name for entry in manifest.stages}
