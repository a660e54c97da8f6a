"""Finish reasons of servers, libraries and files; ``finish_reasons.toml`` lists what ends a turn.

Every reason that is not listed there counts as truncation, and callers name it to the user. A loop
of repeated text, for example, must not become a finished solution.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from fsdpo_data.core.toml_tables import read_module_table

#: ``stop`` for a complete completion, ``length`` for a truncated one.
FinishReason = Literal["stop", "length"]

_NAMES: Final[Mapping[str, frozenset[str]]] = {
    meaning: frozenset(names) for meaning, names in read_module_table(__file__).items()
}
_KNOWN_NAMES: Final = frozenset[str]().union(*_NAMES.values())
_MAX_NAME_CHARS = 40  #: Characters of a name in a warning.


def is_missing(value: Any) -> bool:
    """Return whether a value states no finish reason: null, or text without a word."""
    return value is None or (isinstance(value, str) and not value.strip())


def read_finish_reason(value: Any) -> FinishReason | None:
    """Return the finish reason that a server or a file states; None after a failed request.

    A missing reason counts as ``stop``. A reason with an unknown name counts as ``length``.
    """
    name = _normalize(value)
    if is_missing(value) or name in _NAMES["stop"]:
        return "stop"
    return None if name in _NAMES["failure"] else "length"


def unknown_finish_reason(value: Any) -> str:
    """Return the name of a finish reason that is not listed; empty for a known or missing one."""
    if is_missing(value) or _normalize(value) in _KNOWN_NAMES:
        return ""
    return " ".join(str(value).split())[:_MAX_NAME_CHARS]


def describe_unknown_finish_reasons(counts: Mapping[str, int]) -> str:
    """Return a sentence with the unknown finish reasons and their numbers; empty without any."""
    if not counts:
        return ""
    return f"unknown finish reasons, which count as truncated: {list_by_count(counts)}."


def list_by_count(counts: Mapping[str, int]) -> str:
    """Return quoted names with their counts, the most frequent one first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name!r} ({count:,})" for name, count in ordered)


def _normalize(value: Any) -> str:
    """Return a name in lower case, without white space and the name of its enumeration."""
    return str(value).strip().lower().rpartition(".")[2]
