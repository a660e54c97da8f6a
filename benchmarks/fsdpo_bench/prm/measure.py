"""``fsdpo-bench prm``: everything that is measured of a process reward model."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from fsdpo_bench.prm.dataset_report import ScoredSolution, dataset_report, load_graded, load_scored
from fsdpo_bench.prm.first_error import (
    FirstErrorScores,
    measure_first_errors,
    read_first_error_rows,
    score_examples,
)
from fsdpo_bench.prm.prmbench import PrmBenchScores, measure_step_errors, read_altered
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import Option
from fsdpo_data.core.progress import Progress
from fsdpo_data.engines.load import load_likelihood, load_scorer, resolve_prm
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm
from fsdpo_data.models.prompts import get_template

#: Solutions scored at a time: enough to find some of like length, little enough to see progress.
CHUNK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class PrmOptions(ScorerOptions):
    """Measure a process reward model: does it rank solutions, does it find errors?

    Attributes:
        data: A sealed dataset: ranking, best-of-N, step truth.
        prm: Process reward model: a directory or `org/name`.
        likelihood: Instead: a policy, whose probability of a step is its reward.
        processbench: ProcessBench file; may be given several times.
        prmbench: File of PRMBench; may be given several times.
        template: Prompt the model was trained on, for either; a `--prm-format` has one.
        tune_fraction: Share of ProcessBench's rows that set its threshold.
        threshold: Rewards above it call a step of PRMBench right (0 for `pure`).
        as_json: Print JSON instead of a table.
    """

    data: Annotated[Path | None, Option(positional=True)] = None
    prm: str | None = None
    likelihood: str | None = None
    processbench: Sequence[Path] = ()
    prmbench: Sequence[Path] = ()
    template: str | None = None
    tune_fraction: Annotated[float, Option(min=0.01, max=0.9)] = 0.2
    threshold: float = 0.5
    as_json: Annotated[bool, Option(flag="--json")] = False


@dataclass(slots=True)
class PrmMeasurements:
    """What was measured."""

    dataset: dict[str, Any] | None = (
        None  #: See :func:`~.truth.dataset_report`; None without a dataset.
    )
    processbench: dict[str, FirstErrorScores] = field(default_factory=dict)
    prmbench: PrmBenchScores | None = None


def measure_prm(options: PrmOptions, progress: Progress) -> PrmMeasurements:
    """Measure a process reward model, or the rewards a dataset holds already.

    Raises:
        InputError: if there is nothing to measure, or a file cannot be used.
        Unavailable: if the model cannot be run here.
    """
    if options.prm and options.likelihood:
        raise InputError("`prm` and `likelihood`: expected one of them, not both.")
    model = options.prm or options.likelihood
    first, every = options.processbench, options.prmbench
    needy = "`processbench`" if first else "`prmbench`" if every else ""
    if options.data is None and not needy:
        raise InputError("nothing to measure: give `data`, `processbench` or `prmbench`.")
    if needy and model is None:
        raise InputError(f"{needy} needs a model to find them: give `prm`.")
    prm = resolve_prm(options.prm, options) if options.prm else None
    asks = isinstance(prm, PublishedPrm) and prm.prm_format.has_own_prompt
    if needy and options.template is None and not asks:
        raise InputError(
            f"{needy} needs `template`: the prompt that the model's training data had. "
            "A published model has its own: name it by `prm_format` if it is not recognised."
        )
    prompt = None if options.template is None else get_template(options.template)
    alike = Counter(file.name for file in first)
    names = [file.name if alike[file.name] == 1 else str(file) for file in first]
    judged = {name: read_first_error_rows(file) for name, file in zip(names, first, strict=True)}
    altered = read_altered(every)
    measured = PrmMeasurements()
    if model is None:
        measured.dataset = dataset_report(load_scored(options.data)) if options.data else None
        return measured
    solutions = load_graded(options.data) if options.data else []
    progress.phase("load the model", 1)
    given = load_scorer(prm, options) if prm else load_likelihood(model, options)
    scorer = _ProgressScorer(given, progress)
    if options.data:
        measured.dataset = dataset_report(_add_rewards(solutions, scorer))
    for name, rows in judged.items():
        rewards = score_examples(rows, scorer, prompt)
        measured.processbench[name] = measure_first_errors(rows, rewards, options.tune_fraction)
    if altered:
        rewards = score_examples(altered, scorer, prompt)
        measured.prmbench = measure_step_errors(altered, rewards, options.threshold)
    return measured


class _ProgressScorer:
    """A scorer that moves a bar."""

    def __init__(self, scorer: Scorer, progress: Progress) -> None:
        self.model, self._scorer, self._progress = scorer.model, scorer, progress

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        self._progress.phase("score", len(items))
        found: list[list[float] | None] = []
        for start in range(0, len(items), CHUNK):
            part = items[start : start + CHUNK]
            found += self._scorer.score(part)
            self._progress.advance(len(part))
        return found


def _add_rewards(solutions: Sequence[ScoredSolution], scorer: Scorer) -> list[ScoredSolution]:
    """Give the solutions the scorer's rewards; those it cannot read are left out."""
    items = [ScorerInput(each.prompt, each.steps, each.question) for each in solutions]
    rewards = scorer.score(items)
    pairs = zip(solutions, rewards, strict=True)
    return [replace(each, rewards=found) for each, found in pairs if found]
