"""The measurements of ``fsdpo-bench prm``, on a dataset, ProcessBench and PRMBench."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fsdpo_bench.prm.dataset_report import (
    SolvedProblem,
    check_best_of,
    dataset_report,
    load_measurable,
    load_scored,
)
from fsdpo_bench.prm.prmbench import PrmBenchScores, measure_step_errors, read_altered_solutions
from fsdpo_bench.prm.processbench import (
    FirstErrorExample,
    FirstErrorScores,
    has_both_labels,
    labelled_rewards,
    measure_at_threshold,
    measure_first_errors,
    measure_with_tuning,
    read_first_error_rows,
    score_examples,
)
from fsdpo_data.core.command_line import check_read_options
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import NotWith, OnlyWith, Option, Options
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.chat_prompts import PromptRenderer
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.stage_records import SAMPLE_STAGE, SampleRecord
from fsdpo_data.dataset.validate import explain_damage
from fsdpo_data.engines.item_errors import collect_results
from fsdpo_data.engines.load import load_likelihood, load_scorer
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.samplers import open_engine
from fsdpo_data.engines.scorers import Scorer, ScoreResult, ScorerInput
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.engines.weights import resolve_prm
from fsdpo_data.models.prompts import Template, get_template
from fsdpo_data.models.resolve import ResolvedWeights, find_trained_template, resolve_weights
from fsdpo_data.stages.score import scorer_prompt_renderer, warn_about_template

#: Number of solutions per call of the scorer: enough for batches of similar lengths, and few enough
#: for frequent progress.
CHUNK_SOLUTIONS = 512
#: Options that the likelihood of a policy does not need.
_PRM_OPTIONS = (
    *("prm_format", "reference", "beta", "votes", "majority"),
    *("engine", "engine_arg", "actors"),
    *("base_url", "concurrency", "timeout"),
)
_DEFAULT_THRESHOLD = 0.5  #: Threshold for PRMBench, and for rewards that are 0 or 1.


class PrmOptions(Options):
    r"""Measure a process reward model: how well it ranks solutions and detects wrong steps.

    Examples:
        fsdpo-bench prm runs/scored                    # rewards of a dataset

        fsdpo-bench prm runs/test --prm runs/prm       # rewards in memory

        fsdpo-bench prm runs/test --likelihood tiny    # the baseline

        fsdpo-bench prm --prm runs/prm --processbench gsm8k.json

        fsdpo-bench prm --prm PRM --processbench math.json --threshold 0.5

        fsdpo-bench prm --prm PRM --tune-on gsm8k.json \
          --processbench math.json --processbench omnimath.json

        fsdpo-bench prm --prm JUDGE --prm-format processbench \
          --processbench math.json --majority --votes 8

        fsdpo-bench prm --prm PRM --prm-format qwen --prmbench prmbench.jsonl
    """

    data: Annotated[Path | None, Option(positional=True)] = None
    """Dataset, for ranking AUC, best-of-N and step separation. A dataset of imported step
    labels has no outcomes, so it gives only step separation.
    """
    prm: str | None = None
    """Process reward model: a directory, or `org/name` on the Hub."""
    likelihood: str | None = None
    """Instead of `prm`: a policy; the reward of a step is its probability."""
    k: Annotated[
        Sequence[Annotated[int, Field(ge=1)]],
        Option(default_text="powers of 2 up to 64"),
        OnlyWith("data"),
    ] = ()
    """Number of solutions N to choose from, for best-of-N; may be repeated. Problems with fewer
    solutions than the largest N are left out at every N, and counted.
    """
    processbench: Sequence[Path] = ()
    """File of ProcessBench; may be repeated."""
    prmbench: Sequence[Path] = ()
    """File of PRMBench; may be repeated."""
    template: Annotated[str | None, OnlyWith("processbench", "prmbench")] = None
    """Prompt template of the reward model's training data, for ProcessBench and PRMBench. The
    default is the one that `fsdpo-train` recorded next to the model. A model with a PRM format has
    its own prompt.
    """
    tune_fraction: Annotated[
        float,
        Field(ge=0.01, le=0.9),
        OnlyWith("processbench"),
        NotWith("threshold", "tune_on", "majority"),
    ] = 0.2
    """Fraction of the rows of each ProcessBench file that sets the threshold, without `threshold`,
    `tune_on` or `majority`; the other rows count.
    """
    tune_on: Annotated[Path | None, OnlyWith("processbench"), NotWith("threshold", "majority")] = (
        None
    )
    """File of ProcessBench whose rows set the threshold for all other files. The paper of
    ProcessBench takes GSM8K.
    """
    threshold: Annotated[
        float | None,
        Option(default_text="0.5 for PRMBench"),
        OnlyWith("processbench", "prmbench"),
        NotWith("majority"),
    ] = None
    """Fixed threshold; all rows count. Steps with a reward below it are wrong. Use 0 for the PRM
    format `pure`.
    """
    majority: Annotated[bool, OnlyWith("processbench")] = False
    """For judges: the majority of the critiques decides, as in ProcessBench's script."""
    votes: Annotated[int | None, Field(ge=1), Option(default_text="as in the PRM format")] = None
    """For judges: number of critiques per solution."""
    engine: Annotated[ScorerOptions, OnlyWith("prm", "likelihood")] = ScorerOptions()
    """Engine that runs the reward model."""
    as_json: Annotated[bool, Option(flags=["--json"])] = False
    """Print JSON instead of a table."""

    def model_post_init(self, context: Any, /) -> None:
        """Refuse options of a reward model for a policy."""
        super().model_post_init(context)
        if self.likelihood is not None:
            read_options = {"`prm`": _PRM_OPTIONS, "`likelihood`": ()}
            check_read_options(self, "model of", ["`likelihood`"], read_options)


