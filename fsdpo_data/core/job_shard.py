"""One of several jobs that share the work of a stage, such as those of a Slurm array."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from fsdpo_data.core.errors import InputError

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class JobShard:
    """Shard ``index`` of ``count``: a run of consecutive items; together the shards are all."""

    index: int = 1  #: From 1.
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``i/N``, one of 1/N to N/N, or raise an InputError."""
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise InputError("expected i/N, from 1/N to N/N.", field="shard", value=text)
        return cls(int(found[1]), int(found[2]))

    def select(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items of this shard; the sizes of shards differ by one at most."""
        size = len(items)
        return items[size * (self.index - 1) // self.count : size * self.index // self.count]

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


UNSHARDED = JobShard()  #: All of the work.
