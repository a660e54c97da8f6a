"""Responses that were made elsewhere, run through the harness as if a model gave them now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsdpo_bench.recorded.outputs import is_outputs, read_outputs
from fsdpo_bench.tasks.load import LoadedTask
from fsdpo_bench.tasks.table import Task
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef, SourceRef, file_sha256
from fsdpo_data.core.sampling import Completion
from fsdpo_data.engines.samplers.replay import BaseReplaySampler
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.models.prompts import Template
from fsdpo_data.problems.load import problems_digest
from fsdpo_data.problems.recorded_responses import RecordedResponse, question_key


@dataclass(slots=True)
class ResponseFile(BaseReplaySampler):
    """A file of responses by question: a sampler and a scorer whose prompts are bare questions."""

    file: Path
    model: ModelRef  #: Its name, as far as the file has it; the file's contents as revision.
    #: The responses to each question, in the file's order, by :func:`question_key`.
    rows: Mapping[str, Sequence[RecordedResponse]]

    def check(self, samples: int, *, rewards: bool) -> None:
        """Raise an InputError if a question has too few responses, or rewards are missing."""
        for found in self.rows.values():
            if len(found) < samples:
                raise InputError(
                    f"{self.file} holds {len(found)} responses to the question "
                    f"{found[0].question[:60]!r}. Use `k={len(found)}` or less.",
                    field="k",
                    value=samples,
                )
            if rewards and any(each.reward is None for each in found):
                raise InputError(
                    f"{self.file} holds no reward for row {found[0].row}: weighted and bon need "
                    "them. Use `decoder=sc`, or give a process reward model as `prm`."
                )

    def as_task(self) -> LoadedTask:
        """Return the file's own questions and golds as a benchmark of their own."""
        problems = [
            Problem(found[0].question, found[0].gold, self.file.stem, "test")
            for found in self.rows.values()
        ]
        ids = [each.id for each in problems]
        task = Task(self.file.stem, self.file.stem, len(problems))
        ref = SourceRef(self.file.name, self.model.revision, "test")
        return LoadedTask(task, problems, ids, ref, problems_digest(ids))

    def restrict_to_task(self, loaded: LoadedTask) -> LoadedTask:
        """Return the problems of a benchmark that the file has responses to, with its golds.

        Raises:
            InputError: if there is none.
        """
        places = [
            place
            for place, problem in enumerate(loaded.problems)
            if question_key(problem.question) in self.rows
        ]
        if not places:
            raise InputError(
                f"{self.file} has no response to any problem of {loaded.task.title}. Leave "
                "`task` out to grade it by the golds it holds."
            )
        warnings = [*loaded.warnings]
        if len(places) < len(loaded.problems):
            warnings.append(
                f"{self.file.name} has responses to {len(places):,} of the "
                f"{len(loaded.problems):,} problems of {loaded.task.title}; the others are left out"
            )
        return replace(loaded.part(places), warnings=warnings)

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return the reward of each whole response, once per step."""
        return [self._rewards(item) for item in items]

    def _replay(self, prompt: str, n: int) -> list[Completion]:
        found = self.rows[question_key(prompt)][:n]  # what they took is not known
        return [Completion(each.response, each.finish_reason) for each in found]

    def _rewards(self, item: ScorerInput) -> list[float] | None:
        if not item.steps:
            return []
        found = self.rows[question_key(item.prompt)]
        reward = next(each.reward for each in found if each.response == "".join(item.steps))
        return None if reward is None else [reward] * len(item.steps)


class TemplatedScorer:
    """A scorer of bare questions, which are put into the prompt that it was trained on."""

    def __init__(self, scorer: Scorer, template: Template) -> None:
        self.model, self._scorer, self._template = scorer.model, scorer, template

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return the scorer's rewards."""
        render = self._template.render
        return self._scorer.score([replace(item, prompt=render(item.prompt)) for item in items])


def read_recording(file: Path, series: str | None) -> ResponseFile | None:
    """Read a file of responses; None if it is one of completions by prompt.

    Raises:
        InputError: if it cannot be read, holds no questions, or several models and none is named.
    """
    if not is_outputs(file):
        return None
    recorded = read_outputs(file)
    models = list(dict.fromkeys(each.model for each in recorded))
    if series is None and len(models) > 1:
        raise InputError(f"{file} holds several models: choose one by `series={models[0]}`.")
    if series is not None and series not in models:
        known = ", ".join(each for each in models if each) or "no names"
        raise InputError(f"{file} has {known}.", field="series", value=series)
    rows: dict[str, list[RecordedResponse]] = {}
    for each in recorded:
        if series not in (None, each.model):
            continue
        if not each.question:
            raise InputError(f"{file}, row {each.row}: the question is missing.")
        rows.setdefault(question_key(each.question), []).append(each)
    name = f"{file.stem}/{series}" if series else file.stem
    return ResponseFile(file, ModelRef(name, f"sha256:{file_sha256(file)}"), rows)
