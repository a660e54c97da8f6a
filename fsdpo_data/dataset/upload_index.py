"""The index of an upload: the names, sizes and digests of all files of a dataset or a shard.

``upload.json`` is the first file of an upload. It claims the folder for one run, and another run is
refused. ``manifest.json`` or ``shard.json`` is the last file, so an unfinished upload cannot be
opened.
"""

import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.files import LOCK_FILE
from fsdpo_data.core.identity import digest, file_sha256
from fsdpo_data.core.input_files import parse_json, read_json
from fsdpo_data.dataset.run import CONFIG_FILE, MANIFEST_FILE, RUN_KEYS, SHARD_FILE

INDEX_FILE = "upload.json"  #: Name of the index, which only a folder of an upload has.
#: Files that complete a dataset and a shard.
LAST_FILES = (MANIFEST_FILE, SHARD_FILE)


class IndexEntry(BaseModel):
    """A file of an upload."""

    model_config = ConfigDict(strict=True, frozen=True)

    path: str  #: Path in the folder, with slashes.
    bytes: int = Field(ge=0)  #: Size in bytes.
    sha256: str  #: SHA-256 of the content.

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        parts = path.split("/")
        if {"", ".", ".."} & set(parts) or "\\" in path or not path.isprintable():
            raise ValueError(f"the path {path[:80]!r} is not a path in the folder")
        return path

    def is_content_of(self, file: Path) -> bool:
        """Return whether a local file exists with this content."""
        if not file.is_file() or file.stat().st_size != self.bytes:
            return False
        return file_sha256(file) == self.sha256


class UploadIndex(BaseModel):
    """The files of one upload, in the order in which they are written."""

    model_config = ConfigDict(strict=True, frozen=True)

    run: str  #: Digest of the options of the run that wrote the files.
    files: list[IndexEntry] = Field(min_length=1)  #: All files; the last one completes the upload.

    @classmethod
    def from_directory(cls, root: Path) -> Self:
        """Describe the files of a sealed dataset or a finished shard.

        The config of the run comes first, then logs, then files that are made from them. A resumed
        run can therefore continue from the files that were uploaded before an interruption.
        """
        paths = [
            file.relative_to(root).as_posix()
            for file in root.rglob("*")
            if file.is_file() and file.name != LOCK_FILE and file.suffix != ".tmp"
        ]
        paths.sort(key=lambda path: (_upload_rank(path), path))
        entries = [
            IndexEntry(
                path=path,
                bytes=(root / path).stat().st_size,
                sha256=file_sha256(root / path),
            )
            for path in paths
        ]
        return cls(run=run_digest(root), files=entries)

    @classmethod
    def parse(cls, data: bytes, url: str) -> Self:
        """Parse the content of an index.

        Args:
            data: Content of the file.
            url: URL of the folder, for the error.

        Raises:
            SchemaError: if the content is not an index, or was changed.
        """
        try:
            fields = parse_json(data)
            stored_digest = fields.pop("digest")
            if stored_digest == digest(fields):
                return cls.model_validate(fields)
            reason = "its digest is different"
        except (ValidationError, ValueError, AttributeError, KeyError, TypeError) as error:
            reason = str(error).partition("\n")[0]
        raise SchemaError(
            f"{url}/{INDEX_FILE} is damaged ({reason}). Delete the folder, and upload it again."
        )

    def to_bytes(self) -> bytes:
        """Return the content of ``upload.json``, with a digest at its end."""
        fields = self.model_dump(mode="json")
        return (json.dumps({**fields, "digest": digest(fields)}, indent=2) + "\n").encode()

    def entry(self, path: str) -> IndexEntry | None:
        """Return the entry of a path; None without one."""
        return next((entry for entry in self.files if entry.path == path), None)


def run_digest(root: Path) -> str:
    """Return the digest of the options of the run in a directory."""
    config = read_json(root / CONFIG_FILE)
    for key in RUN_KEYS:
        config.pop(key, None)
    return digest(config)


def bytes_sha256(data: bytes) -> str:
    """Return the SHA-256 of a content in memory."""
    return hashlib.sha256(data).hexdigest()


def _upload_rank(path: str) -> int:
    """Return the position of a file's group in the upload."""
    name = PurePosixPath(path).name
    if path == CONFIG_FILE:
        return 0
    if path in LAST_FILES:
        return 4
    if name in LAST_FILES:  # of a dataset inside the dataset
        return 3
    if name == CONFIG_FILE or name.endswith(".jsonl"):
        return 1
    return 2
