"""Model names: the exact weights and the prompt template that belong to a name."""

import dataclasses
import glob
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fsdpo_data.core.errors import FsdpoError, InputError, UnavailableError, suggest_names
from fsdpo_data.core.identity import ModelRef, file_sha256, json_sha256
from fsdpo_data.core.input_files import check_regular_file
from fsdpo_data.core.toml_tables import TomlTable
from fsdpo_data.hub.client import HubRepo, find_file, is_path, resolve_commit
from fsdpo_data.models.prompts import (
    ChatFormat,
    Template,
    TemplateRef,
    add_chat_format,
    find_template,
    get_template,
    is_same_template,
    template_of_ref,
)
from fsdpo_data.models.trained_template import TEMPLATE_FILE, read_trained_template
from fsdpo_data.problems.embedded import CHECKPOINT

log = logging.getLogger(__name__)

SERVED_REVISION = "served"  #: Revision of all models on a server, which does not state one.
#: Patterns of the files of a tokenizer.
_TOKENIZER_FILES = (
    "*token*.json",
    "*token*.model",
    "chat_template*",
    "vocab.*",
    "merges.txt",
    "spiece.model",
    "sentencepiece*.model",
)
#: Patterns of the files that determine the output of a local model. Optimizer state, logs and
#: READMEs have no effect.
_MODEL_FILES = (
    "config.json",
    "generation_config.json",
    *_TOKENIZER_FILES,
    "*.safetensors",
    "*.safetensors.index.json",
    "pytorch_model*.bin",
)


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A row of the table of short names in ``resolve.toml``."""

    template: str  #: Name of the prompt template from the model's training.
    repo: str = ""  #: Hub repository; empty for an unpublished model.
    note: str = ""  #: Error text for a model without a repository: the reason and an alternative.


@dataclass(frozen=True, slots=True)
class ResolvedWeights:
    """One exact version of a model's weights."""

    ref: ModelRef  #: Name and revision for ids and manifests.
    path: str  #: Argument of ``from_pretrained``: a directory or a Hub repository.
    commit: str | None = None  #: ``revision`` for ``from_pretrained``; None for a directory.


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModel(ResolvedWeights):
    """One exact version of a model's weights, with its prompt template."""

    template: Template  #: The template that turns questions into prompts.


#: Published models by short name.
MODELS = TomlTable(__file__, lambda _name, **fields: ModelEntry(**fields))


def resolve(name: str, template: str | None = None) -> ResolvedModel:
    """Find the exact weights and the prompt template of a model.

    Args:
        name: A short name of ``MODELS``, a local directory, or ``org/name`` with an optional
            ``@revision``.
        template: Name of a prompt template. By default the template from the model's training, or
            the chat template of its tokenizer. If that already contains the request for a box, it
            is not repeated.

    Raises:
        InputError: if there is no such model, directory, revision or template, or if the model was
            trained here with prompts of an unknown template.
        UnavailableError: if the Hub is unreachable or refuses access.
    """
    weights = resolve_weights(name)
    if template is None:
        template = _published_template(name, weights)
    return ResolvedModel(
        ref=weights.ref,
        path=weights.path,
        commit=weights.commit,
        template=(
            get_template(template, weights.path, revision=weights.commit)
            if template is not None
            else find_trained_template(weights) or _default_chat_template(weights)
        ),
    )


def _published_template(name: str, weights: ResolvedWeights) -> str | None:
    """Return the name of the template of a published model; None for other models."""
    templates = _templates_by_model()
    # A snapshot in the Hub cache is the published model, also behind a symlink.
    is_local = weights.commit is None
    repository = cached_repository(Path(weights.path).resolve()) if is_local else weights.path
    return templates.get(name) or templates.get(repository)


def find_trained_template(weights: ResolvedWeights) -> Template | None:
    """Return the template that a model was trained with; None if it was trained elsewhere.

    Raises:
        InputError: if the template of its training is unknown.
    """
    file = _trained_template_file(weights)
    if file is None:
        return None
    ref = read_trained_template(file.parent)
    if ref is None:
        raise InputError(
            f"{weights.path} was trained with prompts of no known template. Name the template that "
            "they were made with.",
            field="template",
            value=None,
        )
    return add_chat_format(template_of_ref(ref), weights.path, revision=weights.commit)


def find_trained_template_ref(weights: ResolvedWeights) -> TemplateRef | None:
    """Return the template that a model was trained with, if the model states it."""
    file = _trained_template_file(weights)
    return None if file is None else read_trained_template(file.parent)


