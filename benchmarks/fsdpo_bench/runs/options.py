"""What was asked of ``fsdpo-bench run``, as typed; see its ``--help``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fsdpo_bench.decode.beam import BeamSpec
from fsdpo_bench.decode.plan import Plan, make_plan
from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.options import SamplerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(SamplerOptions):
    """The options of ``fsdpo-bench run``."""

    suite: str | None = None
    task: Sequence[str] = ()
    data: Path | None = None
    limit: int | None = None
    model: str | None = None
    template: str | None = None
    segmenter: str = "auto"
    decode: Sequence[str] = ("greedy",)
    k: Sequence[int] = (5,)
    prm: str | None = None
    aggregate: str = "min"
    b1: int = 5
    b2: Sequence[int] = (1,)
    first_keep: Literal["b1", "b2"] = "b1"
    beam_aggregate: str = "last"
    max_steps: int = 32
    step_tokens: int = 256
    series: str | None = None
    temperature: float = 0.8
    top_p: float = 1.0
    max_tokens: int = 1024
    out: Path | None = None
    as_json: bool = False

    @property
    def plan(self) -> Plan:
        """Return what is to be decoded of every problem.

        Raises:
            InputError: for a name or a number that cannot be.
        """
        beams = [
            BeamSpec(
                self.b1,
                b2,
                self.max_steps,
                self.step_tokens,
                self.first_keep,
                self.beam_aggregate,
            )
            for b2 in self.b2
        ]
        return make_plan(self.decode, self.k, self.aggregate, beams)

    def check(self) -> None:
        """Refuse options that do not go together.

        Raises:
            InputError: saying which.
        """
        if self.limit is not None and self.limit < 1:
            raise InputError(f"--limit {self.limit}: expected at least 1.")
        if self.temperature == 0 and (self.plan.samples > 1 or self.plan.beams):
            raise InputError(
                "--temperature 0: every sample would be the greedy one. Use --decode greedy, or a "
                "temperature above 0."
            )
