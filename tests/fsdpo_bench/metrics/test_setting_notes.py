"""Every setting of samples, grades and reward models that differs has a note."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fsdpo_bench.metrics.setting_notes import difference_notes

from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.identity import EngineRef, ModelRef
from fsdpo_data.core.sampling import SamplingSpec
from fsdpo_data.dataset.stage_records import GradeSettings, SampleSettings, SearchSettings
from fsdpo_data.engines.answer_judge import AnswerJudgeSettings
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.scorers.prm_formats import PrmFormatRef, ScoreSettings
from fsdpo_data.models.prompts import get_template

#: The settings without a note: the compared policy, and what says which samples were drawn.
UNCOMPARED = {
    *("model", "sampling.n", "sampling.seed", "engine.recording", "engine.seeds"),
    *("answer_judge.sampling.seed", "answer_judge.engine.recording", "answer_judge.engine.seeds"),
    *("search.reward_model.engine.recording", "search.reward_model.engine.seeds"),
}
ENGINE = EngineRef(
    name="openai", dtype="auto", api="chat", seeds="x", recording="y", request_fields={"a": 1}
)
SCORE = ScoreSettings(
    prm=ModelRef("prm", "0"),
    engine=ENGINE,
    prm_format=PrmFormatRef(name="made", digest="e", meaning="probability"),
    reference=ModelRef("start", "0"),
)
SAMPLE = SampleSettings(
    model=ModelRef("policy", "0"),
    template=get_template("problem").ref,
    sampling=SamplingSpec(n=4),
    engine=ENGINE,
    segmenter="auto@1",
    search=SearchSettings(sampler="beam", beam=BeamSpec(), reward_model=SCORE),
)
GRADE = GradeSettings(
    grader="math@6",
    labels="outcome@1",
    grade_thinking=True,
    answer_judge=AnswerJudgeSettings(
        model=ModelRef("judge", "0"),
        format="xverify",
        format_digest="d",
        prompt_sha256="e",
        template=get_template("problem").ref,
        sampling=SamplingSpec(n=1),
        engine=ENGINE,
    ),
)


def changed_settings(values: dict[str, Any], name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name of each setting, and the settings with another value of it."""
    for key, value in values.items():
        full_name = f"{name}.{key}" if name else key
        is_reference = isinstance(value, dict) and {"revision", "digest"} & {*value}
        if isinstance(value, dict) and not is_reference:
            for inner_name, changed in changed_settings(value, full_name):
                yield inner_name, {**values, key: changed}
        else:
            other_value = {**value, "name": "other"} if isinstance(value, dict) else "other"
            yield full_name, {**values, key: other_value}


@pytest.mark.parametrize("settings", [SAMPLE, GRADE, SCORE])
def test_every_setting_that_differs_has_a_note(settings: FileModel) -> None:
    values = settings.to_dict()
    without_notes = set()
    for name, changed in changed_settings(values):
        notes = difference_notes([values, changed])
        assert len(notes) <= 1
        if not notes:
            without_notes.add(name)
    assert without_notes == UNCOMPARED & {name for name, _ in changed_settings(values)}
    assert not difference_notes([values, values])


def test_a_note_names_the_values_of_all_sides() -> None:
    with_judge = GRADE.to_dict()
    without_judge = {**with_judge, "answer_judge": None}
    assert difference_notes([without_judge, with_judge, with_judge]) == [
        "the judges of undecided answers differ: none, judge (0) and judge (0)"
    ]
