"""Folders on object storage and on other file systems that fsspec reaches.

Paths are keys, never patterns: no method expands ``*`` or ``[1]``. fsspec and the package of a
protocol read the credentials from the environment.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import (
    FsdpoError,
    InputError,
    UnavailableError,
    install_command,
)
from fsdpo_data.core.files import store_errors
from fsdpo_data.core.input_files import MAX_FILE_BYTES
from fsdpo_data.core.lazy import fsspec
from fsdpo_data.core.urls import hide_credentials, protocol_of

#: Extra of the package that reaches a protocol. Other protocols have no extra.
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}
#: Errors of the local disk while a file is downloaded.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

#: Part of the message of a store without the bucket of a URL.
_NO_BUCKET = "bucket does not exist"


class RemoteFolder:
    """A folder that a URL names; its files have relative paths such as ``pairs/a.parquet``.

    Attributes:
        url: The URL without a slash at its end.

    Raises:
        InputError: if nothing reaches the protocol.
        UnavailableError: if the package of the protocol is missing, or the store refuses.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        protocol = protocol_of(url)
        try:
            fsspec.get_filesystem_class(protocol)
        except ImportError:
            raise _missing_package_error(protocol) from None
        except ValueError:
            raise InputError(
                f"{self.url}: nothing reads {protocol}://. Expected a local path, or a URL such as "
                "s3://bucket/runs/demo or gs://bucket/runs/demo."
            ) from None
        self._files: Any
        self._root: str
        with self._errors("open"):
            self._files, self._root = fsspec.url_to_fs(self.url)
        # A folder is no object on object storage, but other file systems must create it.
        self._has_real_folders = getattr(self._files, "auto_mkdir", None) is False

    @property
    def name(self) -> str:
        """Last part of the URL."""
        return self.url.rpartition("/")[2]

    def read(self, path: str) -> bytes | None:
        """Return the content of a small file; None if the file is missing.

        Raises:
            InputError: if the file is larger than ``MAX_FILE_BYTES``.
        """
        with self._errors("read", path):
            self._files.invalidate_cache()
            try:
                size = int(self._files.info(self._key(path))["size"] or 0)
                if size <= MAX_FILE_BYTES:
                    return bytes(self._files.cat_file(self._key(path)))
            except FileNotFoundError as error:
                _check_bucket(error)
                return None
        raise InputError(
            f"{self.url}/{path} is too large: expected at most {MAX_FILE_BYTES:,} bytes."
        )

    def write(self, path: str, data: bytes) -> None:
        """Write a small file; object storage shows it completely or not at all."""
        with self._errors("write", path):
            self._make_parent(path)
            self._files.pipe_file(self._key(path), data)

    def create(self, path: str, data: bytes) -> bool:
        """Write a small file unless it exists; return whether this call has written the file.

        S3 does this in one step. On other file systems, another process may write the same file
        between the check and the write.
        """
        with self._errors("write", path):
            self._make_parent(path)
            try:
                self._files.pipe_file(self._key(path), data, mode="create")
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno != errno.ENOSYS:  # a store without conditional writes
                    raise
            else:
                return True
        if self.read(path) is not None:
            return False
        self.write(path, data)
        return True

    def delete(self, path: str) -> None:
        """Delete a file; a missing file is no error."""
        with self._errors("delete", path), contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._key(path))

    def list_files(self) -> dict[str, int]:
        """Return the sizes of all files below the folder by path; empty for a missing folder."""
        with self._errors("list"):
            self._files.invalidate_cache()
            try:
                entries = self._files.find(self._root, detail=True)
            except FileNotFoundError as error:
                _check_bucket(error)
                return {}
        sizes = {}
        for key, entry in entries.items():
            path = self._relative_path(key)
            # Consoles of object storage mark a folder by an empty object whose key ends in a slash.
            if path and not path.endswith("/"):
                sizes[path] = int(entry["size"] or 0)
        return sizes

    def list_folders(self) -> list[str]:
        """Return the URLs of the folders directly in the folder, sorted."""
        with self._errors("list"):
            self._files.invalidate_cache()
            try:
                entries = self._files.ls(self._root, detail=True)
            except FileNotFoundError as error:
                _check_bucket(error)
                return []
        names = [
            self._relative_path(entry["name"].rstrip("/"))
            for entry in entries
            if entry["type"] == "directory"
        ]
        return [f"{self.url}/{name}" for name in sorted(names) if name]

    def upload(self, file: Path, path: str) -> None:
        """Copy a local file to ``path``, and replace what is there."""
        with self._errors("write", path):
            self._make_parent(path)
            self._files.put_file(str(file), self._key(path))

    def download(self, path: str, file: Path) -> bool:
        """Copy a file to the local ``file``; return False if it is missing.

        Raises:
            StoreError: if the local disk is full or read-only.
        """
        with store_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
        with self._errors("read", path):
            try:
                self._files.get_file(self._key(path), str(file))
            except FileNotFoundError:
                return False
            except OSError as error:
                if error.errno in _DISK_ERRORS:
                    with store_errors(file):
                        raise
                raise
        return True

    def _key(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _relative_path(self, key: str) -> str:
        """Return the path of a key in the folder; empty if the key is not below the folder."""
        prefix = f"{self._root}/"
        return key[len(prefix) :] if key.startswith(prefix) else ""

    def _make_parent(self, path: str) -> None:
        """Create the folder of a file where folders are not only parts of keys."""
        if self._has_real_folders:
            self._files.makedirs(self._key(path).rpartition("/")[0], exist_ok=True)

    @contextlib.contextmanager
    def _errors(self, action: str, path: str = "") -> Iterator[None]:
        """Turn any error of the store's client into one with the next step."""
        try:
            yield
        except FsdpoError:
            raise
        except Exception as error:
            target = f"{self.url}/{path}" if path else self.url
            raise UnavailableError(
                f"cannot {action} {target} ({_reason(error)}). Check the URL, the network and the "
                "credentials in the environment, then run the command again with `resume=True`."
            ) from None


def _check_bucket(error: FileNotFoundError) -> None:
    """Raise the error if a bucket is missing; a missing file or folder is a matter of the caller.

    Stores create folders, but no buckets, so an upload would fail after all of the work.
    """
    if _NO_BUCKET in str(error):
        raise error


def _reason(error: Exception) -> str:
    """Return the message of an error on one line, without credentials."""
    text = " ".join(hide_credentials(str(error)).split())
    return text.rstrip(".") or type(error).__name__


def _missing_package_error(protocol: str) -> UnavailableError:
    """Return the error for a protocol whose package is not installed."""
    from fsspec.registry import known_implementations

    module = str(known_implementations.get(protocol, {}).get("class", protocol))
    package = module.partition(".")[0]
    advice = "Install it."
    if protocol in _EXTRAS:
        advice = f"Install it with `{install_command(_EXTRAS[protocol])}`."
    return UnavailableError(f"{protocol}:// needs the package {package}. {advice}")
