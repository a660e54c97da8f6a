"""Benchmarks without a home on the Hub: single files of public repositories, at pinned commits."""

import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.core.files import write_file
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.retry import RETRYABLE_STATUSES, retry_delay

#: Where a mirror of GitHub's files is, for those who cannot reach the original.
MIRROR = "FSDPO_GITHUB"
_ATTEMPTS = 4  #: Times a file is asked for.


@dataclass(frozen=True, slots=True)
class PublicFile:
    """A file of a repository on GitHub; ``path`` is its path there."""

    repo: str
    commit: str
    path: str
    sha256: str


def cache() -> Path:
    """Return where fetched benchmarks are kept, for every run of this user."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "fsdpo" / "benchmarks"


def fetch_file(name: str, file: PublicFile, folder: Path | None = None) -> Path:
    """Return a benchmark's file in ``folder``, a data directory; it is fetched if missing.

    Raises:
        InputError: if the file that is there is another one.
        StoreError: if it cannot be written.
        Unavailable: if it cannot be had, or what comes is another file.
    """
    target = (folder or cache()) / name / PurePosixPath(file.path).name
    if not target.is_file():
        write_file(target, _download(name, file))
    elif file_sha256(target) != file.sha256:
        raise InputError(
            f"{target} is not the file of {file.repo} that {name} is made of. Move it away; it is "
            "then fetched again."
        )
    return target


def _download(name: str, file: PublicFile) -> bytes:
    import httpx2

    host = os.environ.get(MIRROR, "https://raw.githubusercontent.com").rstrip("/")
    url, why = f"{host}/{file.repo}/{file.commit}/{file.path}", ""
    for attempt in range(_ATTEMPTS):
        try:
            answer = httpx2.get(url, timeout=60, follow_redirects=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = f"{type(error).__name__}: {error}"
            break
        code, why = answer.status_code, f"it answered {answer.status_code}"
        if code == 200 and hashlib.sha256(answer.content).hexdigest() == file.sha256:
            return answer.content
        if code == 200:
            why = "what comes from there is another file (SHA-256 differs)"
        if code not in RETRYABLE_STATUSES or attempt + 1 == _ATTEMPTS:
            break
        time.sleep(retry_delay(answer.headers.get("retry-after", ""), attempt))
    raise UnavailableError(
        f"{name} is not to be had from {url}: {why}. Try again later, give its file as "
        f"`data`, or set {MIRROR} to a mirror of GitHub's files."
    )