@dataclass(slots=True)
class PrmMeasurements:
    """The measurements of a reward model."""

    #: Result of :func:`~.dataset_report.dataset_report`; None without a dataset.
    dataset: dict[str, Any] | None = None
    #: Scores by file of ProcessBench.
    processbench: dict[str, FirstErrorScores] = field(default_factory=dict)
    prmbench: PrmBenchScores | None = None  #: Scores on PRMBench; None without its files.
    #: Name, digest and meaning of the PRM format, and how it was recognised; None without one.
    prm_format: dict[str, str] | None = None


def measure_prm(options: PrmOptions, progress: Progress) -> PrmMeasurements:
    """Measure a process reward model, or the step rewards in a dataset.

    Raises:
        InputError: if there is nothing to measure, or a file cannot be used.
        UnavailableError: if the model cannot run on this machine.
    """
    prm = _resolve_model(options)
    template = _find_template(options, prm)
    examples_by_name = _read_processbench(options.processbench)
    tuning_examples = _read_tuning_file(options.tune_on) if options.tune_on else []
    altered = read_altered_solutions(options.prmbench)
    measurements = PrmMeasurements()
    if isinstance(prm, PublishedPrm):
        measurements.prm_format = {
            **prm.prm_format.ref.to_dict(),
            "evidence": prm.format_evidence,
        }
    if prm is None and options.likelihood is None:
        if options.data:
            with explain_damage(options.data):
                scored = load_scored(options.data)
                measurements.dataset = dataset_report(scored, options.k)
        return measurements
    entries = load_measurable(options.data) if options.data else []
    render_prompt: PromptRenderer = str
    if options.data:
        check_best_of(entries, options.k)  # before hours of scoring
        manifest = read_manifest(options.data)
        render_prompt = scorer_prompt_renderer(
            manifest, options.data, _resolve_reader(options, prm)
        )
        if prm is not None:
            warn_about_template(prm, manifest.get(SAMPLE_STAGE, SampleRecord).options.template)
    progress.phase("load the model", 1)
    with open_engine(partial(_load_model, prm, options)) as load_scorer:
        scorer = _ProgressScorer(load_scorer(), progress)
        if options.data:
            solved = _add_rewards(entries, scorer, render_prompt)
            measurements.dataset = dataset_report(solved, options.k)
        if examples_by_name:
            score = partial(score_examples, scorer=scorer, template=template)
            measurements.processbench = _measure_processbench(
                options, examples_by_name, tuning_examples, score
            )
        if altered:
            rewards = score_examples(altered, scorer, template)
            threshold = _DEFAULT_THRESHOLD if options.threshold is None else options.threshold
            measurements.prmbench = measure_step_errors(altered, rewards, threshold)
    return measurements


