"""Licences of the problems' sources, as their publishers state them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: By name of the source; the Hub's identifiers.
LICENCES = {
    "embedded": "apache-2.0",
    "openai/gsm8k": "mit",
    "EleutherAI/hendrycks_math": "mit",
    "xinlai/Math-Step-DPO-10K": "cc-by-nc-4.0",
}
UNKNOWN = "unknown"


def licence_of(source: str) -> str:
    """Return the licence of a source, with or without the config behind its name."""
    return LICENCES.get(source, LICENCES.get(source.partition(":")[0], UNKNOWN))


def licence(sources: Sequence[Mapping[str, Any]]) -> str | list[str]:
    """Return what to state for problems of all ``sources`` together."""
    found = sorted({licence_of(source["name"]) for source in sources})
    return found[0] if len(found) == 1 else found
