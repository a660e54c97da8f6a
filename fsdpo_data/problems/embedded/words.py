"""The words of the embedded world: who, what, and how each relation is told and worked out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from fsdpo_data.core.tables import read_table


@dataclass(frozen=True, slots=True)
class Words:
    """What the table beside this module holds; it says of each entry what it is."""

    names: Sequence[str]
    things: Sequence[str]
    distractors: Sequence[str]
    tell: Mapping[str, Sequence[str]]
    say: Mapping[str, Sequence[str]]
    parts: Mapping[int, str]
    times: Mapping[int, str]


@cache
def words() -> Words:
    """Return the words, read once."""
    told = read_table(__file__)
    counts = {name: {int(k): word for k, word in told[name].items()} for name in ("parts", "times")}
    return Words(**{**told, **counts})
