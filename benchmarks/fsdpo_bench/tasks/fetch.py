"""Download benchmarks that are not on the Hub: files of public repositories, at pinned commits."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsdpo_data.core.errors import InputError, UnavailableError
from fsdpo_data.core.files import user_cache_folder, write_file
from fsdpo_data.core.http_client import download
from fsdpo_data.core.identity import file_sha256

#: Environment variable with the address of a mirror of GitHub's raw files.
MIRROR_VARIABLE = "FSDPO_GITHUB"
_TIMEOUT_SECONDS = 60
_MAX_FILE_BYTES = 2**28  #: Maximum size of a file; GitHub accepts less.


@dataclass(frozen=True, slots=True)
class PublicFile:
    """A file of a public repository on GitHub."""

    repo: str  #: Owner and name of the repository.
    commit: str  #: Full commit hash.
    path: str  #: Path in the repository.
    sha256: str  #: SHA-256 of the file.


def cache_folder() -> Path:
    """Return the folder of downloaded benchmarks, which all runs of this user share."""
    return user_cache_folder("benchmarks")


def fetch_file(name: str, file: PublicFile, folder: Path | None = None) -> Path:
    """Return the path of a benchmark's file; download the file if it is missing.

    Args:
        name: Name of the benchmark.
        file: The file.
        folder: Folder with one subfolder per benchmark; the cache folder by default.

    Raises:
        InputError: if the file at the path has another SHA-256.
        StoreError: if the file cannot be written.
        UnavailableError: if the download fails, or has another SHA-256.
    """
    target = (folder or cache_folder()) / name / PurePosixPath(file.path).name
    if not target.is_file():
        write_file(target, _download(name, file))
    elif file_sha256(target) != file.sha256:
        raise InputError(
            f"{target} differs from the file of {file.repo} for {name}. Move the file away, and "
            "the next command downloads it again."
        )
    return target


def _download(name: str, file: PublicFile) -> bytes:
    """Return the content of a file, with the expected SHA-256."""
    import httpx2

    host = os.environ.get(MIRROR_VARIABLE, "https://raw.githubusercontent.com").rstrip("/")
    url = f"{host}/{file.repo}/{file.commit}/{file.path}"
    try:
        content = download(url, max_bytes=_MAX_FILE_BYTES, timeout=_TIMEOUT_SECONDS)
        if hashlib.sha256(content).hexdigest() == file.sha256:
            return content
        reason = "the server returned another file (the SHA-256 differs)"
    except httpx2.HTTPStatusError as error:
        reason = f"the server answered {error.response.status_code}"
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, UnavailableError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise UnavailableError(
        f"{name} cannot be downloaded from {url}: {reason}. Try again later, give its file as "
        f"`data`, or set {MIRROR_VARIABLE} to a mirror of GitHub's files."
    )
