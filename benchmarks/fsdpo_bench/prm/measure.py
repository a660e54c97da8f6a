"""``fsdpo-bench prm``: everything that is measured of a process reward model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fsdpo_bench.prm.first_error import FirstErrors, measure_first_errors, read_judged, score_judged
from fsdpo_bench.prm.prmbench import PrmBench, measure_step_errors, read_altered
from fsdpo_bench.prm.truth import ScoredSolution, load_scored, load_unscored, report
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.progress import Progress
from fsdpo_data.engines.scorers import Scorer, SteppedText
from fsdpo_data.models.prompts import get_template

#: Solutions scored at a time: enough to find some of like length, little enough to see progress.
CHUNK = 512


@dataclass(slots=True)
class Measured:
    """What was measured."""

    dataset: dict[str, Any] | None = None  #: See :func:`~.truth.report`; None without a dataset.
    first_errors: dict[str, FirstErrors] = field(default_factory=dict)
    step_errors: PrmBench | None = None


def measure_prm(
    make_scorer: Callable[[], Scorer] | None,
    dataset: Path | None,
    files: Sequence[Path],
    template: str | None,
    tune: float,
    *,
    step_errors: Sequence[Path] = (),
    threshold: float = 0.5,
    asks: bool = False,
    progress: Progress,
) -> Measured:
    """Measure a process reward model, or the rewards a dataset holds already.

    ``files`` are ProcessBench's, and ``tune`` is the share of their rows that chooses the
    threshold; ``step_errors`` are PRMBench's, whose ``threshold`` is given. ``template`` is how
    their problems are asked; a scorer that ``asks`` in words of its own needs none.

    Raises:
        InputError: if there is nothing to measure, or a file cannot be used.
        Unavailable: if the model cannot be run here.
    """
    needy = "`first_errors`" if files else "`step_errors`" if step_errors else ""
    if dataset is None and not needy:
        raise InputError("nothing to measure: give `data`, `first_errors` or `step_errors`.")
    if needy and make_scorer is None:
        raise InputError(f"{needy} needs a model to find them: give `prm`.")
    if needy and template is None and not asks:
        raise InputError(
            f"{needy} needs `template`: the prompt that the model's training data had. "
            "A published model has its own: name it by `prm_format`."
        )
    rows, altered = {file.name: read_judged(file) for file in files}, read_altered(step_errors)
    solutions = None
    if dataset is not None:
        solutions = load_scored(dataset) if make_scorer is None else load_unscored(dataset)
    if make_scorer is not None:
        progress.phase("load", 1)
    scorer = None if make_scorer is None else _Shown(make_scorer(), progress)
    measured = Measured()
    if solutions is not None:
        measured.dataset = report(solutions if scorer is None else _rewarded(solutions, scorer))
    if scorer is not None and (template is not None or asks):
        prompt = None if template is None else get_template(template)
        for name, judged in rows.items():
            rewards = score_judged(judged, scorer, prompt)
            measured.first_errors[name] = measure_first_errors(judged, rewards, tune)
        if altered:
            rewards = score_judged(altered, scorer, prompt)
            measured.step_errors = measure_step_errors(altered, rewards, threshold)
    return measured


class _Shown:
    """A scorer that moves a bar."""

    def __init__(self, scorer: Scorer, progress: Progress) -> None:
        self.model, self._scorer, self._progress = scorer.model, scorer, progress

    def score(self, items: Sequence[SteppedText]) -> list[list[float] | None]:
        self._progress.phase("score", len(items))
        found: list[list[float] | None] = []
        for start in range(0, len(items), CHUNK):
            part = items[start : start + CHUNK]
            found += self._scorer.score(part)
            self._progress.advance(len(part))
        return found


def _rewarded(solutions: Sequence[ScoredSolution], scorer: Scorer) -> list[ScoredSolution]:
    """Give the solutions the scorer's rewards; those it cannot read are left out."""
    items = [SteppedText(each.prompt, each.steps, each.question) for each in solutions]
    rewards = scorer.score(items)
    pairs = zip(solutions, rewards, strict=True)
    return [replace(each, rewards=found) for each, found in pairs if found]
