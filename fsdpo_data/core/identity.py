"""Identity is content, never position: digests of canonical JSON, and the refs built on them."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ID_VERSION = 1  #: Part of every id; raised when the meaning of an id changes.

#: Hex digits kept of a SHA-256: 80 bits, so a billion rows collide with odds below 1e-6.
ID_LENGTH = 20


def canonical_json(value: Any) -> str:
    """Serialise dataclasses, dicts, lists and scalars to one spelling, whatever their key order.

    Raises:
        TypeError: if ``value`` holds anything else.
    """
    return _CANONICAL.encode(value)


def to_json_values(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config as the plain JSON values that :func:`canonical_json` makes of it."""
    made: dict[str, Any] = json.loads(canonical_json(value))
    return made


def _as_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} has no canonical form: {value!r}")


_CANONICAL = json.JSONEncoder(
    sort_keys=True,
    separators=(",", ":"),
    ensure_ascii=True,  # lone surrogates in hostile text still get an id
    allow_nan=False,
    default=_as_plain,
)


def digest(*parts: Any) -> str:
    """Hash ``parts`` to the short hex id used for every row and spec."""
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:ID_LENGTH]


def text_key(text: str) -> bytes:
    """Return the 16 bytes by which an index finds a text, far smaller than the text itself."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:16]


def file_sha256(path: Path) -> str:
    """Return the full SHA-256 of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model that can be found again."""

    name: str  #: Repository id, or the last folder of a local path.
    revision: str  #: 40-hex commit on the Hub, or ``sha256:…`` over the files of a local directory.


@dataclass(frozen=True, slots=True)
class SourceRef:
    """A set of problems that can be found again."""

    name: str  #: Hub dataset or generator as the user gave it, or the name of a file or folder.
    revision: str  #: 40-hex commit, ``sha256:…`` of the file, or the generator's version.
    split: str  #: Split read from it.
