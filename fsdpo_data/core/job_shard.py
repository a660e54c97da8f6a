"""Shards: parts of a stage's work for parallel jobs, such as the tasks of a Slurm array."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from fsdpo_data.core.errors import InputError

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class JobShard:
    """One of ``count`` disjoint blocks of consecutive items; together they cover all items."""

    index: int = 1  #: Number of this shard, from 1.
    count: int = 1  #: Total number of shards.

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``i/N``, from 1/N to N/N.

        Raises:
            InputError: if ``text`` has another format or is out of range.
        """
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise InputError("expected i/N, from 1/N to N/N.", field="shard", value=text)
        return cls(index=int(match[1]), count=int(match[2]))

    def select(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items of this shard; shard sizes differ by at most one."""
        n_items = len(items)
        start = n_items * (self.index - 1) // self.count
        end = n_items * self.index // self.count
        return items[start:end]

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


UNSHARDED = JobShard()  #: All of the work.
