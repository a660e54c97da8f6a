"""The options that every stage has: from a sealed dataset to a new one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fsdpo_data.core.options import Option, Options
from fsdpo_data.dataset.derive import Stage
from fsdpo_data.engines.options import Resume


@dataclass(frozen=True, kw_only=True)
class StageOptions(Options, ABC):
    """From a sealed dataset to a new one.

    Attributes:
        data: A sealed dataset; it is left as it is.
        out: Directory of the new dataset.
        resume: Go on with the run in `out`.
    """

    data: Annotated[str | Path, Option(positional=True)] = field(kw_only=False)
    out: str | Path
    resume: Resume = False

    @abstractmethod
    def stage(self) -> Stage:
        """Check what was asked for, and return what does it; models load when they are needed."""
