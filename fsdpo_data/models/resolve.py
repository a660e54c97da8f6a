"""Models by name: which weights a name stands for, and how each model wants to be asked."""

import dataclasses
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from fsdpo_data.core.errors import InputError, UnavailableError, suggest_names
from fsdpo_data.core.identity import ModelRef, canonical_json, file_sha256
from fsdpo_data.core.toml_tables import TomlTable
from fsdpo_data.hub.client import HubRepo, is_path, resolve_commit
from fsdpo_data.models.prompts import TEMPLATES, Template, get_template, versioned_name
from fsdpo_data.problems.embedded import CHECKPOINT

SERVED_REVISION = "served"  #: The revision of a model that a server runs.
#: Files that decide what a local model says. Optimizer state, logs and READMEs do not.
_MODEL_FILES = (
    *("config.json", "generation_config.json", "*token*.json", "*token*.model", "chat_template*"),
    *("vocab.*", "merges.txt", "spiece.model", "sentencepiece*.model", "*.safetensors"),
    *("*.safetensors.index.json", "pytorch_model*.bin"),
)


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A row of the table of short names."""

    template: str  #: The prompt it was tuned on.
    repo: str = ""  #: Hub repository; empty where none was ever published.
    note: str = ""  #: Where there is no repository: what to do instead.


@dataclass(frozen=True, slots=True)
class ResolvedWeights:
    """A model that is pinned down."""

    ref: ModelRef  #: Name and revision, as they go into ids and manifests.
    path: str  #: What ``from_pretrained`` takes: a directory, or a Hub repository.
    commit: str | None = None  #: The ``revision`` for ``from_pretrained``; None for a directory.


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModel(ResolvedWeights):
    """A model that is pinned down, and the template that makes prompts of questions."""

    template: Template


MODELS = TomlTable(__file__, lambda _name, **told: ModelEntry(**told))  #: By short name.


def resolve(name: str, template: str | None = None) -> ResolvedModel:
    """Pin down a model, and how to ask it: by default with its own template, or its chat template.

    ``name`` is one of ``MODELS``, a local directory, or ``org/name`` with an optional
    ``@revision``.

    Raises:
        InputError: if there is no such model, directory, revision or template.
        Unavailable: if the Hub cannot be reached, or refuses.
    """
    weights = resolve_weights(name)
    tuned = _tuned_templates()
    own = tuned.get(name) or tuned.get(weights.path, "chat-boxed")
    chosen = get_template(
        own if template is None else template, weights.path, revision=weights.commit
    )
    return ResolvedModel(weights.ref, weights.path, weights.commit, template=chosen)


def _tuned_templates() -> dict[str, str]:
    """Return the template that each model known by name or repository was tuned on."""
    known = MODELS.items()
    return {name: model.template for label, model in known for name in (label, model.repo or label)}


def served_weights(name: str) -> ResolvedWeights:
    """Name a model that a server runs: which weights those are, only the server knows."""
    # Folders are that machine's business.
    return ResolvedWeights(
        ModelRef(name.rpartition("/")[2] if name[:1] == "/" else name, SERVED_REVISION), name
    )


def resolve_served(name: str, template: str | None, *, chat: bool) -> ResolvedModel:
    """Name a model that a server runs, and how to ask it.

    With ``chat`` the server puts its own chat format around what the template makes.

    Raises:
        InputError: if there is no such template, or it needs a tokenizer that is not here.
    """
    weights = served_weights(name)
    own = "chat-boxed" if chat else _tuned_templates().get(name, "chat-boxed")
    full = versioned_name(template or own)
    chosen = TEMPLATES[full] if chat else get_template(full, name)
    return ResolvedModel(weights.ref, weights.path, template=chosen)


def resolve_weights(name: str) -> ResolvedWeights:
    """Pin down which weights ``name`` stands for, for who brings prompts along.

    Raises:
        InputError: if there is no such model, directory or revision.
        Unavailable: if the Hub cannot be reached, or refuses.
    """
    entry = MODELS.get(name)
    if name == "tiny":
        if not (CHECKPOINT / "config.json").is_file():
            raise UnavailableError(
                f"{CHECKPOINT} is missing. Install fsdpo again.", field="model", value=name
            )
        return ResolvedWeights(ModelRef(name, content_revision(CHECKPOINT)), str(CHECKPOINT))
    if entry is not None and not entry.repo:
        raise _unusable(name, f"{entry.note}.")
    if entry is None and is_path(name):
        return _local(name, Path(os.path.expanduser(name)))
    repo = HubRepo.parse(entry.repo if entry else name, "model")
    if repo is None:
        raise _unusable(
            name,
            f"expected a directory, org/name on the Hub, or one of: {', '.join(MODELS)}."
            f"{_nearest(name)}",
        )
    hint = "" if entry else " There is no directory of that name either." + _nearest(name)
    commit = resolve_commit(dataclasses.replace(repo, hint=hint))
    return ResolvedWeights(ModelRef(repo.name, commit), repo.name, commit)


def _nearest(name: str) -> str:
    wanted = name.rpartition("/")[2].partition("@")[0].lower()
    return suggest_names(wanted, MODELS, "Nearest short names", cutoff=0.5)


def _local(name: str, path: Path) -> ResolvedWeights:
    if not path.is_dir():
        around = path.parent.iterdir() if path.parent.is_dir() else ()
        folders = [each.name for each in around if each.is_dir() and each.name[0] != "."]
        beside = suggest_names(path.name, folders, "Beside it")
        raise _unusable(name, f"expected a model directory, found none.{beside}")
    if not (path / "config.json").is_file():
        found = ", ".join(sorted(file.name for file in path.iterdir())[:8]) or "nothing"
        raise _unusable(
            name,
            f"no config.json there, so it is no model directory. Found: {found}. "
            "Give the directory that save_pretrained wrote.",
        )
    # Folders above are this machine's business; the revision says which model it is.
    return ResolvedWeights(ModelRef(path.resolve().name, content_revision(path)), str(path))


def _unusable(name: str, message: str) -> InputError:
    return InputError(message, field="model", value=name)


def content_revision(path: Path) -> str:
    """Return ``sha256:…`` over the names and contents of a model directory's files."""
    files = {file for pattern in _MODEL_FILES for file in path.glob(pattern) if file.is_file()}
    listed = [(file.name, file_sha256(file)) for file in sorted(files)]
    return "sha256:" + hashlib.sha256(canonical_json(listed).encode()).hexdigest()
