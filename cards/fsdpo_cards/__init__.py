"""Cards: what a dataset is, rendered from its manifest. An undefined field is an error."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def dataset_card(manifest: Mapping[str, Any]) -> str:
    """Render the README of a dataset: YAML for the Hub's viewer, then prose and tables.

    Raises:
        jinja2.UndefinedError: if the manifest lacks a field that the card shows.
    """
    from fsdpo_data.summary import summary_rows

    return _render("dataset.md", manifest=manifest, table=summary_rows(manifest))


def _render(name: str, **fields: Any) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    return environment.from_string(text).render(**fields) + "\n"
