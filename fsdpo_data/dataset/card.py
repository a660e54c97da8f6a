"""The card of a dataset: its facts gathered from the files, for ``fsdpo_cards`` to tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsdpo_cards
from fsdpo_cards.bars import bars, histogram, shares
from fsdpo_cards.dataset import DatasetCardData

from fsdpo_data.core.lazy import pa, pl, pq
from fsdpo_data.core.row_files import scan_parquet
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.schema import CONFIGS
from fsdpo_data.dataset.summary import dataset_warnings, summary_rows
from fsdpo_data.steps.rewards import aggregate_expr

_SHOWN = 400  #: Characters of one text shown in an example.


def dataset_card(
    root: Path, manifest: Manifest, *, name: str = "PATH_OR_NAME", revision: str | None = None
) -> str:
    """Return the README of the dataset in ``root``; see :func:`fsdpo_cards.dataset_card`."""
    facts = DatasetCardData(
        manifest=manifest.to_dict(),
        table=summary_rows(manifest),
        warnings=dataset_warnings(manifest),
        configs=ordered_configs(manifest),
        examples=example_rows(root, manifest),
        plots={title: bars(counts) for title, counts in distributions(root, manifest).items()},
        info=dataset_info(root, manifest),
    )
    return fsdpo_cards.dataset_card(facts, name=name, revision=revision)


def ordered_configs(manifest: Manifest) -> list[str]:
    """Return the configs that the dataset has, the one to show first in front."""
    first = "pairs" if manifest.rows.pairs else "solutions"
    there = [name for name in CONFIGS if getattr(manifest.rows, name) or name != "pairs"]
    return [first, *(name for name in there if name != first)]


def example_rows(root: Path, manifest: Manifest) -> dict[str, str]:
    """Return one real row of each config as JSON, long texts shortened."""
    found = {}
    for config in ordered_configs(manifest):
        row = scan_parquet(manifest.config_paths(root, config)).head(1).collect().to_dicts()
        if row:
            found[config] = json.dumps(_shorten(row[0]), indent=2, ensure_ascii=False)
    return found


def _shorten(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _SHOWN:
        return value[:_SHOWN] + " …"
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, list):
        return [_shorten(each) for each in value]
    if isinstance(value, dict):
        return {key: _shorten(each) for key, each in value.items()}
    return value


def dataset_info(root: Path, manifest: Manifest) -> list[dict[str, Any]]:
    """Return what the Hub's viewer and ``datasets`` want to know of each config beforehand."""
    listed = []
    for config in ordered_configs(manifest):
        entries = manifest.config_files(config)
        metadata = [pq.read_metadata(root / entry.path) for entry in entries]
        groups = [file.row_group(i) for file in metadata for i in range(file.num_row_groups)]
        size = sum(group.total_byte_size for group in groups)
        rows = sum(entry.rows for entry in entries)
        schema = pq.read_schema(root / entries[0].path)
        columns = [{"name": each.name, **_feature(each.type)} for each in schema]
        told = {
            "config_name": config,
            "features": columns,
            "splits": [{"name": "train", "num_bytes": size, "num_examples": rows}],
            "download_size": sum(entry.bytes for entry in entries),
            "dataset_size": size,
        }
        listed.append(told)
    return listed


def _feature(kind: pa.DataType) -> dict[str, Any]:
    """Spell an Arrow type as ``datasets`` spells it in a card."""
    if pa.types.is_list(kind):
        if not pa.types.is_struct(kind.value_type):
            return {"list": _feature(kind.value_type)["dtype"]}
        fields = kind.value_type.fields
        return {"list": [{"name": each.name, **_feature(each.type)} for each in fields]}
    return {"dtype": {"float": "float32", "bool": "bool"}.get(str(kind), str(kind))}


def distributions(root: Path, manifest: Manifest) -> dict[str, list[tuple[str, int]]]:
    """Return the distributions that the dataset has, by title: (label, count) in order."""
    solutions = scan_parquet(manifest.config_paths(root, "solutions"))
    labels, steps = manifest.labels, pl.col("completions").list.len()
    kinds = [kind for kind in ("positive", "negative", "unlabelled") if kind in labels]
    found: dict[str, list[tuple[str, int]]] = {
        "Solutions by outcome": list(manifest.outcomes.items()),
        "Steps by label": [(kind, labels[kind]) for kind in kinds],
        "Solutions by number of steps": histogram(_counts(solutions, steps)),
        "Solutions by number of tokens": histogram(_counts(solutions, pl.col("n_tokens"))),
    }
    if manifest.rollouts or manifest.judge:
        counts = pl.col("rollouts").struct
        each = solutions.select("rollouts").explode("rollouts").drop_nulls()
        share = counts.field("n_correct") / counts.field("n")
        told = "continuations that end right" if manifest.rollouts else "votes without an error yet"
        found[f"Steps by share of {told}"] = _tenths(each, share)
    if manifest.rewards and manifest.spec.rewards_are_probabilities:
        right, rewards = pl.col("outcome") == "correct", pl.col("step_rewards")
        for name, which in (("correct", right), ("other", ~right)):
            each = solutions.filter(which).select(rewards).explode("step_rewards")
            found[f"Step rewards in {name} solutions"] = _tenths(each, rewards)
    compared = manifest.pairs and manifest.pairs.margin and manifest.spec.rewards_are_probabilities
    if manifest.spec.pair and compared:
        how = manifest.spec.pair.aggregate
        margin = aggregate_expr("chosen_rewards", how) - aggregate_expr("rejected_rewards", how)
        title = f"Pairs by margin ({how} reward of chosen less rejected)"
        found[title] = _tenths(scan_parquet(manifest.config_paths(root, "pairs")), margin)
    return found


def _tenths(rows: pl.LazyFrame, value: pl.Expr) -> list[tuple[str, int]]:
    """Count numbers between -1 and 1 in tenths, from the first tenth that has any to the last."""
    # A tenth is closed below; the nudge keeps 0.3, which floats hold as a little less, in its own.
    tenths = (value * 10 + 1e-6).floor().clip(-10, 9).cast(pl.Int32)
    return shares(_counts(rows, tenths))


def _counts(rows: pl.LazyFrame, value: pl.Expr) -> list[tuple[int, int]]:
    counted = rows.select(value=value).drop_nulls().group_by("value").agg(pl.len()).collect()
    return [(int(each), int(count)) for each, count in counted.iter_rows()]
