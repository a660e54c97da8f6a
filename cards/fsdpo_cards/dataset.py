"""The card of a sealed dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fsdpo_cards import commands, facts
from fsdpo_cards.licences import licence, licence_of
from fsdpo_cards.plots import plots
from fsdpo_cards.render import front_matter, render

#: The Hub's size categories, each below a number of rows.
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)


def dataset_card(
    root: Path,
    manifest: Mapping[str, Any],
    *,
    name: str = "PATH_OR_NAME",
    revision: str | None = None,
) -> str:
    """Render the README of a dataset: YAML for the Hub's viewer, then prose, tables and plots.

    Args:
        root: The dataset's directory, for examples and distributions.
        manifest: What the dataset says about itself.
        name: How readers load it: ``org/name`` once it is published.
        revision: Tag of the published version.

    Raises:
        jinja2.UndefinedError: if the manifest lacks a field that the card shows.
    """
    from fsdpo_data.cli.summary import summary_rows

    body = render(
        "dataset.md",
        manifest=manifest,
        spec=manifest["spec"],
        table=summary_rows(manifest),
        name=name,
        revision=revision,
        configs=facts.configs_of(manifest),
        examples=facts.examples(root, manifest),
        plots=plots(root, manifest),
        licence_of=licence_of,
        rebuild=commands.rebuild(manifest["spec"]),
        model=commands.pinned(manifest["spec"]["model"]),
    )
    return front_matter(_metadata(root, manifest)) + body


def _metadata(root: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    configs = facts.configs_of(manifest)
    return {
        "license": licence(manifest["spec"]["sources"]),
        "language": ["en"],
        "pretty_name": f"Step-annotated solutions by {manifest['spec']['model']['name']}",
        "size_categories": [_size_category(manifest["rows"]["solutions"])],
        "task_categories": ["text-generation"],
        "tags": ["math", "reasoning", "process-supervision", "fsdpo"],
        "configs": [
            {
                "config_name": config,
                **({"default": True} if config == configs[0] else {}),
                "data_files": [{"split": "train", "path": f"{config}/*.parquet"}],
            }
            for config in configs
        ],
        "dataset_info": facts.dataset_info(root, manifest),
    }


def _size_category(rows: int) -> str:
    return next((name for bound, name in _SIZES if rows < bound), "n>10M")
