"""Recognises the PRM format of a checkpoint by its content and by its names.

The name of a folder is weak evidence: a snapshot in the Hub cache and a symlink have other names
than the repository. Strong evidence comes first: the repository, then the architecture, then names,
and last the names of the weights. Manifests record the evidence.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.input_files import read_json
from fsdpo_data.engines.scorers.prm_formats import PRM_FORMATS, PrmFormat
from fsdpo_data.models.checkpoints import read_tensor_names
from fsdpo_data.models.resolve import ResolvedWeights, cached_repository

log = logging.getLogger(__name__)


class Recognition(NamedTuple):
    """A PRM format, and the evidence for it."""

    prm_format: PrmFormat  #: The format.
    evidence: str  #: The evidence in words, for manifests.


def recognise_format(weights: ResolvedWeights, config: Any) -> Recognition | None:
    """Return the PRM format of a checkpoint; None for a model of ``fsdpo-train prm``.

    Raises:
        InputError: if no format matches, or several do.
    """
    architecture = architecture_name(config)
    is_classifier = architecture.endswith("ForTokenClassification")
    if is_classifier and config.num_labels == 1:
        return None
    recognition = _match_repository(weights)
    if recognition is not None:
        return recognition
    matches = [
        prm_format
        for prm_format in PRM_FORMATS.values()
        if architecture in prm_format.architectures
        or (is_classifier and config.num_labels == prm_format.token_labels)
    ]
    labels = f" with {config.num_labels} labels" if is_classifier else ""
    if len(matches) == 1:
        return Recognition(matches[0], f"architecture {architecture}{labels}")
    recognition = _match_local_names(weights)
    if recognition is not None:
        return recognition
    matches = matches or _match_tensors(weights)
    if len(matches) == 1:
        return Recognition(matches[0], f"weights {', '.join(matches[0].head_tensors)}")
    if matches:
        names = " or ".join(prm_format.name for prm_format in matches)
        raise InputError(
            f"several PRM formats fit the checkpoint ({architecture}{labels}), and its name is in "
            f"none of them. Set `prm_format` to {names}.",
            field="prm",
            value=weights.path,
        )
    if architecture.endswith("ForCausalLM"):
        reason = f"the model is a language model ({architecture}), not a reward model"
    else:
        reason = f"the checkpoint has {architecture}{labels}, which no reward model here has"
    raise InputError(
        f"{reason}. Expected a model that `fsdpo-train prm` wrote, or a published reward model. "
        f"If it is a published one under another name, set `prm_format` "
        "(`fsdpo-data list prm-formats`). The implicit rewards of a policy need a `reference`.",
        field="prm",
        value=weights.path,
    )


def recognise_policy(weights: ResolvedWeights) -> Recognition:
    """Return the PRM format of a policy with a reference model, with a warning if none is named.

    A published model with log-ratios has the format that lists its name. Its weights have the names
    and the size of any other policy with its architecture, so a renamed copy cannot be recognised.
    """
    recognition = _match_repository(weights) or _match_local_names(weights)
    if recognition is not None:
        return recognition
    prm_format = next(form for form in PRM_FORMATS.values() if form.is_for_policies)
    published = [
        f"`prm_format={form.name}`"
        for form in PRM_FORMATS.values()
        if form.activation.startswith("log-ratio") and form.models
    ]
    log.warning(
        "%s has no name of a published reward model, so its rewards are those of a policy (PRM "
        "format %s). For a renamed copy of a published model, give its format, such as "
        "%s. The manifest records the format.",
        weights.ref.name,
        prm_format.name,
        " or ".join(published),
    )
    return Recognition(prm_format, "reference model, and no name of a published model")


def architecture_name(config: Any) -> str:
    """Return the first architecture in the config of a checkpoint."""
    architectures = config.architectures
    has_architecture = isinstance(architectures, list) and architectures
    return str(architectures[0]) if has_architecture else "no architecture"


def _match_repository(weights: ResolvedWeights) -> Recognition | None:
    """Return the format that lists the repository of the weights."""
    if weights.commit is not None:
        return _match_name(weights.ref.name, f"repository {weights.ref.name}")
    for repository in _cached_repositories(Path(weights.path)):
        recognition = _match_name(repository, f"repository {repository} of the Hub cache")
        if recognition is not None:
            return recognition
    return None


def _cached_repositories(folder: Path) -> Iterator[str]:
    """Yield the repositories whose files in the Hub cache the folder is, or links to."""
    for file in (folder, *sorted(folder.glob("*.safetensors")), folder / "config.json"):
        for path in (Path(os.path.abspath(file)), file.resolve()):
            repository = cached_repository(path)
            if repository:
                yield repository


def _match_local_names(weights: ResolvedWeights) -> Recognition | None:
    """Return the format that lists a name of a folder: its own, its target's, or its config's."""
    if weights.commit is not None:
        return None
    folder = Path(weights.path)
    for name in (Path(os.path.abspath(folder)).name, folder.resolve().name):
        recognition = _match_name(name, f"folder name {name}")
        if recognition is not None:
            return recognition
    # transformers replaces this value by the path when it loads a config.
    stored_name = _read_stored_name(folder / "config.json")
    repository = cached_repository(Path(stored_name)) or stored_name
    return _match_name(repository, f"_name_or_path {repository} in config.json")


def _read_stored_name(file: Path) -> str:
    """Return ``_name_or_path`` of a config; empty if there is none."""
    try:
        config = read_json(file)
    except (InputError, OSError):
        return ""
    name = config.get("_name_or_path") if isinstance(config, dict) else None
    return name.rstrip("/") if isinstance(name, str) else ""


def _match_name(model: str, evidence: str) -> Recognition | None:
    """Return the format that lists a model."""
    prm_format = PRM_FORMATS.find_by_model(model)
    return None if prm_format is None else Recognition(prm_format, evidence)


def _match_tensors(weights: ResolvedWeights) -> list[PrmFormat]:
    """Return the formats whose head is among the weights of a local checkpoint."""
    if weights.commit is not None:
        return []
    names = read_tensor_names(Path(weights.path))
    return [
        prm_format
        for prm_format in PRM_FORMATS.values()
        if prm_format.head_tensors and names.issuperset(prm_format.head_tensors)
    ]
