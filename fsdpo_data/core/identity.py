"""Content ids: digests of canonical JSON, and references to models, engines and sources.

An id depends on content only, never on a position.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fsdpo_data import __version__
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.input_files import check_regular_file

RELEASE = f"fsdpo {__version__}"  #: Name of this release in files that it writes.
ID_VERSION = 1  #: Part of every id; it increases when the meaning of an id changes.

#: Length of an id in hex digits of SHA-256. 20 digits are 80 bits: among a billion rows, the
#: probability of a collision is below 1e-6.
ID_LENGTH = 20


def canonical_json(value: Any) -> str:
    """Serialise dataclasses, pydantic models, dicts, lists and scalars to JSON with sorted keys.

    Raises:
        TypeError: if ``value`` contains another type.
    """
    return _CANONICAL.encode(value)


def to_json_values(value: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a config to plain JSON values, through :func:`canonical_json`."""
    plain_values: dict[str, Any] = json.loads(canonical_json(value))
    return plain_values


def _to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no canonical form: {value!r}")


_CANONICAL = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=True,  # text with lone surrogates gets an id too
    allow_nan=False,
    default=_to_plain,
)


def digest(*parts: Any) -> str:
    """Hash ``parts`` to a short hex id, for rows and specs."""
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:ID_LENGTH]


def json_sha256(value: Any) -> str:
    """Return ``sha256:…`` of the canonical JSON of a value, as a revision."""
    return f"sha256:{hashlib.sha256(canonical_json(value).encode()).hexdigest()}"


def text_key(text: str) -> bytes:
    """Return a 16-byte hash of a text, as a compact key for an index."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:16]


def file_sha256(path: Path) -> str:
    """Return the full SHA-256 of a regular file, read in blocks."""
    check_regular_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A reference to one exact version of a model."""

    name: str  #: Repository id, or the last folder of a local path.
    revision: str  #: 40-hex commit on the Hub, or ``sha256:…`` of the files of a directory.


@dataclass(frozen=True, slots=True)
class SourceRef:
    """A reference to one exact version of a set of problems."""

    name: str  #: Hub dataset or generator from the user, or the name of a file or folder.
    revision: str  #: 40-hex commit, ``sha256:…`` of the file, or the generator's version.
    split: str  #: The split of the source.


class EngineRef(FileModel):
    """The engine that ran a model, as far as it changes the results."""

    name: str  #: Name of the engine, such as ``vllm``; ``outputs`` for recorded responses.
    dtype: str  #: Floating-point type of the weights, such as ``bfloat16``; ``unknown`` if unknown.
    api: str | None = None  #: The API of a server: ``chat`` or ``completions``.
    seeds: str | None = None  #: What is known of the seeds of a server.
    #: Digest of the recording, if the revision of the model that wrote it is unknown.
    recording: str | None = None
    request_fields: dict[str, Any] | None = None  #: Further fields of each request to a server.

    @property
    def first_messages(self) -> list[dict[str, Any]]:
        """The messages before the question that a server got, such as a system message."""
        messages: list[dict[str, Any]] = (self.request_fields or {}).get("messages", [])
        return messages
