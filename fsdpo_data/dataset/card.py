"""Collect the data of a dataset card from the files; ``fsdpo_cards`` renders the card."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fsdpo_cards
from fsdpo_cards.bars import draw_bars, histogram
from fsdpo_cards.dataset import DatasetCardData

from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.parquet_files import collect_rows, count_bytes, open_parquet, scan_parquet
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.plots import count_values
from fsdpo_data.dataset.schema import CONFIGS, describe_present_columns
from fsdpo_data.dataset.stage_registry import card_rows, plot_stages
from fsdpo_data.dataset.statistics import DatasetStatistics
from fsdpo_data.dataset.summary import dataset_warnings, summary_rows

_MAX_EXAMPLE_CHARS = 400  #: Characters of one text in an example.
#: Names of types in ``datasets``, by their names in Arrow. All other names are the same.
_FEATURE_TYPES = {
    "float": "float32",
    "double": "float64",
    "halffloat": "float16",
    "date32[day]": "date32",
    "date64[ms]": "date64",
}


def dataset_card(
    root: Path, manifest: Manifest, *, name: str = "PATH_OR_NAME", revision: str | None = None
) -> str:
    """Return the README of the dataset in ``root``; see :func:`fsdpo_cards.dataset_card`.

    Raises:
        SchemaError: if the manifest lacks a field of the card.
    """
    from jinja2 import UndefinedError

    statistics = DatasetStatistics(root, manifest)
    pairs = statistics.pairs
    card_data = DatasetCardData(
        manifest=manifest.to_dict(),
        rows=manifest.rows._asdict(),
        solutions=asdict(statistics.solutions) | {"judge_decisions": statistics.judge_decisions},
        pairs=None if pairs is None else asdict(pairs),
        table=summary_rows(statistics),
        stage_rows=card_rows(manifest),
        warnings=dataset_warnings(statistics),
        configs=ordered_configs(manifest),
        examples=example_rows(root, manifest),
        columns={
            config: describe_present_columns(config, manifest.config_paths(root, config))
            for config in CONFIGS
            if manifest.config_files(config)
        },
        plots={title: draw_bars(counts) for title, counts in distributions(statistics).items()},
        info=dataset_info(root, manifest),
    )
    try:
        return fsdpo_cards.dataset_card(card_data, name=name, revision=revision)
    except (UndefinedError, LookupError) as error:
        raise SchemaError(
            f"the manifest of {root} lacks a field of the card ({error}). Build the dataset again, "
            "or download it again."
        ) from None


def ordered_configs(manifest: Manifest) -> list[str]:
    """Return the configs of the dataset, starting with the config that the Hub shows first."""
    first = "pairs" if manifest.rows.pairs else "solutions"
    present_configs = [name for name in CONFIGS if name != "pairs" or manifest.rows.pairs]
    return [first, *(name for name in present_configs if name != first)]


def example_rows(root: Path, manifest: Manifest) -> dict[str, str]:
    """Return one real row of each config as JSON, long texts shortened."""
    examples = {}
    for config in ordered_configs(manifest):
        row = collect_rows(scan_parquet(manifest.config_paths(root, config)).head(1)).to_dicts()
        if row:
            examples[config] = json.dumps(
                _shorten(row[0]), indent=2, ensure_ascii=False, default=str
            )
    return examples


def _shorten(value: Any) -> Any:
    """Shorten the texts and round the numbers of a row."""
    if isinstance(value, str) and len(value) > _MAX_EXAMPLE_CHARS:
        return value[:_MAX_EXAMPLE_CHARS] + " …"
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, list):
        return [_shorten(item) for item in value]
    if isinstance(value, dict):
        return {key: _shorten(item) for key, item in value.items()}
    return value


def dataset_info(root: Path, manifest: Manifest) -> list[dict[str, Any]]:
    """Return the ``dataset_info`` of each config for the Hub's viewer and ``datasets``."""
    infos = []
    for config in ordered_configs(manifest):
        entries = manifest.config_files(config)
        # Damaged row groups end the process here, but the rows were checked before.
        size = sum(count_bytes(root / entry.path) for entry in entries)
        rows = sum(entry.rows for entry in entries)
        schema = open_parquet(root / entries[0].path).schema_arrow
        columns = [{"name": column.name, **_feature(column.type)} for column in schema]
        info = {
            "config_name": config,
            "features": columns,
            "splits": [{"name": "train", "num_bytes": size, "num_examples": rows}],
            "download_size": sum(entry.bytes for entry in entries),
            "dataset_size": size,
        }
        infos.append(info)
    return infos


def _feature(arrow_type: pa.DataType) -> dict[str, Any]:
    """Return an Arrow type in the notation of ``datasets`` cards."""
    if pa.types.is_list(arrow_type):
        item = _feature(arrow_type.value_type)
        return {"list": item.get("struct") or item.get("dtype") or item}
    if pa.types.is_struct(arrow_type):
        fields = arrow_type.fields
        return {"struct": [{"name": field.name, **_feature(field.type)} for field in fields]}
    name = str(arrow_type)
    return {"dtype": _FEATURE_TYPES.get(name, name)}


def distributions(statistics: DatasetStatistics) -> dict[str, list[tuple[str, int]]]:
    """Return (label, count) rows of each distribution, by title."""
    solutions = statistics.scan_solutions()
    labels = statistics.solutions.labels
    steps = pl.col("completions").list.len()
    kinds = [kind for kind in ("positive", "negative", "unlabelled") if kind in labels]
    plots: dict[str, list[tuple[str, int]]] = {
        "Solutions by outcome": list(statistics.solutions.outcomes.items()),
        "Steps by label": [(kind, labels[kind]) for kind in kinds],
        "Solutions by number of steps": histogram(count_values(solutions, steps)),
        "Solutions by number of tokens": histogram(count_values(solutions, pl.col("n_tokens"))),
    }
    plots |= plot_stages(statistics)
    return plots
