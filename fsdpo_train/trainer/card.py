"""What a finished run tells its model card; the cards themselves are in ``fsdpo_cards``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsdpo_data
from fsdpo_data.core.files import explained, write_atomic
from fsdpo_data.dataset.run import MANIFEST
from fsdpo_train.config import NOT_IDENTITY, TrainConfig


def write_card(config: TrainConfig, identity: Mapping[str, str], report: Any) -> None:
    """Write the model card of a finished run to ``config.out``.

    Args:
        config: The options of the run.
        identity: What decided the weights: the options with data and model by content, and what
            else is worth telling.
        report: The stage's report, a dataclass.
    """
    from fsdpo_cards import model_card
    from fsdpo_cards.model import Run

    told = {each.name: getattr(report, each.name) for each in dataclasses.fields(report)}
    run = Run(
        stage=config.stage,
        name=config.out.resolve().name,
        model=_model(config, identity),
        data=_data(config, identity),
        report=told,
        options={**_nameless(config, identity), **_versions()},
        changed=_nameless(config, _changed(config)),
        manifest=_manifest(config.data),
        processes=(
            int(os.environ.get("WORLD_SIZE", "1")),
            int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        ),
    )
    with explained(config.out, saved=0):
        write_atomic(config.out / "README.md", model_card(run).encode())


def _model(config: TrainConfig, identity: Mapping[str, str]) -> str:
    """Return the name of what training started from; empty for random weights."""
    from fsdpo_cards.commands import pinned

    if config.model is None:
        return ""
    name, _, revision = identity["model"].rpartition("@")
    return pinned({"name": name, "revision": revision})


def _data(config: TrainConfig, identity: Mapping[str, str]) -> str:
    """Return the name of the data; folders above are this machine's business."""
    on_hub = not config.data.exists()
    return identity["data"] if on_hub else config.data.resolve().name


def _manifest(data: Path) -> dict[str, Any] | None:
    from fsdpo_data.dataset.manifest import read_manifest

    return read_manifest(data).plain() if (data / MANIFEST).exists() else None


def _changed(config: TrainConfig) -> dict[str, Any]:
    """Return the options that are not the stage's defaults and decide the weights."""
    return {
        each.name: value
        for each in dataclasses.fields(config)
        if each.name not in NOT_IDENTITY | {"data", "model"}
        and (value := getattr(config, each.name)) != each.default
    }


def _nameless(config: TrainConfig, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the names of files in place of their paths."""
    paths = {"from_config", "deepspeed"}
    return {
        key: Path(value).name if key in paths and getattr(config, key) else value
        for key, value in options.items()
    }


def _versions() -> dict[str, str]:
    import torch
    import transformers

    return {
        "fsdpo": fsdpo_data.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
