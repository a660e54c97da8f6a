"""The Hugging Face Hub, as far as it can fail: revisions become commits, errors become advice."""

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from fsdpo_data.core.errors import FsdpoError, InputError, UnavailableError
from fsdpo_data.core.lazy import hf, hf_constants, hf_errors

logger = logging.getLogger(__name__)

HUB_TIMEOUT_SECONDS = 8.0  #: Seconds to wait for the Hub before saying that it cannot be reached.

_REPO = re.compile(r"[\w.-]+/[\w.-]+")
# A small file that nearly every repository of the kind has.
_PROBES = {"model": "config.json", "dataset": "README.md"}
_OFFLINE_WAYS = {
    "model": "give a local path, or use the model tiny, which needs no network",
    "dataset": "give a local file, or use the source embedded, which needs no network",
}


@dataclass(frozen=True, slots=True)
class HubRepo:
    """A repository as the user asked for it."""

    name: str  #: ``org/name``.
    kind: Literal["model", "dataset"]  #: ``model`` or ``dataset``.
    revision: str | None = None  #: Branch, tag or commit; None for the default branch.
    hint: str = ""  #: Added to the message when there is no such repository: nearest names.
    required_access: Literal["read", "write"] = (
        "read"  #: What is wanted of it, ``read`` or ``write``.
    )
    advice: str = ""  #: What to do without the Hub; the usual way for its kind if empty.

    @classmethod
    def parse(cls, text: str, kind: Literal["model", "dataset"]) -> Self | None:
        """Read ``org/name`` or ``org/name@revision``; None if ``text`` is neither."""
        name, _, revision = text.partition("@")
        return cls(name, kind, revision or None) if _REPO.fullmatch(name) else None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f"@{self.revision}" if self.revision else "")

    @property
    def offline_advice(self) -> str:
        """What to do without the Hub."""
        return self.advice or _OFFLINE_WAYS[self.kind]

    @property
    def url(self) -> str:
        """The repository's page."""
        return f"{endpoint()}/{'datasets/' if self.kind == 'dataset' else ''}{self.name}"


def endpoint() -> str:
    """Return the Hub's address without any user name or password in it."""
    parts = urlsplit(hf_constants.ENDPOINT)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def resolve_commit(repo: HubRepo) -> str:
    """Return the 40-hex commit ``repo`` stands at.

    Where the Hub cannot be reached, the commit of a copy in the local cache will do: always for
    a model, for a dataset if offline mode is on (else its loader would first retry for minutes).

    Raises:
        InputError: if the Hub has no such repository or revision.
        Unavailable: if the Hub cannot be reached or refuses, and nothing is cached.
    """
    with hub_errors(repo):
        probe = hf.try_to_load_from_cache(
            repo.name, _PROBES[repo.kind], revision=repo.revision, repo_type=repo.kind
        )
    cached = Path(probe).parent.name if isinstance(probe, str) else None
    if cached and repo.revision == cached:
        return cached  # a commit cannot move, so there is nothing to ask
    try:
        with hub_errors(repo):
            return _ask_commit(repo)
    except UnavailableError as error:
        if cached is None:
            raise
        if hf_constants.HF_HUB_OFFLINE:
            return cached
        if repo.kind == "dataset":
            raise UnavailableError(
                f"{error} Or set HF_HUB_OFFLINE=1: {cached} is cached."
            ) from None
        logger.warning("%s Going on with the cached copy at %s.", error, cached)
        return cached


def _ask_commit(repo: HubRepo) -> str:
    info = hf.HfApi().model_info if repo.kind == "model" else hf.HfApi().dataset_info
    try:
        commit = info(repo.name, revision=repo.revision, timeout=HUB_TIMEOUT_SECONDS).sha
    except (json.JSONDecodeError, TypeError, KeyError):
        commit = None
    if commit is None:
        raise _not_a_hub(repo)
    try:
        # Anyone may ask what a gated repository holds, so access shows only on a file. This also
        # leaves in the cache which commit the revision was, for the day without a network.
        file = hf.hf_hub_download(
            repo.name,
            _PROBES[repo.kind],
            repo_type=repo.kind,
            revision=repo.revision,
            etag_timeout=HUB_TIMEOUT_SECONDS,
        )
    except hf_errors.RemoteEntryNotFoundError:
        if repo.kind == "model":
            raise InputError(
                f"{repo} has no config.json, so transformers cannot load it. See {repo.url}."
            ) from None
        return commit
    return Path(file).parent.name  # …/snapshots/<commit>/config.json


