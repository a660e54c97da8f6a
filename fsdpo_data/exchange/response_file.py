"""A file of recorded responses in place of a model: a sampler, and a scorer of its rewards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef, file_sha256
from fsdpo_data.core.sampling import Completion
from fsdpo_data.engines.samplers.replay import BaseReplaySampler
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.exchange.outputs import has_output_format, read_outputs
from fsdpo_data.exchange.response_formats import RecordedResponse, question_key
from fsdpo_data.models.prompts import Template


@dataclass(slots=True)
class ResponseFile(BaseReplaySampler):
    """A file of responses: a sampler and a scorer whose prompts are bare questions."""

    file: Path  #: Path of the file.
    model: ModelRef  #: Name of the file and the model; the revision is the digest of the file.
    #: The responses to each question in the order of the file, by :func:`question_key`.
    responses: Mapping[str, Sequence[RecordedResponse]]

    @property
    def min_responses(self) -> int:
        """Number of responses that every question has."""
        return min(map(len, self.responses.values()), default=0)

    def check_responses(self, samples: int, *, rewards: bool) -> None:
        """Check that every question has enough responses, and rewards if they are needed.

        Args:
            samples: Number of responses that each question needs.
            rewards: Whether each response needs a reward.

        Raises:
            InputError: if a response or a reward is missing.
        """
        for responses in self.responses.values():
            n = len(responses)
            if n < samples:
                raise InputError(
                    f"{self.file} contains only {n} responses to the question "
                    f"{responses[0].question[:60]!r}. Use `k={n}` or less.",
                    field="k",
                    value=samples,
                )
            if rewards and any(response.reward is None for response in responses):
                raise InputError(
                    f"{self.file} contains no reward for row {responses[0].row}. Give a process "
                    "reward model as `prm`, or use only decoders that need no rewards."
                )

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return the recorded reward of each response, once per step."""
        return [self._recorded_rewards(item) for item in items]

    def _replay(self, prompt: str, n: int) -> list[Completion]:
        """Return the first ``n`` responses to a question; the replay has no times and tokens."""
        responses = self.responses[question_key(prompt)][:n]
        return [
            Completion(text=response.response, finish_reason=response.finish_reason)
            for response in responses
        ]

    def _recorded_rewards(self, item: ScorerInput) -> list[float] | None:
        """Return the reward of the response that consists of these steps."""
        if not item.steps:
            return []
        text = "".join(item.steps)
        responses = self.responses[question_key(item.prompt)]
        reward = next(response.reward for response in responses if response.response == text)
        return None if reward is None else [reward] * len(item.steps)


class TemplatedScorer:
    """A scorer of bare questions that first puts them into a prompt template."""

    def __init__(self, scorer: Scorer, template: Template) -> None:
        """Wrap ``scorer``, whose training data used ``template``."""
        self.model = scorer.model
        self._scorer = scorer
        self._template = template

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return the rewards of the wrapped scorer."""
        render = self._template.render
        return self._scorer.score([replace(item, prompt=render(item.prompt)) for item in items])


def read_response_file(file: Path, series: str | None) -> ResponseFile | None:
    """Read a file of responses with golds.

    Returns None for another format, such as the ``completions.jsonl`` of ``fsdpo-data build``.

    Args:
        file: The file.
        series: Name of the model to read, for a file with the responses of several models.

    Raises:
        InputError: if a row cannot be read or lacks its question, or the model is ambiguous or
            unknown, or the rows name no models.
    """
    if not has_output_format(file):
        if series is not None:
            raise InputError(
                f"{file} has completions by prompt, which name no models. Remove `series`.",
                field="series",
                value=series,
            )
        return None
    responses = read_outputs(file)
    models = list(dict.fromkeys(response.model for response in responses))
    if series is None and len(models) > 1:
        raise InputError(
            f"{file} contains the responses of several models. Choose one, e.g. "
            f"`series={models[0]}`."
        )
    if series is not None and series not in models:
        model_names = ", ".join(model for model in models if model) or "no model names"
        raise InputError(f"{file} contains {model_names}.", field="series", value=series)
    responses_by_question: dict[str, list[RecordedResponse]] = {}
    for response in responses:
        if series not in (None, response.model):
            continue
        if not response.question:
            raise InputError(f"{file}, row {response.row}: the question is missing.")
        key = question_key(response.question)
        responses_by_question.setdefault(key, []).append(response)
    name = f"{file.stem}/{series}" if series else file.stem
    model = ModelRef(name, f"sha256:{file_sha256(file)}")
    return ResponseFile(file=file, model=model, responses=responses_by_question)
