"""What a finished run tells its model card; the cards themselves are in ``fsdpo_cards``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from importlib.metadata import version
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
    from fsdpo_cards.commands import pinned
    from fsdpo_cards.model import Run

    from fsdpo_data.dataset.manifest import read_manifest

    sealed, on_hub = (config.data / MANIFEST).exists(), not config.data.exists()
    name, _, revision = identity.get("model", "").rpartition("@")
    world, local = (int(os.environ.get(each, "1")) for each in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    run = Run(
        stage=config.stage,
        name=config.out.resolve().name,
        model=pinned({"name": name, "revision": revision}),
        # Folders above are this machine's business.
        data=identity["data"] if on_hub else config.data.resolve().name,
        report=vars(report),
        options={**_nameless(config, identity), **_versions()},
        changed=_nameless(config, _changed(config)),
        manifest=read_manifest(config.data).plain() if sealed else None,
        processes=(world, local),
    )
    with explained(config.out, saved=0):
        write_atomic(config.out / "README.md", model_card(run).encode())


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
    libraries = {name: version(name) for name in ("torch", "transformers")}
    return {"fsdpo": fsdpo_data.__version__, **libraries}
