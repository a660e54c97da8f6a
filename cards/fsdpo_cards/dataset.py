"""Render the card of a sealed dataset."""

import shlex
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

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
    rows: Mapping[str, int]  #: Number of rows, by config.
    solutions: Mapping[str, Any]  #: Statistics of the solutions.
    pairs: Mapping[str, Any] | None  #: Statistics of the pairs; None without.
    table: Sequence[tuple[str, str]]  #: (name, value) rows of the summary.
    stage_rows: Sequence[str]  #: Markdown rows that describe the stages of the dataset.
    warnings: Sequence[str]  #: Possible problems of the dataset, one sentence each.
    configs: Sequence[str]  #: Names of the configs; the Hub shows the first.
    examples: Mapping[str, str]  #: One row as JSON, by config.
    columns: Mapping[str, Mapping[str, str]]  #: Descriptions of the columns by name, by config.
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
        jinja2.UndefinedError, KeyError: if the manifest lacks a field of the card.
    """
    stages = stage_entries(card_data.manifest)
    body = render(
        "dataset.md",
        manifest=card_data.manifest,
        rows=card_data.rows,
        solutions=card_data.solutions,
        pairs=card_data.pairs,
        table=card_data.table,
        stage_rows=card_data.stage_rows,
        warnings=card_data.warnings,
        configs=card_data.configs,
        examples=card_data.examples,
        columns=card_data.columns,
        plots=card_data.plots,
        stages=stages,
        written={column for entry in stages.values() for column in entry.get("writes", ())},
        name=name,
        title=dataset_title(stages),
        revision=revision,
        build_command=build_command(stages, card_data.rows["problems"]),
        policy=policy_argument(stages),
    )
    return front_matter(_metadata(card_data)) + body


#: The entries of the stages in a manifest, by name.
StageEntries: TypeAlias = Mapping[str, Mapping[str, Any]]


def stage_entries(manifest: Mapping[str, Any]) -> StageEntries:
    """Return the entries of the stages in a manifest, by name."""
    return {entry["name"]: entry for entry in manifest["stages"]}


def dataset_title(stages: StageEntries) -> str:
    """Return the title of a dataset, for the stages in its manifest."""
    if "import" in stages:
        source = stages["problems"]["options"]["sources"][0]
        return f"Step labels of {source['name']} ({stages['import']['options']['format']})"
    return f"Step-annotated solutions by {stages['sample']['options']['model']['name']}"


def build_command(stages: StageEntries, n_problems: int) -> str:
    """Return the command that samples the solutions again; empty if they were not sampled here.

    Manifests of benchmarks, and earlier ones, do not state how problems were drawn. Their number
    is the limit then, unless a selection or an edit has changed it.
    """
    sampled = stages["sample"]["options"]
    problems = stages["problems"]["options"]
    sources = problems["sources"]
    if "import" in stages or "unknown" in sampled["sampling"].values():
        return ""
    is_changed = "edit" in stages or any(
        "rows" in entry.get("writes", ()) for entry in stages.values()
    )
    options = {
        "model": pinned_name(sampled["model"]),
        "problems": [pinned_name(source) for source in sources],
        "split": sources[0]["split"],
        "limit": problems.get("limit", None if is_changed else n_problems),
        "limit-seed": problems.get("limit_seed"),
        "template": template_option(sampled["template"]),
        "samples": sampled["sampling"]["n"],
        **sampling_options(sampled["sampling"]),
        **search_options(sampled.get("search", {})),
        "segmenter": sampled["segmenter"],
        "engine": sampled["engine"]["name"],
        "dtype": sampled["engine"]["dtype"],
        "out": "runs/data",
    }
    return format_command(["fsdpo-data", "build"], options)


def search_options(search: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a search; empty for a dataset without a search."""
    if not search:
        return {}
    return {
        "sampler": search["sampler"],
        "prm": pinned_name(search["reward_model"]["prm"]),
        "prm-format": search["reward_model"].get("prm_format", {}).get("name"),
        "b1": search["beam"]["b1"],
        "b2": search["beam"]["b2"],
        "max-steps": search["beam"]["max_steps"],
        "first-keep": search["beam"]["first_keep"],
    }


def policy_argument(stages: StageEntries) -> str:
    """Return the model to train on a dataset, as an argument for the shell.

    If the dataset records only a title for its model, the argument is ``BASE_MODEL``.
    """
    model = stages["sample"]["options"]["model"]
    has_only_title = model["revision"] == "unknown"
    return "BASE_MODEL" if has_only_title else shlex.quote(pinned_name(model))


def _metadata(card_data: DatasetCardData) -> dict[str, Any]:
    """Return the metadata that the Hub reads from the card."""
    stages = stage_entries(card_data.manifest)
    n_solutions = card_data.rows["solutions"]
    return {
        "license": combined_licence(stages["problems"]["options"]["sources"]),
        "language": ["en"],
        "pretty_name": dataset_title(stages),
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
