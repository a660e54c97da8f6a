"""Hugging Face Hub access: exact commits of revisions, and errors with the next step."""

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from fsdpo_data.core.errors import FsdpoError, InputError, UnavailableError
from fsdpo_data.core.http_client import call_with_retries
from fsdpo_data.core.lazy import hf, hf_constants, hf_errors

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

HUB_TIMEOUT_SECONDS = 8.0  #: Time limit for an answer of the Hub.

_REPO = re.compile(r"[\w.-]+/[\w.-]+")
#: Errors of the Hub client at an answer that has other fields than the answers of a Hub.
_ANSWER_ERRORS = (ValueError, TypeError, LookupError, AttributeError, NameError, RecursionError)
#: A small file that nearly every repository has, by kind. Its download tests the access.
_PROBE_FILES = {"model": "config.json", "dataset": "README.md"}
#: Advice for users without the Hub, by kind of repository.
_OFFLINE_ADVICE = {
    "model": "give a local path, or use the model tiny, which needs no network",
    "dataset": "give a local file, or use the source embedded, which needs no network",
}


@dataclass(frozen=True, slots=True)
class HubRepo:
    """A Hub repository that the user has named."""

    name: str  #: ``org/name``.
    kind: Literal["model", "dataset"]  #: ``model`` or ``dataset``.
    revision: str | None = None  #: Branch, tag or commit; None for the default branch.
    #: Text at the end of the error if there is no such repository, such as similar names. It starts
    #: with a space.
    hint: str = ""
    #: The text of the user, if it could also be a local path, which does not exist.
    missing_path: str = ""
    required_access: Literal["read", "write"] = "read"  #: Access that the command needs.
    #: Replaces the usual advice for users without the Hub; empty for the usual advice.
    custom_advice: str = ""

    @classmethod
    def parse(cls, text: str, kind: Literal["model", "dataset"]) -> Self | None:
        """Parse ``org/name`` or ``org/name@revision``; None if ``text`` has another format."""
        name, _, revision = text.partition("@")
        if not _REPO.fullmatch(name):
            return None
        return cls(name, kind, revision or None)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f"@{self.revision}" if self.revision else "")

    @property
    def offline_advice(self) -> str:
        """Alternative for the user if the Hub is unavailable."""
        return self.custom_advice or _OFFLINE_ADVICE[self.kind]

    @property
    def error_start(self) -> str:
        """Start of errors about a name that could also be a path; empty for other names."""
        return f"no such file or directory: {self.missing_path}; " if self.missing_path else ""

    @property
    def url(self) -> str:
        """Address of the repository's page."""
        folder = "datasets/" if self.kind == "dataset" else ""
        return f"{endpoint()}/{folder}{self.name}"


def endpoint() -> str:
    """Return the Hub's address without user name and password."""
    parts = urlsplit(hf_constants.ENDPOINT)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def resolve_commit(repo: HubRepo) -> str:
    """Return the 40-hex commit of a repository's revision.

    If the Hub is unavailable, the commit comes from the local cache. For a dataset this needs
    offline mode, because the library ``datasets`` would otherwise retry for minutes.

    Raises:
        InputError: if the Hub has no such repository or revision, or the model has no config.
        UnavailableError: if the Hub is unreachable or refuses access, and the cached commit is
            missing or cannot be used.
    """
    with hub_errors(repo):
        cached_file = hf.try_to_load_from_cache(
            repo.name, _PROBE_FILES[repo.kind], revision=repo.revision, repo_type=repo.kind
        )
    cached_commit = Path(cached_file).parent.name if isinstance(cached_file, str) else None
    if cached_commit and repo.revision == cached_commit:
        return cached_commit  # a commit never changes, so a request is not necessary
    try:
        with hub_errors(repo):
            return _fetch_commit(repo)
    except UnavailableError as error:
        if cached_commit is None:
            raise
        if hf_constants.HF_HUB_OFFLINE:
            return cached_commit
        if repo.kind == "dataset":
            raise UnavailableError(
                f"{error} Or set HF_HUB_OFFLINE=1 to use the cached commit {cached_commit}."
            ) from None
        logger.warning("%s Using the cached commit %s.", error, cached_commit)
        return cached_commit


