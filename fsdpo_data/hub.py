"""The Hugging Face Hub, as far as it can fail: revisions become commits, errors become advice."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from fsdpo_data.errors import FsdpoError, InputError, Unavailable

logger = logging.getLogger(__name__)

#: Seconds to wait for the Hub before saying that it cannot be reached.
TIMEOUT = 8.0

_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_OFFLINE_WAYS = {
    "model": "give a local path, or use --model tiny, which needs no network",
    "dataset": "give a local file, or use the source embedded, which needs no network",
}


@dataclass(frozen=True, slots=True)
class HubRepo:
    """A repository as the user asked for it.

    Attributes:
        name: ``org/name``.
        kind: ``model`` or ``dataset``.
        revision: Branch, tag or commit; None for the default branch.
        hint: Added to the message when there is no such repository, e.g. nearest known names.
    """

    name: str
    kind: Literal["model", "dataset"]
    revision: str | None = None
    hint: str = ""

    @classmethod
    def parse(cls, text: str, kind: Literal["model", "dataset"]) -> HubRepo | None:
        """Read ``org/name`` or ``org/name@revision``; None if ``text`` is neither."""
        name, _, revision = text.partition("@")
        return cls(name, kind, revision or None) if _REPO.fullmatch(name) else None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f"@{self.revision}" if self.revision else "")

    @property
    def url(self) -> str:
        """Return the repository's page."""
        return f"{endpoint()}/{'datasets/' if self.kind == 'dataset' else ''}{self.name}"


def endpoint() -> str:
    """Return the Hub's address without any user name or password in it."""
    from huggingface_hub import constants

    parts = urlsplit(constants.ENDPOINT)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def resolve_commit(repo: HubRepo) -> str:
    """Return the 40-hex commit ``repo`` stands at.

    Without a Hub, the commit of a copy in the local cache will do.

    Raises:
        InputError: if the Hub has no such repository or revision.
        Unavailable: if the Hub cannot be reached or refuses, and nothing is cached.
    """
    from huggingface_hub import HfApi

    if repo.revision and _COMMIT.fullmatch(repo.revision) and _cached_commit(repo):
        return repo.revision  # a commit cannot move, so there is nothing to ask
    info = HfApi().model_info if repo.kind == "model" else HfApi().dataset_info
    try:
        with hub_errors(repo):
            commit = info(repo.name, revision=repo.revision, timeout=TIMEOUT).sha
    except Unavailable as error:
        commit = _cached_commit(repo)
        if commit is None:
            raise
        logger.warning("%s Going on with the cached copy at %s.", error, commit)
    if commit is None:
        raise Unavailable(f"{endpoint()} names no commit for {repo}. Give one as @<commit>.")
    return commit


def _cached_commit(repo: HubRepo) -> str | None:
    from huggingface_hub import try_to_load_from_cache

    for file in ("config.json", "README.md"):
        path = try_to_load_from_cache(repo.name, file, revision=repo.revision, repo_type=repo.kind)
        if isinstance(path, str):
            return Path(path).parent.name  # …/snapshots/<commit>/config.json
    return None


@contextmanager
def hub_errors(repo: HubRepo) -> Iterator[None]:
    """Turn whatever the Hub's clients raise into one message with a way out."""
    try:
        yield
    except FsdpoError:
        raise
    except Exception as error:
        explained = _explain(error, repo)
        if explained is None:
            raise
        raise explained from None


def _explain(error: BaseException | None, repo: HubRepo) -> FsdpoError | None:
    """Return what to tell the user, looking through wrappers down to the first cause."""
    from huggingface_hub import errors

    # The HTTP library's own base class, under whichever name the Hub client of the day uses it.
    http_error: type[BaseException] = errors.HfHubHTTPError.__bases__[0]
    while error is not None:
        if isinstance(error, errors.HFValidationError):
            return InputError(f"{repo.name!r} is no Hub repository name: expected org/name.")
        if isinstance(error, errors.HfHubHTTPError):
            return _explain_answer(error, repo)
        if isinstance(error, http_error | ConnectionError):
            return _explain_silence(error, repo)
        error = error.__cause__ or error.__context__
    return None


def _explain_silence(error: BaseException, repo: HubRepo) -> Unavailable:
    from huggingface_hub.errors import OfflineModeIsEnabled

    if isinstance(error, OfflineModeIsEnabled):
        reason, check = "offline mode is on", "unset HF_HUB_OFFLINE"
    else:
        reason = str(error) or type(error).__name__
        check = "check the network, or set HF_ENDPOINT to a mirror you can reach"
    return Unavailable(
        f"cannot reach the Hugging Face Hub at {endpoint()} for {repo} ({reason}). Ways on: "
        f"{check}, and log in with `hf auth login` if the repository is private; "
        f"or {_OFFLINE_WAYS[repo.kind]}."
    )


def _explain_answer(error: Exception, repo: HubRepo) -> FsdpoError:
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, errors.GatedRepoError):
        return Unavailable(
            f"{repo} is gated: ask for access at {repo.url}, then log in with `hf auth login`; "
            f"or {_OFFLINE_WAYS[repo.kind]}."
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return InputError(
            f"{repo.kind} {repo.name} has no revision {repo.revision!r}: expected a branch, a tag "
            f"or a commit. See {repo.url}/commits, or leave the @revision out."
        )
    if isinstance(error, errors.RepositoryNotFoundError) or status == 404:
        return InputError(
            f"there is no {repo} at {endpoint()}, or it is private. Check the spelling, or log in "
            f"with `hf auth login`.{repo.hint}"
        )
    return _explain_status(status, repo)


def _explain_status(status: int, repo: HubRepo) -> Unavailable:
    token = "HF_TOKEN is set" if os.environ.get("HF_TOKEN") else "HF_TOKEN is not set"
    advice = {
        401: f"Log in with `hf auth login`, or check that your token is still valid ({token})",
        403: f"Check that your token may read {repo.url} ({token})",
        429: "The Hub limits the rate: wait some minutes, or log in with `hf auth login`",
    }.get(status, "Try again later, or set HF_ENDPOINT to a mirror")
    return Unavailable(
        f"the Hub at {endpoint()} answered {status or 'with an error'} for {repo}. {advice}; "
        f"or {_OFFLINE_WAYS[repo.kind]}."
    )