def _measure_processbench(
    options: PrmOptions,
    examples_by_name: Mapping[str, Sequence[FirstErrorExample]],
    tuning_examples: Sequence[FirstErrorExample],
    score: Callable[[Sequence[FirstErrorExample]], list[list[float] | None]],
) -> dict[str, FirstErrorScores]:
    """Return the scores of each file of ProcessBench, by the protocol of the options.

    Args:
        options: The options, with the protocol.
        examples_by_name: The rows of each file.
        tuning_examples: The rows of ``options.tune_on``.
        score: Returns the step rewards of examples.
    """
    tuning_rewards = score(tuning_examples) if options.tune_on else []
    tuning = labelled_rewards(tuning_examples, tuning_rewards)
    all_scores = {}
    for name, examples in examples_by_name.items():
        is_tuning_file = options.tune_on is not None and examples == tuning_examples
        rewards = tuning_rewards if is_tuning_file else score(examples)
        if options.majority:
            # A judge that counts the majority rewards steps with 1 or 0.
            protocol = "majority of the critiques on all rows"
            scores = measure_at_threshold(examples, rewards, _DEFAULT_THRESHOLD, protocol)
        elif options.threshold is not None:
            protocol = f"threshold {options.threshold:g} on all rows"
            scores = measure_at_threshold(examples, rewards, options.threshold, protocol)
        elif options.tune_on is not None:
            file_name = "the same rows" if is_tuning_file else options.tune_on.name
            scores = measure_with_tuning(
                examples,
                rewards,
                tuning=None if is_tuning_file else tuning,
                protocol=f"threshold chosen on {file_name}; all rows count",
            )
        else:
            scores = measure_first_errors(examples, rewards, options.tune_fraction)
        all_scores[name] = scores
    return all_scores


def _read_tuning_file(file: Path) -> list[FirstErrorExample]:
    """Read the rows that choose the threshold."""
    examples = read_first_error_rows(file)
    if not has_both_labels(examples):
        raise InputError(
            "the rows that choose the threshold need solutions with and without an error. Give "
            "another file.",
            field="tune_on",
            value=str(file),
        )
    return examples


def _count_critiques(prm: ResolvedWeights | None, options: PrmOptions) -> ResolvedWeights | None:
    """Return a judge with the counting and the number of critiques of the options.

    Raises:
        InputError: if the options are for judges and the model is not a judge.
    """
    if not options.majority and options.votes is None:
        return prm
    if not isinstance(prm, PublishedPrm) or not prm.prm_format.is_judge:
        name = "majority" if options.majority else "votes"
        raise InputError(
            f"`{name}` is for judges, which write critiques. Remove it, or give a judge with the "
            "`prm_format` of its critiques.",
            field=name,
        )
    prm_format = prm.prm_format.replace(
        counting="majority" if options.majority else prm.prm_format.counting,
        votes=options.votes or prm.prm_format.votes,
    )
    return replace(prm, prm_format=prm_format)