def warn_about_other_template(
    weights: ResolvedWeights, template: TemplateRef, results: str
) -> None:
    """Warn if a model learned from prompts of another template than it will read.

    It reads the prompts of the solutions. Its training data then do not resemble them.

    Args:
        weights: The model.
        template: The template of the solutions.
        results: Word for what the model computes, such as ``rewards``.
    """
    trained = find_trained_template_ref(weights)
    if trained is None or is_same_template(trained, template):
        return
    other_text = " with another text" if trained.name == template.name else ""
    log.warning(
        "%s learned from prompts of the template %s, and the solutions have prompts of %s%s: "
        "its %s may be wrong. Use one template for both.",
        weights.ref.name,
        trained.name,
        template.name,
        other_text,
        results,
    )


def _trained_template_file(weights: ResolvedWeights) -> Path | None:
    """Return the file with the template of a model's training; None if there is none."""
    if weights.commit is None:
        file: Path | None = Path(weights.path) / TEMPLATE_FILE
    else:
        file = find_file(HubRepo(weights.path, "model", weights.commit), TEMPLATE_FILE)
    return file if file is not None and os.path.lexists(file) else None


def _default_chat_template(weights: ResolvedWeights) -> Template:
    """Return the chat template with a request for a box, unless it contains the request itself.

    The default system message of Qwen2.5-Math is this request.
    """
    template = get_template("chat-boxed", weights.path, revision=weights.commit)
    request = template.text.rpartition("{question}")[2].strip()
    if template.chat is not None and request in template.chat.render("2+2?"):
        return get_template("chat", weights.path, revision=weights.commit)
    return template


def cached_repository(path: Path) -> str:
    """Return the repository of a path in the Hub cache; empty for other paths.

    The cache has a folder ``models--org--name`` for the repository ``org/name``.
    """
    for part in reversed(path.parts):
        prefix, _, repository = part.partition("--")
        if prefix == "models" and repository:
            return repository.replace("--", "/", 1)
    return ""


def _templates_by_model() -> dict[str, str]:
    """Return the default template of each known model, by short name and by repository."""
    templates = {}
    for name, entry in MODELS.items():
        templates[name] = entry.template
        if entry.repo:
            templates[entry.repo] = entry.template
    return templates


def served_weights(name: str) -> ResolvedWeights:
    """Return a reference to a model on a server; only the server knows its exact weights."""
    # Only the last folder of a path counts, because the others belong to the server's machine.
    ref_name = name.rpartition("/")[2] if name.startswith("/") else name
    return ResolvedWeights(ModelRef(ref_name, SERVED_REVISION), name)


def resolve_served(name: str, template: str | None, *, chat: bool) -> ResolvedModel:
    """Return a reference to a model on a server, with its prompt template.

    Args:
        name: Name of the model on the server.
        template: Name of a prompt template; None for the default of the model.
        chat: Whether the server adds its own chat format to the rendered template.

    Raises:
        InputError: if there is no such template, or the template needs a missing tokenizer.
    """
    weights = served_weights(name)
    if template is None:
        template = "chat-boxed" if chat else _templates_by_model().get(name, "chat-boxed")
    prompt_template = find_template(template)
    if prompt_template.needs_chat and not chat:
        prompt_template = _served_chat_template(template, name)
    return ResolvedModel(weights.ref, weights.path, template=prompt_template)


def _served_chat_template(template: str, name: str) -> Template:
    """Return a chat template with the tokenizer of a model on a server.

    Raises:
        InputError: if the name is neither a directory nor a repository with such a tokenizer.
    """
    try:
        return _named_chat_template(template, name)
    except FsdpoError as error:
        raise InputError(
            f"the server has the model, but its prompts need the tokenizer of the model: "
            f"{error.message} Use `api=chat`, so that the server applies its chat template, or "
            "name a template of plain text, such as `template=problem`.",
            field="model",
            value=name,
        ) from None


def find_chat_format(name: str) -> ChatFormat | None:
    """Return the chat format of a model that wrote solutions elsewhere, by its name.

    Args:
        name: A directory, a short name of ``MODELS``, or ``org/name`` on the Hub. It may also be
            any name that a server or a file gives a model.

    Returns:
        The chat format of the tokenizer; None if the name has no tokenizer with a chat template.
    """
    try:
        return _named_chat_template("chat", name).chat
    except FsdpoError:
        return None


def _named_chat_template(template: str, name: str) -> Template:
    """Return a chat template with the tokenizer of a directory, or of a repository on the Hub."""
    if Path(os.path.expanduser(name)).is_dir():
        return get_template(template, name)
    entry = MODELS.get(name)
    repo = HubRepo.parse(entry.repo if entry else name, "model")
    if repo is None:
        raise InputError("the name is neither a directory nor org/name on the Hub.")
    return get_template(template, repo.name, revision=resolve_commit(repo))


