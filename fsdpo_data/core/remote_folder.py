"""Folders on object storage and on other file systems that fsspec reaches.

Paths are keys, never patterns: no method expands ``*`` or ``[1]``. fsspec and the package of a
protocol read the credentials from the environment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import FsdpoError, InputError, UnavailableError, install_command
from fsdpo_data.core.files import store_errors
from fsdpo_data.core.lazy import fsspec
from fsdpo_data.core.urls import hide_credentials, protocol_of

#: Extra of the package that reaches a protocol. Other protocols have no extra.
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}


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
        self._files: Any
        self._root: str
        try:
            fsspec.get_filesystem_class(protocol)
        except ImportError as error:
            extra = _EXTRAS.get(protocol)
            advice = f"Install it with `{install_command(extra)}`" if extra else error
            raise UnavailableError(f"{protocol}:// needs another package. {advice}.") from None
        except ValueError:
            raise InputError(
                f"{self.url}: nothing reads {protocol}://. Expected a local path, or a URL such as "
                "s3://bucket/runs/demo or gs://bucket/runs/demo."
            ) from None
        with self._errors("open"):
            self._files, self._root = fsspec.url_to_fs(self.url)
        # A folder is no object on object storage, but other file systems must create it.
        self._has_real_folders = getattr(self._files, "auto_mkdir", None) is False

    @property
    def name(self) -> str:
        """Last part of the URL."""
        return self.url.rpartition("/")[2]

    def list_files(self) -> list[str]:
        """Return the paths of all files below the folder; empty for a missing folder."""
        with self._errors("list"):
            self._files.invalidate_cache()
            prefix = f"{self._root}/"
            try:
                keys = [key for key in self._files.find(self._root) if key.startswith(prefix)]
            except FileNotFoundError:
                return []
        # Consoles of object storage mark a folder by an empty object whose key ends in a slash.
        return sorted(key.removeprefix(prefix) for key in keys if not key.endswith("/"))

    def list_folders(self) -> list[str]:
        """Return the URLs of the folders directly in the folder, sorted."""
        with self._errors("list"):
            self._files.invalidate_cache()
            try:
                entries = self._files.ls(self._root, detail=True)
            except FileNotFoundError:
                return []
        names = [
            entry["name"].rstrip("/").rpartition("/")[2]
            for entry in entries
            if entry["type"] == "directory"
        ]
        return [f"{self.url}/{name}" for name in sorted(names)]

    def delete(self, path: str) -> None:
        """Delete a file."""
        with self._errors("delete", path):
            self._files.rm_file(f"{self._root}/{path}")

    def upload(self, file: Path, path: str) -> None:
        """Copy a local file to ``path``, and replace what is there."""
        with self._errors("write", path):
            key = f"{self._root}/{path}"
            if self._has_real_folders:
                self._files.makedirs(key.rpartition("/")[0], exist_ok=True)
            self._files.put_file(str(file), key)

    def download(self, path: str, file: Path) -> None:
        """Copy a file to the local ``file``, which other processes see only when it is complete.

        The copy keeps the modification time, which is the date of a report.

        Raises:
            StoreError: if the local folder cannot be created.
            UnavailableError: if the file cannot be read or written.
        """
        with store_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f"{file.name}.tmp")
        with self._errors("read", path):
            key = f"{self._root}/{path}"
            self._files.get_file(key, str(temporary))
            with contextlib.suppress(NotImplementedError):  # a web server may state no time
                timestamp = self._files.modified(key).timestamp()
                os.utime(temporary, (timestamp, timestamp))
            temporary.replace(file)

    @contextlib.contextmanager
    def _errors(self, action: str, path: str = "") -> Iterator[None]:
        """Turn any error of the store's client into one with the next step."""
        try:
            yield
        except FsdpoError:
            raise
        except Exception as error:
            target = f"{self.url}/{path}" if path else self.url
            reason = " ".join(hide_credentials(str(error)).split()).rstrip(".")
            raise UnavailableError(
                f"cannot {action} {target} ({reason or type(error).__name__}). Check the URL, the "
                "network and the credentials in the environment, then run the command again with "
                "`resume=True`."
            ) from None