def _resolve_model(options: PrmOptions) -> ResolvedWeights | None:
    """Check the combination of options, and resolve the reward model.

    Returns:
        The reward model; None for a policy, or without a model.

    Raises:
        InputError: if there is nothing to measure, or an option is missing.
    """
    if options.prm and options.likelihood:
        raise InputError("`prm` and `likelihood` exclude each other. Give one of them.")
    benchmark = ""
    if options.processbench:
        benchmark = "`processbench`"
    elif options.prmbench:
        benchmark = "`prmbench`"
    if options.data is None and not benchmark:
        raise InputError("nothing to measure: give `data`, `processbench` or `prmbench`.")
    if benchmark and not options.prm and options.likelihood is None:
        raise InputError(f"{benchmark} needs a model that detects the errors. Give `prm`.")
    prm = resolve_prm(options.prm, options.engine) if options.prm else None
    return _count_critiques(prm, options)


def _find_template(options: PrmOptions, prm: ResolvedWeights | None) -> Template | None:
    """Return the template of the options, or the one that the model was trained with.

    Returns:
        The template; None for a model with its own prompt, or without a benchmark.

    Raises:
        InputError: if a benchmark needs a template, and the model's own is not known.
    """
    has_own_prompt = isinstance(prm, PublishedPrm) and prm.prm_format.has_own_prompt
    if options.template is not None:
        if has_own_prompt:
            raise options.field_error(
                "template",
                "the PRM format of the model has its own prompt. Leave this option out.",
            )
        if prm is None:
            return get_template(options.template)
        return get_template(options.template, prm.path, revision=prm.commit)
    if has_own_prompt or not (options.processbench or options.prmbench):
        return None
    template = find_trained_template(_resolve_reader(options, prm))
    if template is None:
        benchmark = "`processbench`" if options.processbench else "`prmbench`"
        raise InputError(
            f"{benchmark} needs `template`, the prompt template of the model's training data. A "
            "published model has its own prompt; give its `prm_format` if it is not detected."
        )
    return template


def _resolve_reader(options: PrmOptions, prm: ResolvedWeights | None) -> ResolvedWeights:
    """Return the reward model, or the policy whose likelihood is the reward."""
    if prm is not None:
        return prm
    assert options.likelihood is not None
    return resolve_weights(options.likelihood)


def _load_model(prm: ResolvedWeights | None, options: PrmOptions) -> Scorer:
    """Load the reward model, or the policy whose likelihood is the reward."""
    if prm is not None:
        return load_scorer(prm, options.engine)
    assert options.likelihood is not None
    return load_likelihood(options.likelihood, options.engine)


def _read_processbench(files: Sequence[Path]) -> dict[str, list[FirstErrorExample]]:
    """Read files of ProcessBench, by file name; by path if several files have the same name."""
    name_counts = Counter(file.name for file in files)
    examples = {}
    for file in files:
        name = file.name if name_counts[file.name] == 1 else str(file)
        examples[name] = read_first_error_rows(file)
    return examples


class _ProgressScorer:
    """A scorer that advances a progress bar."""

    def __init__(self, scorer: Scorer, progress: Progress) -> None:
        self.model = scorer.model
        self._scorer = scorer
        self._progress = progress

    def score(self, items: Sequence[ScorerInput]) -> Iterator[ScoreResult]:
        """Yield the results of the scorer, chunk by chunk."""
        self._progress.phase("score", len(items))
        for start in range(0, len(items), CHUNK_SOLUTIONS):
            chunk = items[start : start + CHUNK_SOLUTIONS]
            for index, rewards in self._scorer.score(chunk):
                yield start + index, rewards
            self._progress.advance(len(chunk))


def _add_rewards(
    entries: Sequence[SolvedProblem], scorer: Scorer, render_prompt: PromptRenderer
) -> list[SolvedProblem]:
    """Return the solutions with the scorer's rewards; None for the ones that it cannot read."""
    items = [
        ScorerInput(
            render_prompt(entry.solution.prompt),
            entry.solution.completions,
            entry.problem.question,
        )
        for entry in entries
    ]
    all_rewards = collect_results(scorer.score(items))
    return [
        replace(entry, solution=replace(entry.solution, step_rewards=rewards))
        for entry, rewards in zip(entries, all_rewards, strict=True)
    ]