def resolve_weights(name: str) -> ResolvedWeights:
    """Find the exact weights of a model, without a prompt template.

    Raises:
        InputError: if there is no such model, directory or revision.
        UnavailableError: if the Hub is unreachable or refuses access.
    """
    entry = MODELS.get(name)
    if name == "tiny":
        if not (CHECKPOINT / "config.json").is_file():
            raise UnavailableError(
                f"{CHECKPOINT} is missing. Install fsdpo again.", field="model", value=name
            )
        return ResolvedWeights(ModelRef(name, content_revision(CHECKPOINT)), str(CHECKPOINT))
    if entry is not None and not entry.repo:
        raise _model_error(name, f"{entry.note}.")
    if entry is None and is_path(name):
        return _resolve_directory(name, Path(os.path.expanduser(name)))
    repo = HubRepo.parse(entry.repo if entry else name, "model")
    if repo is None:
        raise _model_error(
            name,
            f"expected a directory, org/name on the Hub, or one of: {', '.join(MODELS)}."
            f"{_suggest_short_names(name)}",
        )
    if entry is None:
        repo = dataclasses.replace(repo, missing_path=name, hint=_suggest_short_names(name))
    commit = resolve_commit(repo)
    return ResolvedWeights(ModelRef(repo.name, commit), repo.name, commit)


def _suggest_short_names(name: str) -> str:
    """Return a sentence with the short names most similar to ``name``."""
    last_part = name.rpartition("/")[2].partition("@")[0].lower()
    return suggest_names(last_part, MODELS, "Nearest short names")


def _resolve_directory(name: str, path: Path) -> ResolvedWeights:
    """Find the weights of a local model directory."""
    if not path.is_dir():
        entries = path.parent.iterdir() if path.parent.is_dir() else ()
        folders = [
            entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")
        ]
        suggestion = suggest_names(path.name, folders, "Similar names")
        reason = "this is a file" if path.exists() else "no such file or directory"
        if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) and not path.exists():
            suggestion += f" For the repository on the Hub, write `{name}@main`."
        raise _model_error(name, f"{reason}. Expected a model directory.{suggestion}")
    if (path / "manifest.json").is_file() and not any(path.glob("*.safetensors")):
        raise _model_error(
            name,
            "the directory is a dataset, not a model. Give the model that wrote or scored it; "
            f"`fsdpo-data inspect {name}` prints both.",
        )
    if not (path / "config.json").is_file():
        file_names = ", ".join(sorted(file.name for file in path.iterdir())[:8]) or "nothing"
        raise _model_error(
            name,
            "the directory has no config.json, so it is not a model directory. "
            f"Found: {file_names}. Give the directory that save_pretrained wrote.",
        )
    # The name omits the parent folders, which differ between machines. The revision identifies the
    # model.
    return ResolvedWeights(ModelRef(path.resolve().name, content_revision(path)), str(path))


def _model_error(name: str, message: str) -> InputError:
    """Return the error for an unusable model name."""
    return InputError(message, field="model", value=name)


def content_revision(path: Path) -> str:
    """Return ``sha256:…`` of the names and contents of the files in a model directory."""
    return _files_revision(path, _MODEL_FILES)


def architecture_revision(path: Path) -> str:
    """Return ``sha256:…`` of a config file and of the tokenizer files next to it.

    Args:
        path: The config file, or a directory with a ``config.json``.
    """
    config_file = path if path.suffix == ".json" else path / "config.json"
    patterns = (glob.escape(config_file.name), *_TOKENIZER_FILES)
    return _files_revision(config_file.parent, patterns)


def _files_revision(folder: Path, patterns: Sequence[str]) -> str:
    """Return ``sha256:…`` of the names and contents of the files in a directory that match."""
    files: set[Path] = set()
    for pattern in patterns:
        matches = {file for file in folder.glob(pattern) if file.exists() and not file.is_dir()}
        for file in matches:
            check_regular_file(file)  # transformers would read a pipe or a device without end
        files |= matches
    states = [(file, file.stat()) for file in sorted(files)]
    return _hash_model_files(
        tuple((file, stat.st_ino, stat.st_size, stat.st_mtime_ns) for file, stat in states)
    )


@lru_cache(maxsize=64)
def _hash_model_files(states: Sequence[tuple[Path, int, int, int]]) -> str:
    """Return the digest of files; unchanged files are read once per process.

    One command asks several times for the revision of a model, whose files may have gigabytes.

    Args:
        states: Path, inode, size and time of the last change of each file.
    """
    return json_sha256([(file.name, file_sha256(file)) for file, *_ in states])
