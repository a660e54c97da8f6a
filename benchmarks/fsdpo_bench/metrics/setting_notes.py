"""Notes on the settings in which measurements differ, so that their numbers are hard to compare.

The notes come from the complete settings of the manifests, so a new setting needs no entry here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fsdpo_bench.metrics.measure import measurement_settings
from fsdpo_bench.metrics.pools import Pool
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.row_files import summarize_list
from fsdpo_data.dataset.manifest import SCORE_STAGE, read_manifest
from fsdpo_data.dataset.stage_records import (
    GRADE_STAGE,
    PAIR_STAGE,
    PROBLEMS_STAGE,
    SAMPLE_STAGE,
)
from fsdpo_data.stages.label_records import LABEL_STAGE

#: Names of settings that no note names: the policy is what a comparison compares. The others say
#: which random samples were drawn, and how many.
_UNCOMPARED_NAMES = ("model", "sampling.n", "sampling.seed", "engine.recording", "engine.seeds")
#: Stages whose settings are compared, or which change no number of a report.
_OTHER_STAGES = (PROBLEMS_STAGE, SAMPLE_STAGE, GRADE_STAGE, SCORE_STAGE, LABEL_STAGE, PAIR_STAGE)
#: Titles of settings, by name; other settings have their name.
_TITLES = {
    "grader": "graders",
    "answer_judge": "judges of undecided answers",
    "template": "prompt templates",
    "sampling.temperature": "sampling temperatures",
    "sampling.max_tokens": "token limits of a solution",
    "prm": "reward models",
}

_Settings = Mapping[str, Any]  #: Settings as plain JSON.


def setting_notes(pools: Sequence[Pool]) -> list[str]:
    """Name the settings of samples, grades and selections that differ between pools.

    Samples are compared by part of a run. Pools without a common part have one part each.
    """
    settings = [measurement_settings(pool, []) for pool in pools]
    notes = difference_notes([_to_json(entry.grade) for entry in settings])
    first_datasets, *other_datasets = (entry.datasets for entry in settings)
    common_parts = [
        name for name in first_datasets if all(name in datasets for datasets in other_datasets)
    ]
    samples = [[entry.datasets[part].sample for entry in settings] for part in common_parts]
    for part_samples in samples or [[entry.sample for entry in settings]]:
        notes += difference_notes([_to_json(sample) for sample in part_samples])
    notes += difference_notes([_selection_settings(pool) for pool in pools])
    return list(dict.fromkeys(notes))


def reward_model_notes(
    pools: Sequence[Pool], choices: Iterable[tuple[str, Sequence[str]]]
) -> list[str]:
    """Name the settings of the reward models of compared decoders that differ.

    Args:
        pools: The pools.
        choices: For each compared decoder, its name and the name of its reward model in each pool;
            an empty name for a decoder without one.
    """
    scores = [measurement_settings(pool, []).reward_models for pool in pools]
    decoders: dict[tuple[str, ...], list[str]] = {}
    for decoder, models in choices:
        if all(model in by_model for model, by_model in zip(models, scores, strict=True)):
            decoders.setdefault(tuple(models), []).append(decoder)
    notes = []
    for models, names in decoders.items():
        settings = [by_model[model] for model, by_model in zip(models, scores, strict=True)]
        suffix = f" of {summarize_list(names)}"
        # Local models of different runs often have one name, so the revision counts, too.
        notes += difference_notes([_to_json(score) for score in settings], suffix)
    return notes


def difference_notes(settings: Sequence[_Settings], suffix: str = "") -> list[str]:
    """Describe the settings that differ.

    Args:
        settings: The settings of each side.
        suffix: Text after the name of a setting.
    """
    notes = []
    for name, values in _differences("", settings):
        title = _TITLES.get(name, f"settings `{name}`")
        *first_texts, last_text = map(describe_value, values)
        notes.append(f"the {title}{suffix} differ: {', '.join(first_texts)} and {last_text}")
    return notes


def _differences(name: str, values: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the name and the values of each setting that differs, with dots in nested names."""
    if _is_uncompared(name) or all(value == values[0] for value in values):
        return
    if not all(isinstance(value, Mapping) and not _is_reference(value) for value in values):
        yield name, values
        return
    for key in dict.fromkeys(key for value in values for key in value):
        nested_name = f"{name}.{key}" if name else key
        yield from _differences(nested_name, [value.get(key) for value in values])


def _is_uncompared(name: str) -> bool:
    """Return whether no note names a setting, also if it belongs to a reward model or a judge."""
    if name in _UNCOMPARED_NAMES:
        return True
    return name.endswith((".sampling.seed", ".engine.recording", ".engine.seeds"))


def _is_reference(value: _Settings) -> bool:
    """Return whether settings name one thing with its version, such as a model or a template."""
    return "name" in value and ("revision" in value or "digest" in value)


def describe_value(value: Any) -> str:
    """Return a value of a setting as text; settings of a model are named by the model."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        if _is_reference(value):
            return f"{value['name']} ({value.get('revision', value.get('digest'))})"
        if "model" in value:
            return describe_value(value["model"])
    return json.dumps(value, ensure_ascii=False)


def _selection_settings(pool: Pool) -> dict[str, Any]:
    """Return the options of the stages that select rows, by the name of the stage."""
    manifest = read_manifest(pool.parts[pool.main_part])
    return {
        record.name: record.options
        for record in manifest.stages
        if record.name not in _OTHER_STAGES
    }


def _to_json(settings: FileModel) -> dict[str, Any]:
    """Return settings as plain JSON, with the defaults, which files leave out."""
    defaults = {
        name: field.get_default()
        for name, field in type(settings).model_fields.items()
        if not field.is_required() and not field.exclude
    }
    return defaults | settings.to_dict()
