"""Cards: what a dataset is, rendered from its manifest. An undefined field is an error."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def dataset_card(
    manifest: Mapping[str, Any], *, name: str = "PATH_OR_NAME", revision: str | None = None
) -> str:
    """Render the README of a dataset: YAML for the Hub's viewer, then prose and tables.

    Args:
        manifest: What the dataset says about itself.
        name: How readers load it: ``org/name`` once it is published.
        revision: Tag of the published version.

    Raises:
        jinja2.UndefinedError: if the manifest lacks a field that the card shows.
    """
    from fsdpo_data.summary import summary_rows

    table = summary_rows(manifest)
    return _render("dataset.md", manifest=manifest, table=table, name=name, revision=revision)


def _render(template: str, /, **fields: Any) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    text = files(__package__).joinpath(template).read_text(encoding="utf-8")
    return environment.from_string(text).render(**fields) + "\n"
