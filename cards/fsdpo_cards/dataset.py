"""Render the card of a sealed dataset."""

import shlex
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsdpo_cards.pinned_names import pinned_name
from fsdpo_cards.render import TABLES, combined_licence, front_matter, render
from fsdpo_cards.shell_command import format_command, sampling_options, template_option

#: The Hub's size categories.
_SIZE_CATEGORIES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "n>10M")
#: The numbers of rows at which the next size category begins.
_SIZE_BOUNDS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)


@dataclass(frozen=True)
class DatasetCardData:
    """The data of a dataset that its card shows."""

    manifest: Mapping[str, Any]  #: The content of the manifest.
    table: Sequence[tuple[str, str]]  #: (name, value) rows of the summary.
    stage_rows: Sequence[str]  #: Markdown rows that describe the stages of the dataset.
    warnings: Sequence[str]  #: Possible problems of the dataset, one sentence each.
    configs: Sequence[str]  #: Names of the configs; the Hub shows the first.
    examples: Mapping[str, str]  #: One row as JSON, by config.
    plots: Mapping[str, str]  #: Text plots by title.
    info: Sequence[Mapping[str, Any]]  #: ``dataset_info`` of each config, for the Hub's viewer.


def dataset_card(
    card_data: DatasetCardData, *, name: str = "PATH_OR_NAME", revision: str | None = None
) -> str:
    """Render the README of a dataset: YAML for the Hub's viewer, then prose, tables and plots.

    Args:
        card_data: The data of the dataset.
        name: Name that loads the dataset: ``org/name`` after publication.
        revision: Its tag on the Hub.

    Raises:
        jinja2.UndefinedError: if the manifest lacks a field of the card.
    """
    spec = card_data.manifest["spec"]
    body = render(
        "dataset.md",
        manifest=card_data.manifest,
        table=card_data.table,
        stage_rows=card_data.stage_rows,
        warnings=card_data.warnings,
        configs=card_data.configs,
        examples=card_data.examples,
        plots=card_data.plots,
        spec=spec,
        name=name,
        title=dataset_title(spec),
        revision=revision,
        build_command=build_command(spec),
        policy=policy_argument(spec),
    )
    return front_matter(_metadata(card_data)) + body


def dataset_title(spec: Mapping[str, Any]) -> str:
    """Return the title of a dataset, for the spec of its manifest."""
    if "step_labels" in spec:
        return f"Step labels of {spec['sources'][0]['name']} ({spec['step_labels']['format']})"
    return f"Step-annotated solutions by {spec['model']['name']}"


def build_command(spec: Mapping[str, Any]) -> str:
    """Return the command that samples the solutions again; empty if they were not sampled here."""
    if "step_labels" in spec or "unknown" in spec["sampling"].values():
        return ""
    options = {
        "model": pinned_name(spec["model"]),
        "problems": [pinned_name(source) for source in spec["sources"]],
        "split": spec["sources"][0]["split"],
        "limit": spec["problems"]["count"],
        "template": template_option(spec["template"]),
        "samples": spec["sampling"]["n"],
        **sampling_options(spec["sampling"]),
        **search_options(spec.get("search", {})),
        "segmenter": spec["segmenter"],
        "engine": spec["engine"]["name"],
        "dtype": spec["engine"]["dtype"],
        "out": "runs/data",
    }
    return format_command(["fsdpo-data", "build"], options)


def search_options(search: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a search; empty for a dataset without a search."""
    if not search:
        return {}
    return {
        "sampler": search["sampler"],
        "prm": pinned_name(search["prm"]),
        "prm-format": search.get("prm_format", {}).get("name"),
        "b1": search["b1"],
        "b2": search["b2"],
        "max-steps": search["max_steps"],
        "step-tokens": search["step_tokens"],
        "first-keep": search["first_keep"],
        "beam-aggregate": search["aggregate"],
    }


def policy_argument(spec: Mapping[str, Any]) -> str:
    """Return the model to train on a dataset, as an argument for the shell.

    If the dataset records only a title for its model, the argument is ``BASE_MODEL``.
    """
    has_only_title = spec["model"]["revision"] == "unknown"
    return "BASE_MODEL" if has_only_title else shlex.quote(pinned_name(spec["model"]))


def _metadata(card_data: DatasetCardData) -> dict[str, Any]:
    """Return the metadata that the Hub reads from the card."""
    spec = card_data.manifest["spec"]
    n_solutions = card_data.manifest["rows"]["solutions"]
    return {
        "license": combined_licence(spec["sources"]),
        "language": ["en"],
        "pretty_name": dataset_title(spec),
        "size_categories": [_SIZE_CATEGORIES[bisect_right(_SIZE_BOUNDS, n_solutions)]],
        "task_categories": ["text-generation"],
        "tags": TABLES["dataset"]["tags"],
        "configs": [
            {
                "config_name": config,
                **({"default": True} if config == card_data.configs[0] else {}),
                "data_files": [{"split": "train", "path": f"{config}/*.parquet"}],
            }
            for config in card_data.configs
        ],
        "dataset_info": card_data.info,
    }
