"""Options of ``fsdpo-bench run``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from fsdpo_bench.decode.decoders import (
    DECODERS,
    DEFAULT_DECODER,
    default_decoders,
    prm_decoders,
)
from fsdpo_bench.decode.plan import DecodingPlan, make_plan
from fsdpo_bench.tasks.own_rows import RowOptions
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import Group, Option, check_read_options
from fsdpo_data.core.sampling import MAX_SEED, SamplingSpec
from fsdpo_data.engines.answer_judge import AnswerJudgeOptions
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.options import (
    FailureOptions,
    PrmFormatName,
    ReplayOptions,
    check_engine_options,
)
from fsdpo_data.steps.rewards import AGGREGATES, DEFAULT_AGGREGATE
from fsdpo_data.steps.segment import SEGMENTER_NAMES

_BEAM = "Step-wise beam search"
_SAMPLING = "Sampling"
_COUNT = Option(min=1)


@dataclass(frozen=True, kw_only=True)
class RunOptions(FailureOptions, ReplayOptions, AnswerJudgeOptions):
    r"""Decode benchmarks with a model, grade the answers, and report accuracy, intervals and cost.

    Decoders that choose from samples share one set: for each K they use its first K samples. To
    continue an interrupted run, repeat the command with `--resume`.

    Attributes:
        model: The model: a short name (`tiny`, or as in `fsdpo-data list models`),
            `org/name[@revision]` on the Hub, or a directory.
        suite: Named list of benchmarks, as `fsdpo-bench tasks` prints them; `all` is the nine
            benchmarks of the paper.
        task: Name of a benchmark, or a file of your own: `my.toml`, or `my.jsonl` with the fields
            `question` and `answer`; may be repeated.
        data: Directory with a folder or a file for each benchmark, or the file of one benchmark.
        rows: Options of the rows in your own file.
        limit: Maximum number of problems per benchmark, drawn at random with `limit_seed`.
        limit_seed: Seed of the problems that `limit` draws. They do not depend on the seed of the
            samples.
        decoder: Names of decoders; several with commas: `greedy,sc`. For a file with several
            responses per problem, the default is `first,sc` with all responses.
        k: Number of samples per problem, for decoders that choose from samples; may be repeated.
        prm: Process reward model for decoders that need step rewards: a directory, or `org/name`
            on the Hub.
        prm_format: Prompt and score position of a published reward model: a name, or a TOML file.
            By default they are detected from the model.
        out: Run directory.
        as_json: Print JSON instead of a table.
        template: Prompt template: a name (`fsdpo-data list templates`), a `.txt` file that contains
            `{question}`, or the directory of a dataset, whose template is used.
        segmenter: Rule that splits a solution into steps.
        sampling: Sampling settings; `k` replaces the number of samples `n`.
        aggregate: Function from the step rewards of a sample to its reward. Decoders that choose by
            reward use it. `last` takes the reward of the last step. By default, the aggregate of
            the PRM format.
        b1: Next steps to sample for each solution in the beam.
        b2: Solutions to keep after each step (the beam size); may be repeated, for one search
            each.
        first_keep: Solutions to keep after the first step: `b1` as in Algorithm 1 of
            Full-Step-DPO, or `b2` as in its text.
        beam_aggregate: Function from step rewards to the reward that ranks partial solutions;
            `last` takes the reward of the newest step.
        max_steps: Maximum number of generations per solution (C in Algorithm 1). A generation adds
            one step, or a part of a step that is longer than `step_tokens`.
        step_tokens: Maximum number of tokens per generation; the next generation continues a longer
            step.
        series: With `--replay`: name of the model whose responses are read, for a file with the
            responses of several models. `fsdpo-bench grade FILE` lists the names.

    Raises:
        InputError: if a value is out of range, or two options contradict each other.

    Examples:
        fsdpo-bench run --suite smoke --model tiny      # offline, one minute

        fsdpo-bench run --suite ood --model qwen2-7b-sft --decoder greedy,sc \
          --k 5 --k 15

        fsdpo-bench run --task my.jsonl --model tiny    # a benchmark of your own

        fsdpo-bench run --task my.jsonl --model tiny --metric avg@8 \
          --subject-field topic --gold-field final

        fsdpo-bench run --task math --model ./policy --prm ./prm \
          --decoder greedy,sc,bon,sbs --k 15 --b1 5 --b2 1 --b2 3

        fsdpo-bench run --engine replay --replay outputs.jsonl \
          --decoder sc,bon --k 8 --prm Qwen/Qwen2.5-Math-PRM-7B

        fsdpo-bench run --task math --model ./policy \
          --judge Qwen/Qwen2.5-7B-Instruct    # decides undecided answers
    """

    suite: Annotated[str | None, Option(default_text="all")] = None
    task: Sequence[str] = ()
    data: Annotated[Path | None, Option(default_text="the Hub", in_digest=False)] = None
    rows: Annotated[RowOptions, Group(panel="Your own benchmark")] = RowOptions()
    limit: Annotated[int | None, _COUNT] = None
    limit_seed: Annotated[int, Option(min=0, max=MAX_SEED)] = 0
    decoder: Annotated[
        Sequence[str], Option(names_in_value=DECODERS, default_text=DEFAULT_DECODER)
    ] = ()
    k: Annotated[Sequence[int], Option(min=1, default_text="5")] = ()
    prm: str | None = None
    prm_format: PrmFormatName = None
    out: Annotated[Path | None, Option(default_text="runs/bench-MODEL-DIGEST", in_digest=False)] = (
        None
    )
    as_json: Annotated[bool, Option(flag="--json", in_digest=False)] = False
    template: Annotated[str | None, Option(panel=_SAMPLING, default_text="the model's")] = None
    segmenter: Annotated[str, Option(panel=_SAMPLING, choices=SEGMENTER_NAMES)] = "auto"
    sampling: Annotated[
        SamplingSpec,
        Group(
            panel=_SAMPLING,
            help={
                "temperature": "Sampling temperature; `greedy` ignores it.",
                "top_p": "Probability mass of nucleus sampling; 1 samples from all tokens.",
                "max_tokens": "Maximum number of tokens per solution.",
                "seed": "Random seed. Sample i of a prompt depends only on the seed, the prompt "
                "and i.",
            },
            without=("n",),
            stated_field="stated_sampling",
        ),
    ] = SamplingSpec(n=1)
    aggregate: Annotated[
        str | None,
        Option(
            panel=_SAMPLING,
            choices=AGGREGATES,
            default_text=f"by reward model, else {DEFAULT_AGGREGATE}",
        ),
    ] = None
    b1: Annotated[int, Option(panel=_BEAM, min=1)] = 5
    b2: Annotated[Sequence[int], Option(panel=_BEAM, min=1)] = (1,)
    first_keep: Annotated[Literal["b1", "b2"], Option(panel=_BEAM)] = "b1"
    beam_aggregate: Annotated[str, Option(panel=_BEAM, choices=AGGREGATES)] = "last"
    max_steps: Annotated[int, Option(panel=_BEAM, min=1)] = 32
    step_tokens: Annotated[int, Option(panel=_BEAM, min=1)] = 256
    series: Annotated[str | None, Option(panel=_SAMPLING)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_engine_options(self, self.engine.engine_entry, "series")
        self.check_prm_options(self.prm, self.prm_format)

    def plan(self, metrics: Sequence[str] = (), n_recorded: int = 1) -> DecodingPlan:
        """Return the decoding plan of the run.

        Args:
            metrics: Metrics of the benchmarks. Without the options ``decoder`` and ``k``, they set
                the decoders and the numbers of samples: ``avg@8`` needs eight samples.
            n_recorded: Number of recorded responses of each problem. Several responses are random
                samples, so none of them is called greedy, and all of them count.

        Raises:
            InputError: for an unknown decoder or aggregate, samples at temperature 0, or a reward
                model or an option that no decoder reads.
        """
        metric_ks = sorted({int(metric.partition("@")[2]) for metric in metrics if "@" in metric})
        beams = [
            BeamSpec(
                b1=self.b1,
                b2=b2,
                max_steps=self.max_steps,
                step_tokens=self.step_tokens,
                first_keep=self.first_keep,
                aggregate=self.beam_aggregate,
            )
            for b2 in self.b2
        ]
        uses_all_recorded = not self.decoder and n_recorded > 1
        default_k = n_recorded if uses_all_recorded else 5
        plan = make_plan(
            decoders=self.decoder or self._default_decoders(bool(metric_ks), n_recorded),
            ks=self.k or metric_ks or (default_k,),
            aggregate=self.aggregate or DEFAULT_AGGREGATE,
            beams=beams,
        )
        read_options = {
            decoder.name: (*decoder.parameters, *decoder.options)
            for decoder in DECODERS.importable_entries()
        }
        check_read_options(self, "decoder", plan.decoders, read_options)
        if self.sampling.temperature == 0 and (plan.n_samples > 1 or plan.beams):
            raise InputError(
                "every sample would be the greedy one. Use `decoder=greedy`, or a temperature "
                "above 0.",
                field="temperature",
                value=0,
            )
        if self.prm is not None and not plan.needs_prm:
            raise InputError(
                f"no decoder needs step rewards. Add one of {', '.join(prm_decoders())}, or "
                "remove `prm`.",
                field="prm",
                value=self.prm,
            )
        return plan

    def _default_decoders(self, has_metric: bool, n_recorded: int) -> list[str]:
        """Return the decoders of a run without the option ``decoder``."""
        is_temperature_known = "temperature" not in self.unknown_fields
        if not self.is_replay or (is_temperature_known and self.sampling.temperature == 0):
            return default_decoders(has_metric=has_metric)
        return default_decoders(
            has_metric=has_metric or n_recorded > 1,
            has_random_samples=n_recorded > 1 or is_temperature_known,
        )
