"""A stage frees the memory of its engine at the end, because the next model needs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import PartlyRightSampler, TableScorer
from helpers import (
    RIGHT,
    TEXTS,
    WRONG,
    build_job,
    continuation_settings,
    fixed_sampler,
    problem_set,
    reward_model,
    small_build,
)

from fsdpo_data.core.errors import UnavailableError
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.stage import Stage
from fsdpo_data.engines.samplers import EngineLoader
from fsdpo_data.stages.continuations import ContinuationSampler, continuation_sampling
from fsdpo_data.stages.first_error import FirstErrorStage
from fsdpo_data.stages.label import LabelStage
from fsdpo_data.stages.sample import build
from fsdpo_data.stages.score import ScoreStage


class LoadCounter:
    """A function that loads an engine, and counts how often it is loaded and closed."""

    def __init__(self, engine: Any) -> None:
        self.events: list[str] = []
        self.engine = engine
        engine.close = lambda: self.events.append("close")

    def __call__(self) -> Any:
        self.events.append("load")
        return self.engine


def table_scorer() -> TableScorer:
    return TableScorer({RIGHT: [0.75, 0.875], WRONG: [0.5, 0.125], TEXTS[2]: [0.25], "": []})


def make_continuations(load: LoadCounter, source: Path) -> ContinuationSampler:
    sampling = continuation_sampling(read_manifest(source), 2, seed=1)
    settings = continuation_settings(PartlyRightSampler.model, sampling)
    return ContinuationSampler(settings, load, batch_size=2)


@pytest.mark.parametrize(
    ("engine", "make_stage"),
    [
        (
            table_scorer(),
            lambda load, _: ScoreStage(reward_model(TableScorer.model, load)),
        ),
        (
            PartlyRightSampler(),
            lambda load, source: LabelStage(make_continuations(load, source)),
        ),
        (
            PartlyRightSampler(),
            lambda load, source: FirstErrorStage(make_continuations(load, source)),
        ),
    ],
    ids=["score", "label", "first-error"],
)
def test_a_stage_closes_its_engine(
    engine: Any, make_stage: Callable[[LoadCounter, Path], Stage], tmp_path: Path
) -> None:
    small_build(tmp_path / "run")
    load = LoadCounter(engine)
    stage = make_stage(load, tmp_path / "run")
    derive_dataset(tmp_path / "run", tmp_path / "out", [stage], progress=LineProgress())
    assert load.events == ["load", "close"]


def test_a_build_without_stages_closes_its_engine(tmp_path: Path) -> None:
    source = problem_set()
    load = LoadCounter(fixed_sampler(source))
    build(build_job(source, load), tmp_path / "run", progress=LineProgress())
    assert load.events == ["load", "close"]


def test_an_engine_that_fails_is_closed(tmp_path: Path) -> None:
    small_build(tmp_path / "run")
    scorer = table_scorer()
    scorer.score = lambda items: (_ for _ in ()).throw(UnavailableError("died"))  # type: ignore[method-assign]
    load = LoadCounter(scorer)
    stage = ScoreStage(reward_model(TableScorer.model, load))
    with pytest.raises(UnavailableError, match="died"):
        derive_dataset(tmp_path / "run", tmp_path / "out", [stage], progress=LineProgress())
    assert load.events == ["load", "close"]


def test_a_shared_scorer_stays_loaded(tmp_path: Path) -> None:
    small_build(tmp_path / "run")
    load = LoadCounter(table_scorer())
    stage = ScoreStage(reward_model(TableScorer.model, EngineLoader(load)))
    derive_dataset(tmp_path / "run", tmp_path / "out", [stage], progress=LineProgress())
    assert load.events == ["load"]