def is_path(name: str) -> bool:
    """Whether a name is that of something here, rather than of a repository."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or Path(name).exists()


@contextmanager
def hub_errors(repo: HubRepo) -> Iterator[None]:
    """Turn whatever the Hub's clients raise into one message with a way out."""
    try:
        yield
    except FsdpoError:
        raise
    except Exception as error:
        explained = to_fsdpo_error(error, repo)
        if explained is None:
            raise
        raise explained from None


def to_fsdpo_error(error: BaseException | None, repo: HubRepo) -> FsdpoError | None:
    """Return what to tell the user of an error of the Hub, also of one inside wrappers.

    None if the Hub is not at fault.
    """
    # The HTTP library's own base class, under whichever name the Hub client of the day uses it.
    http_error: type[BaseException] = hf_errors.HfHubHTTPError.__bases__[0]
    while error is not None:
        if isinstance(error, hf_errors.HFValidationError):
            return InputError(f"{repo.name!r} is no Hub repository name: expected org/name.")
        if isinstance(error, hf_errors.RemoteEntryNotFoundError):
            return None  # one file is missing, which is for the caller to judge
        if isinstance(error, hf_errors.FileMetadataError):
            return _not_a_hub(repo)
        if isinstance(error, hf_errors.HfHubHTTPError):
            return _explain_answer(error, repo)
        if isinstance(error, http_error | ConnectionError):
            return _explain_silence(error, repo)
        error = error.__cause__ or error.__context__
    return None


def _not_a_hub(repo: HubRepo) -> UnavailableError:
    return UnavailableError(
        f"{endpoint()} answers, but not like a Hugging Face Hub. Check HF_ENDPOINT and any proxy; "
        f"or {repo.offline_advice}."
    )


def _explain_silence(error: BaseException, repo: HubRepo) -> UnavailableError:
    if isinstance(error, hf_errors.OfflineModeIsEnabled):
        reason, check = "offline mode is on", "unset HF_HUB_OFFLINE"
    else:
        reason = str(error) or type(error).__name__
        check = "check the network, or set HF_ENDPOINT to a mirror you can reach"
    return UnavailableError(
        f"cannot reach the Hugging Face Hub at {endpoint()} for {repo} ({reason}). Ways on: "
        f"{check}, and log in with `hf auth login` if the repository is private; "
        f"or {repo.offline_advice}."
    )


def _explain_answer(error: Exception, repo: HubRepo) -> FsdpoError:
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, hf_errors.RevisionNotFoundError):
        return InputError(
            f"{repo.kind} {repo.name} has no revision {repo.revision!r}: expected a branch, a tag "
            f"or a commit. See {repo.url}/commits, or leave the @revision out."
        )
    if isinstance(error, hf_errors.GatedRepoError):
        return UnavailableError(
            f"{repo} is gated: ask for access at {repo.url}, then log in with `hf auth login`; "
            f"or {repo.offline_advice}."
        )
    if isinstance(error, hf_errors.RepositoryNotFoundError) or status == 404:
        return InputError(
            f"there is no {repo} at {endpoint()}, or it is private. Check the spelling, or log in "
            f"with `hf auth login`.{repo.hint}"
        )
    token = "HF_TOKEN is set" if os.environ.get("HF_TOKEN") else "HF_TOKEN is not set"
    advice = {
        401: f"Log in with `hf auth login`, or check that your token is still valid ({token})",
        403: f"Check that your token may {repo.required_access} {repo.url} ({token})",
        429: "The Hub limits the rate: wait some minutes, or log in with `hf auth login`",
    }.get(status, "Try again later, or set HF_ENDPOINT to a mirror")
    return UnavailableError(
        f"the Hub at {endpoint()} answered {status or 'with an error'} for {repo}. {advice}; "
        f"or {repo.offline_advice}."
    )
