"""The options of a run; ``fsdpo-bench run --help`` shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from fsdpo_bench.decode.beam import BeamSpec
from fsdpo_bench.decode.plan import DecodingPlan, make_plan
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import Option
from fsdpo_data.engines.options import PrmFormatName, ReplayOptions
from fsdpo_data.steps.rewards import AGGREGATES

_BEAM = "Step-wise beam search"
_SAMPLING = "Sampling"
_COUNT = Option(min=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(ReplayOptions):
    """Decode benchmarks with a model, grade, and report accuracy with its uncertainty and cost.

    One set of samples serves every decoder that chooses among samples, at every K. Stopped at any
    moment, the same command with `--resume` goes on.

    Attributes:
        model: Short name, `org/name[@revision]` or a directory.
        suite: `all`, the paper's nine, or another that `fsdpo-bench tasks` lists.
        task: One benchmark, or a file of your own: `my.toml`, or `my.jsonl` with `question` and
            `answer`; may be given several times.
        data: Directory with a folder for each benchmark, or the file of one.
        limit: Problems of each at most, drawn by the seed.
        decoder: `greedy`, `sc`, `weighted`, `bon`, `sbs`, or several: `greedy,sc`.
        k: Samples to decide among; may be given several times.
        prm: Process reward model: a directory or `org/name`.
        prm_format: Convention of a published one, or a TOML file that says one.
        out: Run directory.
        as_json: Print JSON instead of a table.
        template: Prompt template.
        segmenter: What a step is.
        temperature: Of samples; greedy has none.
        top_p: Nucleus mass kept.
        max_tokens: Tokens per solution at most.
        aggregate: How step rewards of a sample become one number.
        b1: Next steps sampled.
        b2: Solutions kept; one search for each.
        first_keep: First steps kept: Algorithm 1 says b1, its text b2.
        beam_aggregate: What ranks partial solutions; `last` is the newest step.
        max_steps: Steps at most (C).
        step_tokens: Tokens of a step at most.
        series: Which model of the recorded file, where it has several.

    Raises:
        InputError: if a number makes no sense, or options do not go together.
    """

    model: str | None = None
    suite: Annotated[str | None, Option(default_text="all")] = None
    task: Sequence[str] = ()
    data: Annotated[Path | None, Option(default_text="the Hub")] = None
    limit: Annotated[int | None, _COUNT] = None
    decoder: Annotated[Sequence[str], Option(default_text="greedy")] = ()
    k: Annotated[Sequence[int], Option(min=1, default_text="5")] = ()
    prm: str | None = None
    prm_format: PrmFormatName = None
    out: Annotated[Path | None, Option(default_text="runs/bench-MODEL-DIGEST")] = None
    as_json: Annotated[bool, Option(flag="--json")] = False
    template: Annotated[str | None, Option(panel=_SAMPLING, default_text="the model's")] = None
    segmenter: Annotated[str, Option(panel=_SAMPLING)] = "auto"
    temperature: Annotated[float | None, Option(panel=_SAMPLING, min=0, default_text="0.8")] = None
    top_p: Annotated[
        float | None, Option(panel=_SAMPLING, exclusive_min=0, max=1, default_text="1.0")
    ] = None
    max_tokens: Annotated[int | None, Option(panel=_SAMPLING, min=1, default_text="1024")] = None
    aggregate: Annotated[str, Option(panel=_SAMPLING, choices=AGGREGATES)] = "min"
    b1: Annotated[int, Option(panel=_BEAM, min=1)] = 5
    b2: Annotated[Sequence[int], Option(panel=_BEAM, min=1)] = (1,)
    first_keep: Annotated[Literal["b1", "b2"], Option(panel=_BEAM)] = "b1"
    beam_aggregate: Annotated[str, Option(panel=_BEAM, choices=AGGREGATES)] = "last"
    max_steps: Annotated[int, Option(panel=_BEAM, min=1)] = 32
    step_tokens: Annotated[int, Option(panel=_BEAM, min=1)] = 256
    series: Annotated[str | None, Option(panel=_SAMPLING)] = None

    def plan(self, metrics: Sequence[str] = ()) -> DecodingPlan:
        """Return what is to be decoded of every problem.

        ``metrics`` are what the benchmarks are reported by, where the options do not say: ``avg@8``
        wants eight samples.

        Raises:
            InputError: for a name or a number that cannot be, or a reward model without a use.
        """
        wanted = sorted({int(each.partition("@")[2]) for each in metrics if "@" in each})
        default = ("greedy", "sc") if wanted else ("greedy",)
        how = (self.max_steps, self.step_tokens, self.first_keep, self.beam_aggregate)
        beams = [BeamSpec(self.b1, b2, *how) for b2 in self.b2]
        plan = make_plan(self.decoder or default, self.k or wanted or (5,), self.aggregate, beams)
        if self.temperature == 0 and (plan.samples > 1 or plan.beams):
            raise InputError(
                "every sample would be the greedy one. Decode `decoder=greedy`, or sample at a "
                "temperature above 0.",
                field="temperature",
                value=0,
            )
        if self.prm is not None and not plan.needs_prm:
            raise InputError(
                "no step reward is asked for. Choose a decoder that ranks by them (weighted, bon, "
                "sbs), or leave it out.",
                field="prm",
                value=self.prm,
            )
        return plan
