"""Names of models and sources with their commits on the Hub."""

import re
from collections.abc import Mapping
from typing import Any

COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}")  #: A commit on the Hub; local files have a digest.


def pinned_name(ref: Mapping[str, Any]) -> str:
    """Return the name of a model or source with its commit; a local path has no commit."""
    name = str(ref["name"])
    revision = str(ref["revision"])
    if not COMMIT_PATTERN.fullmatch(revision):
        return name
    repo, colon, config = name.partition(":")
    return f"{repo}@{revision}{colon}{config}"
