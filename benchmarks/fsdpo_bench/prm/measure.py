"""The measurements of ``fsdpo-bench prm``, on a dataset, ProcessBench and PRMBench."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from fsdpo_bench.prm.dataset_report import ScoredSolution, dataset_report, load_graded, load_scored
from fsdpo_bench.prm.first_error import (
    FirstErrorExample,
    FirstErrorScores,
    measure_first_errors,
    read_first_error_rows,
    score_examples,
)
from fsdpo_bench.prm.prmbench import PrmBenchScores, measure_step_errors, read_altered_solutions
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.progress import Progress
from fsdpo_data.engines.load import load_likelihood, load_scorer
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.engines.weights import resolve_prm
from fsdpo_data.models.prompts import get_template
from fsdpo_data.models.resolve import ResolvedWeights

#: Number of solutions per call of the scorer: enough for batches of similar lengths, and few enough
#: for frequent progress.
CHUNK_SOLUTIONS = 512


@dataclass(frozen=True, kw_only=True)
class PrmOptions(Options):
    r"""Measure a process reward model: how well it ranks solutions and detects wrong steps.

    Attributes:
        data: Sealed dataset, for ranking AUC, best-of-N and step separation.
        prm: Process reward model: a directory, or `org/name` on the Hub.
        likelihood: Instead of `prm`: a policy; the reward of a step is its probability.
        processbench: File of ProcessBench; may be repeated.
        prmbench: File of PRMBench; may be repeated.
        template: Prompt template of the reward model's training data, for ProcessBench and
            PRMBench. A model with a PRM format has its own prompt.
        tune_fraction: Fraction of the ProcessBench rows that sets the threshold.
        threshold: Steps of PRMBench with a reward above this number count as right; use 0 for the
            PRM format `pure`.
        engine: Engine that runs the reward model.
        as_json: Print JSON instead of a table.

    Examples:
        fsdpo-bench prm runs/scored                    # rewards of a dataset

        fsdpo-bench prm runs/test --prm runs/prm       # rewards in memory

        fsdpo-bench prm runs/test --likelihood tiny    # the baseline

        fsdpo-bench prm --prm runs/prm --template alpaca \
          --processbench gsm8k.json

        fsdpo-bench prm --prm PRM --prm-format qwen --prmbench prmbench.jsonl
    """

    data: Annotated[Path | None, Option(positional=True)] = None
    prm: str | None = None
    likelihood: str | None = None
    processbench: Sequence[Path] = ()
    prmbench: Sequence[Path] = ()
    template: str | None = None
    tune_fraction: Annotated[float, Option(min=0.01, max=0.9)] = 0.2
    threshold: float = 0.5
    engine: ScorerOptions = ScorerOptions()
    as_json: Annotated[bool, Option(flag="--json")] = False


@dataclass(slots=True)
class PrmMeasurements:
    """The measurements of a reward model."""

    #: Result of :func:`~.dataset_report.dataset_report`; None without a dataset.
    dataset: dict[str, Any] | None = None
    #: Scores by file of ProcessBench.
    processbench: dict[str, FirstErrorScores] = field(default_factory=dict)
    prmbench: PrmBenchScores | None = None  #: Scores on PRMBench; None without its files.


def measure_prm(options: PrmOptions, progress: Progress) -> PrmMeasurements:
    """Measure a process reward model, or the step rewards in a dataset.

    Raises:
        InputError: if there is nothing to measure, or a file cannot be used.
        UnavailableError: if the model cannot run on this machine.
    """
    prm = _resolve_model(options)
    template = None if options.template is None else get_template(options.template)
    examples_by_name = _read_processbench(options.processbench)
    altered = read_altered_solutions(options.prmbench)
    measurements = PrmMeasurements()
    if prm is None and options.likelihood is None:
        if options.data:
            measurements.dataset = dataset_report(load_scored(options.data))
        return measurements
    solutions = load_graded(options.data) if options.data else []
    progress.phase("load the model", 1)
    scorer = _ProgressScorer(_load_model(prm, options), progress)
    if options.data:
        measurements.dataset = dataset_report(_add_rewards(solutions, scorer))
    for name, examples in examples_by_name.items():
        rewards = score_examples(examples, scorer, template)
        measurements.processbench[name] = measure_first_errors(
            examples, rewards, options.tune_fraction
        )
    if altered:
        rewards = score_examples(altered, scorer, template)
        measurements.prmbench = measure_step_errors(altered, rewards, options.threshold)
    return measurements


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
    has_own_prompt = isinstance(prm, PublishedPrm) and prm.prm_format.has_own_prompt
    if benchmark and options.template is None and not has_own_prompt:
        raise InputError(
            f"{benchmark} needs `template`, the prompt template of the model's training data. A "
            "published model has its own prompt; give its `prm_format` if it is not detected."
        )
    return prm


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

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return the rewards of the scorer, chunk by chunk."""
        self._progress.phase("score", len(items))
        rewards: list[list[float] | None] = []
        for start in range(0, len(items), CHUNK_SOLUTIONS):
            chunk = items[start : start + CHUNK_SOLUTIONS]
            rewards += self._scorer.score(chunk)
            self._progress.advance(len(chunk))
        return rewards


def _add_rewards(solutions: Sequence[ScoredSolution], scorer: Scorer) -> list[ScoredSolution]:
    """Return the solutions with the scorer's rewards, without the ones that it cannot read."""
    items = [
        ScorerInput(prompt=solution.prompt, steps=solution.steps, question=solution.question)
        for solution in solutions
    ]
    all_rewards = scorer.score(items)
    return [
        replace(solution, rewards=rewards)
        for solution, rewards in zip(solutions, all_rewards, strict=True)
        if rewards
    ]
