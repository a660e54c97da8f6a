"""Options of ``fsdpo-bench run``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fsdpo_bench.decoders.decoders import DECODERS, Decoder, DecoderSetup
from fsdpo_bench.tasks.own_rows import RowOptions
from fsdpo_data.core.command_line import check_read_options
from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.core.options import Group, OnlyWith, Option
from fsdpo_data.core.sampling import MAX_SEED, SamplingSpec
from fsdpo_data.engines.answer_judge import AnswerJudgeOptions
from fsdpo_data.engines.beam_search import BeamSpec
from fsdpo_data.engines.options import FailureOptions, PrmFormatName, ReplayOptions, Shard
from fsdpo_data.steps.rewards import AGGREGATES, DEFAULT_AGGREGATE
from fsdpo_data.steps.segment import SEGMENTERS

DEFAULT_DECODER = "greedy"  #: The decoder of a run without the option ``decoder``.
#: The default decoder for recorded responses that may be random samples.
FIRST_SAMPLE_DECODER = "first"
DEFAULT_K = 5  #: Number of samples without the option ``k`` and without metrics.

_BEAM = "Step-wise beam search"
_SAMPLING = "Sampling"
_Count = Annotated[int, Field(ge=1)]


class RunOptions(FailureOptions, ReplayOptions, AnswerJudgeOptions):
    r"""Solve benchmarks with a model, and report accuracy, intervals and cost.

    The output is a folder of datasets: `samples` for the decoders that choose from samples, and one
    dataset for each other decoder. Decoders that choose from samples share one set. For a K below
    its size, their accuracy is the mean over subsets of K samples. To continue an interrupted run,
    repeat the command with `--resume`.

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

        fsdpo-bench run --task math --model ./policy \
          --judge Qwen/Qwen2.5-7B-Instruct    # decides undecided answers
    """

    suite: str | None = None
    """Named list of benchmarks, as `fsdpo-bench tasks` prints them. `smoke` needs no download;
    `all` is the nine benchmarks of Full-Step-DPO.
    """
    task: Sequence[str] = ()
    """Name of a benchmark, or a file of your own: `my.toml`, or `my.jsonl` with the fields
    `question` and `answer`; may be repeated.
    """
    data: Annotated[Path | None, Option(default_text="the Hub", in_digest=False)] = None
    """Directory with a folder or a file for each benchmark, or the file of one benchmark."""
    rows: Annotated[RowOptions, Group(panel="Your own benchmark")] = RowOptions()
    """Options of the rows in your own file."""
    limit: _Count | None = None
    """Maximum number of problems per benchmark, drawn at random with `limit_seed`."""
    limit_seed: Annotated[int, Field(ge=0, le=MAX_SEED), OnlyWith("limit")] = 0
    """Seed of the problems that `limit` draws. They do not depend on the seed of the samples."""
    decoder: Annotated[
        Sequence[str], Option(names_in_value=DECODERS, default_text=DEFAULT_DECODER)
    ] = ()
    """Names of decoders, which choose the answer of a problem; several with commas: `greedy,sc`. If
    `replay` has several completions per problem, the default is `first,sc` with all of them.
    """
    k: Annotated[Sequence[Annotated[int, Field(ge=1)]], Option(default_text="5")] = ()
    """Number of samples per problem, for decoders that choose from samples; may be repeated."""
    prm: str | None = None
    """Process reward model for decoders that need step rewards: a directory, or `org/name` on the
    Hub.
    """
    prm_format: PrmFormatName = None
    """Prompt and score position of a published reward model: a name, or a TOML file. By default
    they are detected from the model.
    """
    out: Annotated[
        str | Path | None,
        Option(default_text="runs/bench-MODEL-DIGEST", in_digest=False, dataset="output"),
    ] = None
    """Run directory, or a URL such as `s3://bucket/runs/bench`."""
    as_json: Annotated[bool, Option(flags=["--json"], in_digest=False)] = False
    """Print JSON instead of a table."""
    template: Annotated[str | None, Option(panel=_SAMPLING, default_text="the model's")] = None
    """Prompt template: a name (`fsdpo-data list templates`), a `.txt` file that contains
    `{question}`, or the directory of a dataset, whose template is used.
    """
    segmenter: Annotated[str, Option(panel=_SAMPLING, choices=SEGMENTERS)] = "auto"
    """Rule that splits a solution into steps."""
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
        ),
    ] = SamplingSpec(n=1)
    """Sampling settings; `k` replaces the number of samples `n`."""
    aggregate: Annotated[
        str | None,
        Option(
            panel=_SAMPLING,
            choices=AGGREGATES,
            default_text=f"by reward model, else {DEFAULT_AGGREGATE}",
        ),
    ] = None
    """Function from the step rewards of a sample to its reward. Decoders that choose by reward use
    it. `last` takes the reward of the last step. By default, the aggregate of the PRM format, or
    `last` for an outcome reward model.
    """
    b2: Annotated[Sequence[Annotated[int, Field(ge=1)]], Option(panel=_BEAM)] = (1,)
    """Solutions to keep after each step (the beam size); may be repeated, for one search each."""
    beam: Annotated[BeamSpec, Group(panel=_BEAM, without=("b2",))] = BeamSpec()
    """Settings of the beam search; the list `b2` replaces its beam size."""
    shard: Shard = None
    """Sample one of N parts of the problems; `fsdpo-bench merge` joins the parts."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options that contradict each other."""
        super().model_post_init(context)
        self.check_prm_options(self.prm, self.prm_format)

    @property
    def decoders(self) -> list[str]:
        """The names of the option ``decoder``, in its order.

        Raises:
            InputError: if a decoder is unknown, or needs what only a report has.
        """
        names = [name.strip() for name in ",".join(self.decoder).split(",") if name.strip()]
        # `maj@8` is the metric of a decoder, so `maj` names this decoder.
        names_by_metric = {entry.metric: entry.name for entry in DECODERS.importable_entries()}
        names = [names_by_metric.get(name, name) for name in names]
        if self.decoder and not names:
            raise _unknown_decoder_error("")
        for name in names:
            if name not in DECODERS:
                raise _unknown_decoder_error(name)
            if DECODERS[name].needs == "likelihoods":
                raise InputError(
                    "a run has no likelihoods. Remove this decoder; `fsdpo-bench report RUN "
                    "--likelihood MODEL` adds it.",
                    field="decoder",
                    value=name,
                )
        return names

    def setups(self, metrics: Sequence[str] = (), n_recorded: int = 1) -> list[DecoderSetup]:
        """Return the decoders of the run with their parameters, in the order of the results.

        The aggregate is the default if the options name none; a reward model may have another one.

        Args:
            metrics: Metrics of the benchmarks. Without the options ``decoder`` and ``k``, they set
                the decoders and the numbers of samples: ``avg@8`` needs eight samples.
            n_recorded: Number of recorded completions of each problem. Several completions are
                random samples, so none of them is called greedy, and all of them count.

        Raises:
            InputError: for an unknown decoder, samples at temperature 0, or a reward model or an
                option that no decoder reads.
        """
        metric_ks = sorted({int(metric.partition("@")[2]) for metric in metrics if "@" in metric})
        names = self.decoders or self._default_decoders(bool(metric_ks), n_recorded)
        uses_all_recorded = not self.decoder and n_recorded > 1
        default_k = n_recorded if uses_all_recorded else DEFAULT_K
        ks = sorted({*self.k}) or metric_ks or [default_k]
        # The registry has the order of the results.
        decoders = [DECODERS[name] for name in DECODERS if name in names]
        setups = [setup for decoder in decoders for setup in self._decoder_setups(decoder, ks)]
        self._check_setups(setups)
        return setups

    def _decoder_setups(self, decoder: Decoder, ks: Sequence[int]) -> list[DecoderSetup]:
        """Return a decoder with each value of its parameters."""
        parameters = decoder.parameters
        aggregate = self.aggregate or DEFAULT_AGGREGATE
        return [
            DecoderSetup(
                decoder,
                k=k,
                aggregate=aggregate if "aggregate" in parameters else "",
                b1=self.beam.b1 if "b1" in parameters else 0,
                b2=b2,
            )
            for k in (ks if "k" in parameters else [1])
            for b2 in (dict.fromkeys(self.b2) if "b2" in parameters else [0])
        ]

    def _check_setups(self, setups: Sequence[DecoderSetup]) -> None:
        """Check that each option has a decoder that reads it, and that samples are random."""
        names = list(dict.fromkeys(setup.decoder.name for setup in setups))
        read_options = {
            decoder.name: (*decoder.parameters, *decoder.options) for decoder in run_decoders()
        }
        if not self.is_replay:  # the settings of recorded samples are known, not chosen
            # Temperature 0 states what greedy decoding is.
            settings = ["top_p"] + ["temperature"] * (self.sampling.temperature > 0)
            for decoder in run_decoders():
                if decoder.origin != "greedy":
                    read_options[decoder.name] += (*settings,)
        check_read_options(self, "decoder", names, read_options)
        is_random = any(setup.k > 1 or setup.decoder.origin == "beam" for setup in setups)
        if self.sampling.temperature == 0 and is_random:
            raise InputError(
                "every sample would be the greedy one. Use `decoder=greedy`, or a temperature "
                "above 0.",
                field="temperature",
                value=0,
            )
        reward_decoders = names_with_rewards(setups)
        if self.prm is not None and not reward_decoders:
            choices = [decoder.name for decoder in run_decoders() if decoder.needs_rewards]
            raise InputError(
                f"no decoder needs step rewards. Add one of {', '.join(choices)}, or remove `prm`.",
                field="prm",
                value=self.prm,
            )
        if self.prm is None and reward_decoders:
            raise InputError(
                f"the decoders {', '.join(reward_decoders)} need step rewards. Give a process "
                "reward model as `prm`, e.g. one from fsdpo-train prm, or remove these decoders.",
                field="decoder",
                value=",".join(names),
            )
        searches = [name for name in names if DECODERS[name].origin == "beam"]
        # A recording may have the continuations of a search.
        if searches and not (self.is_replay or self.engine.can_continue_text):
            raise InputError(
                f"the engine {self.engine.engine} cannot continue a text, which the decoder does. "
                "Remove the decoder, or use another engine; servers need `api=completions`.",
                field="decoder",
                value=",".join(searches),
            )

    def _default_decoders(self, has_metric: bool, n_recorded: int) -> list[str]:
        """Return the decoders of a run without the option ``decoder``.

        Args:
            has_metric: Whether a benchmark has a metric over samples, such as ``avg@8``.
            n_recorded: Number of recorded completions of each problem.
        """
        single_decoder = DEFAULT_DECODER
        if self.is_replay:
            is_temperature_known = "temperature" not in self.unknown_fields
            is_greedy = is_temperature_known and self.sampling.temperature == 0
            has_metric = has_metric or (n_recorded > 1 and not is_greedy)
            if not is_greedy and (n_recorded > 1 or is_temperature_known):
                single_decoder = FIRST_SAMPLE_DECODER
        if not has_metric:
            return [single_decoder]
        voters = [decoder.name for decoder in run_decoders() if decoder.metric]
        return [single_decoder, *voters]


def run_decoders() -> list[Decoder]:
    """Return the decoders that a run can have; only a report has likelihoods."""
    entries = DECODERS.importable_entries()
    return [decoder for decoder in entries if decoder.needs != "likelihoods"]


def names_with_rewards(setups: Sequence[DecoderSetup]) -> list[str]:
    """Return the names of the decoders that need step rewards."""
    names = [setup.decoder.name for setup in setups if setup.decoder.needs_rewards]
    return list(dict.fromkeys(names))


def _unknown_decoder_error(name: str) -> InputError:
    """Return the error for the name of an unknown decoder."""
    choices = "; ".join(f"{decoder.name} ({decoder.description})" for decoder in run_decoders())
    suggestion = suggest_names(name, DECODERS)
    return InputError(
        f"expected names from {choices}.{suggestion} {DECODERS.source_of_names}",
        field="decoder",
        value=name,
    )