def _fetch_commit(repo: HubRepo) -> str:
    """Request the commit of a repository from the Hub, and test the access to its files."""
    api = hf.HfApi()
    fetch_info = api.model_info if repo.kind == "model" else api.dataset_info
    with answer_errors():
        commit = fetch_info(repo.name, revision=repo.revision, timeout=HUB_TIMEOUT_SECONDS).sha
    if not isinstance(commit, str):
        raise _foreign_server_error(repo)
    try:
        # Anyone may list a gated repository, so only a file tests the access. The download also
        # caches the commit of the revision for later use without a network.
        file = hf.hf_hub_download(
            repo.name,
            _PROBE_FILES[repo.kind],
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
    # The path is …/snapshots/<commit>/config.json. A branch may have moved since the first request.
    return Path(file).parent.name


def find_file(repo: HubRepo, name: str) -> Path | None:
    """Return the local copy of a file of a repository; None if there is no such file.

    Without the Hub, only the cache counts. A warning says so if the cache does not know whether the
    repository has the file.
    """
    try:
        with hub_errors(repo):
            file = hf.hf_hub_download(
                repo.name,
                name,
                repo_type=repo.kind,
                revision=repo.revision,
                etag_timeout=HUB_TIMEOUT_SECONDS,
            )
    except hf_errors.RemoteEntryNotFoundError:
        return None
    except (hf_errors.EntryNotFoundError, UnavailableError):
        known_file = hf.try_to_load_from_cache(
            repo.name, name, revision=repo.revision, repo_type=repo.kind
        )
        if known_file is None:  # a known absence is another value
            logger.warning(
                f"{repo}: the Hub does not tell whether the repository has {name}. The command "
                "goes on as if there were none."
            )
        return None
    return Path(file)


def is_path(name: str) -> bool:
    """Return whether a name is a local path, and not the name of a repository.

    A name in a folder that exists here is a path, unless it has an ``@revision``.
    """
    folder = name.rpartition("/")[0]
    return (
        name.startswith((".", "/", "~"))
        or name.count("/") > 1
        or Path(name).exists()
        or (bool(folder) and "@" not in name and Path(folder).is_dir())
    )


class ForeignAnswerError(Exception):
    """An answer that is not from a Hub; :func:`hub_errors` turns it into an UnavailableError."""


@contextmanager
def answer_errors() -> Iterator[None]:
    """Turn errors of the Hub client about the content of an answer into a ForeignAnswerError.

    The block is one call of the Hub client, inside a block of :func:`hub_errors`.
    """
    try:
        yield
    # These are ValueErrors too, and have a meaning of their own.
    except (FsdpoError, hf_errors.HfHubHTTPError, hf_errors.HFValidationError):
        raise
    except _ANSWER_ERRORS as error:
        raise ForeignAnswerError(str(error)) from error
    except RuntimeError as error:
        # The client wraps errors of an upload.
        if not isinstance(error.__cause__, _ANSWER_ERRORS):
            raise
        raise ForeignAnswerError(str(error)) from error


def call_hub(function: Callable[..., ResultT], *args: Any, **kwargs: Any) -> ResultT:
    """Call a function of the Hub's client, and repeat the call while the Hub is too busy.

    Raises:
        ForeignAnswerError: if the answer is not from a Hub.
    """
    with answer_errors():
        return call_with_retries(function, *args, **kwargs)


@contextmanager
def hub_errors(repo: HubRepo) -> Iterator[None]:
    """Turn exceptions of the Hub clients into errors with the next step."""
    try:
        yield
    except FsdpoError:
        raise
    except Exception as error:
        hub_error = to_fsdpo_error(error, repo)
        if hub_error is None:
            raise
        raise hub_error from None


def to_fsdpo_error(error: BaseException | None, repo: HubRepo) -> FsdpoError | None:
    """Return the error for the user if the Hub caused an exception, else None.

    The causes of the exception count too, because libraries wrap Hub errors.
    """
    # Base class of the HTTP library. Its name depends on the version of the Hub client.
    http_error: type[BaseException] = hf_errors.HfHubHTTPError.__bases__[0]
    while error is not None:
        if isinstance(error, hf_errors.HFValidationError):
            return InputError(f"{repo.name!r} is not a Hub repository name: expected org/name.")
        if isinstance(error, hf_errors.RemoteEntryNotFoundError):
            return None  # a single missing file is a matter of the caller
        if isinstance(error, ForeignAnswerError | hf_errors.FileMetadataError):
            return _foreign_server_error(repo)
        if isinstance(error, hf_errors.HfHubHTTPError):
            return _response_error(error, repo)
        if isinstance(error, http_error | ConnectionError):
            return _connection_error(error, repo)
        error = error.__cause__ or error.__context__
    return None


def _foreign_server_error(repo: HubRepo) -> UnavailableError:
    """Return the error for a server whose answers are not from a Hub."""
    return UnavailableError(
        f"{endpoint()} answers, but not like a Hugging Face Hub. Check HF_ENDPOINT and any proxy; "
        f"or {repo.offline_advice}."
    )


def _connection_error(error: BaseException, repo: HubRepo) -> UnavailableError:
    """Return the error for an unreachable Hub."""
    if isinstance(error, hf_errors.OfflineModeIsEnabled):
        reason = "offline mode is on"
        check = "unset HF_HUB_OFFLINE"
    else:
        reason = str(error) or type(error).__name__
        check = "check the network, or set HF_ENDPOINT to a mirror you can reach"
    return UnavailableError(
        f"{repo.error_start}cannot reach the Hugging Face Hub at {endpoint()} for {repo} "
        f"({reason}). Next steps: {check}, and log in with `hf auth login` if the repository is "
        f"private; or {repo.offline_advice}."
    )


def _response_error(error: Exception, repo: HubRepo) -> FsdpoError:
    """Return the error for a response of the Hub with an HTTP error status."""
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, hf_errors.RevisionNotFoundError):
        return InputError(
            f"{repo.kind} {repo.name} has no revision {repo.revision!r}: expected a branch, a tag "
            f"or a commit. See {repo.url}/commits, or remove the @revision."
        )
    if isinstance(error, hf_errors.GatedRepoError):
        return UnavailableError(
            f"{repo} is gated: ask for access at {repo.url}, then log in with `hf auth login`; "
            f"or {repo.offline_advice}."
        )
    if isinstance(error, hf_errors.RepositoryNotFoundError) or status == 404:
        return InputError(
            f"{repo.error_start}there is no {repo} at {endpoint()}, or it is private. Check the "
            f"spelling, or log in with `hf auth login`.{repo.hint}"
        )
    token_note = "HF_TOKEN is set" if os.environ.get("HF_TOKEN") else "HF_TOKEN is not set"
    advice = {
        401: f"Log in with `hf auth login`, or check that your token is still valid ({token_note})",
        403: f"Check that your token may {repo.required_access} {repo.url} ({token_note})",
        429: "The Hub limits the rate: wait some minutes, or log in with `hf auth login`",
    }.get(status, "Try again later, or set HF_ENDPOINT to a mirror")
    return UnavailableError(
        f"the Hub at {endpoint()} answered {status or 'with an error'} for {repo}. {advice}; "
        f"or {repo.offline_advice}."
    )
