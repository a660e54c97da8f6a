"""The card of a sealed dataset."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsdpo_cards import commands
from fsdpo_cards.render import front_matter, licence, render

#: The Hub's size categories, and the numbers of rows between them.
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "n>10M")
_BETWEEN = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)


@dataclass(frozen=True)
class DatasetCardData:
    """A dataset, as far as its card tells of it."""

    manifest: Mapping[str, Any]
    table: Sequence[tuple[str, str]]  #: (name, value) rows of the summary.
    warnings: Sequence[str]
    configs: Sequence[str]  #: Its configs, the one to show first in front.
    examples: Mapping[str, str]
    plots: Mapping[str, str]
    info: Sequence[Mapping[str, Any]]  #: What the Hub's viewer wants to know of each config.


def dataset_card(
    facts: DatasetCardData, *, name: str = "PATH_OR_NAME", revision: str | None = None
) -> str:
    """Render the README of a dataset: YAML for the Hub's viewer, then prose, tables and plots.

    Readers load it by ``name``, ``org/name`` once it is published, and ``revision``, its tag there.

    Raises:
        jinja2.UndefinedError: if the manifest lacks a field that the card shows.
    """
    spec = facts.manifest["spec"]
    body = render(
        "dataset.md",
        **vars(facts),
        spec=spec,
        name=name,
        revision=revision,
        rebuild=commands.rebuild_commands(spec),
        policy=commands.policy(spec),
    )
    return front_matter(_metadata(facts)) + body


def _metadata(facts: DatasetCardData) -> dict[str, Any]:
    spec, rows = facts.manifest["spec"], facts.manifest["rows"]["solutions"]
    return {
        "license": licence(spec["sources"]),
        "language": ["en"],
        "pretty_name": f"Step-annotated solutions by {spec['model']['name']}",
        "size_categories": [_SIZES[bisect_right(_BETWEEN, rows)]],
        "task_categories": ["text-generation"],
        "tags": ["math", "reasoning", "process-supervision", "fsdpo"],
        "configs": [
            {
                "config_name": config,
                **({"default": True} if config == facts.configs[0] else {}),
                "data_files": [{"split": "train", "path": f"{config}/*.parquet"}],
            }
            for config in facts.configs
        ],
        "dataset_info": facts.info,
    }
