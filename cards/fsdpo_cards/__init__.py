"""Cards: what a dataset is, rendered from its manifest. An undefined field is an error."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

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
    from fsdpo_cards import commands, facts
    from fsdpo_cards.licences import licence_of
    from fsdpo_data.summary import summary_rows

    body = _render(
        "dataset.md",
        manifest=manifest,
        spec=manifest["spec"],
        table=summary_rows(manifest),
        name=name,
        revision=revision,
        configs=facts.configs_of(manifest),
        examples=facts.examples(root, manifest),
        plots=facts.plots(root, manifest),
        licence_of=licence_of,
        rebuild=commands.rebuild(manifest["spec"]),
    )
    return _front_matter(root, manifest) + body


def _front_matter(root: Path, manifest: Mapping[str, Any]) -> str:
    """Return the YAML block that the Hub reads."""
    import yaml

    from fsdpo_cards import facts
    from fsdpo_cards.licences import licence

    configs = facts.configs_of(manifest)
    fields = {
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
    return f"---\n{yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)}---\n"


def _size_category(rows: int) -> str:
    return next((name for bound, name in _SIZES if rows < bound), "n>10M")


def _render(template: str, /, **fields: Any) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    text = files(__package__).joinpath(template).read_text(encoding="utf-8")
    return str(environment.from_string(text).render(**fields)) + "\n"
