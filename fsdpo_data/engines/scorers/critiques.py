"""Critiques of solutions by a judge: prompts, sampling, votes, and a scorer.

A PRM format defines the prompt of a judge and how its critiques are read. A vote is the index of
the first wrong step, from 0, or ``NO_ERROR``. A critique gives no vote if it is truncated, or if it
names a step that the solution does not have. It also gives no vote if it judges too many or too few
steps. The code that a critique contains is never run.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fsdpo_data.answers.extraction.boxes import last_box_content
from fsdpo_data.answers.thinking import find_thinking
from fsdpo_data.core.errors import InputError, ItemError
from fsdpo_data.core.placeholders import fill_text
from fsdpo_data.core.sampling import Completion, Prompt, SamplingSpec
from fsdpo_data.engines.samplers import Sampler, close_engine
from fsdpo_data.engines.scorers import ScoreResult, ScorerInput
from fsdpo_data.engines.scorers.prm_formats import (
    PRM_FORMATS,
    PrmFormat,
    PublishedPrm,
)
from fsdpo_data.models.prompts import Template, get_template
from fsdpo_data.steps.first_error import NO_ERROR, find_first_wrong

_INDEX = re.compile(r"-1|\d{1,6}", re.A)
_VERDICT = re.compile(r"\\boxed\{(?:\\text\{)?(correct|incorrect)\}", re.I)


def get_judge_format(name: str) -> PrmFormat:
    """Return the PRM format of a judge, by its name or from a TOML file.

    Raises:
        InputError: if the format does not exist, is not for a judge, or is not supported.
    """
    judge_names = [judge.name for judge in PRM_FORMATS.values() if judge.is_judge]
    expected = f"Expected {', '.join(judge_names)}, or a .toml file of your own."
    if name not in PRM_FORMATS and Path(name).suffix != ".toml":
        raise InputError(f"there is no such format. {expected}", field="judge_format", value=name)
    try:
        prm_format = PRM_FORMATS.find(name)
    except InputError as error:
        raise error.for_field("judge_format") from None
    if prm_format.unsupported_reason:
        raise InputError(f"{prm_format.unsupported_reason}.", field="judge_format", value=name)
    if not prm_format.is_judge:
        raise InputError(
            f"the format has no prompt for critiques. {expected}",
            field="judge_format",
            value=name,
        )
    return prm_format


def critique_prompt(prm_format: PrmFormat, template: Template, item: ScorerInput) -> str:
    """Return the prompt for a critique of a solution.

    Raises:
        InputError: if the format needs the question and the item has none.
    """
    question = prm_format.question_text(item)
    formatted_steps = [
        prm_format.format_step(number, step) for number, step in enumerate(item.steps, start=1)
    ]
    steps = prm_format.separator.join(formatted_steps)
    instruction = fill_text(prm_format.prompt, {"question": question, "steps": steps})
    return template.render(instruction) + prm_format.reply_prefix


def critique_sampling(prm_format: PrmFormat, template: Template, votes: int) -> SamplingSpec:
    """Return the sampling spec for ``votes`` critiques; a single critique is greedy."""
    is_random = votes > 1
    return SamplingSpec(
        n=votes,
        temperature=prm_format.temperature if is_random else 0.0,
        top_p=prm_format.top_p if is_random else 1.0,
        max_tokens=prm_format.max_tokens,
        stop=(*prm_format.stop, *template.stop),
    )


def read_votes(
    prm_format: PrmFormat, prompt: str, critiques: Iterable[Completion], n_steps: int
) -> list[int]:
    """Return the votes of all readable critiques of one solution.

    Args:
        prm_format: The format of the judge.
        prompt: The prompt that the judge received; it may open the thinking.
        critiques: The critiques of the judge.
        n_steps: The number of steps of the solution.
    """
    votes = []
    for critique in critiques:
        if critique.finish_reason == "length":
            continue
        vote = _read_vote(prm_format, prompt, critique.text, n_steps)
        if vote is not None:
            votes.append(vote)
    return votes


def _read_vote(prm_format: PrmFormat, prompt: str, critique: str, n_steps: int) -> int | None:
    """Return the vote of a complete critique, or None if the critique is unreadable."""
    if prm_format.read_at == "index":
        return _read_index(prompt, critique, n_steps)
    return _read_step_verdicts(critique, n_steps)


def _read_index(prompt: str, critique: str, n_steps: int) -> int | None:
    """Return the index in the last box after the thinking, or None if it is invalid."""
    thinking = find_thinking(prompt, critique)
    if thinking.closed is False:
        return None
    box_content = last_box_content(critique[thinking.end :])
    match = _INDEX.fullmatch((box_content or "").strip())
    if match is None or int(match[0]) >= n_steps:
        return None
    return int(match[0])


def _read_step_verdicts(critique: str, n_steps: int) -> int | None:
    """Return the index of the first ``incorrect`` box, or None without a verdict on each step.

    The verdicts may end after the first wrong step.
    """
    is_correct = [match[1].lower() == "correct" for match in _VERDICT.finditer(critique)]
    has_too_few = all(is_correct) and len(is_correct) < n_steps
    if n_steps == 0 or len(is_correct) > n_steps or has_too_few:
        return None
    return find_first_wrong(not is_right for is_right in is_correct)


def majority_vote(votes: Sequence[int]) -> int:
    """Return the most frequent vote; in a tie the first one, as in ProcessBench's script."""
    return Counter(votes).most_common(1)[0][0]


def count_approvals(votes: Sequence[int], n_steps: int) -> list[int]:
    """Return for each step the number of votes without an error up to this step."""
    return [
        sum(vote == NO_ERROR or vote > step_index for vote in votes)
        for step_index in range(n_steps)
    ]


class CritiqueScorer:
    """Scorer that rewards a step with the fraction of critiques without an error up to it.

    If the format counts the majority, the majority's vote replaces all votes.
    """

    def __init__(self, weights: PublishedPrm, sampler: Sampler) -> None:
        """Set up the prompts and the sampling.

        Args:
            weights: The judge.
            sampler: Writes the critiques.
        """
        prm_format = weights.prm_format
        self.model = weights.ref
        self._sampler = sampler
        self._prm_format = prm_format
        self._template = get_template(prm_format.template, weights.path, revision=weights.commit)
        self._sampling = critique_sampling(prm_format, self._template, prm_format.votes)

    def score(self, items: Sequence[ScorerInput]) -> Iterator[ScoreResult]:
        """Yield one reward per step of each item; None for an item without a readable critique.

        Raises:
            InputError: if the format needs the question and an item has none.
        """
        prompts = [
            Prompt(critique_prompt(self._prm_format, self._template, item)) for item in items
        ]
        for index, critiques in self._sampler.sample(prompts, self._sampling):
            if isinstance(critiques, ItemError):
                yield index, critiques
            else:
                prompt = prompts[index].full_text
                yield index, self._approval_fractions(items[index], prompt, critiques)

    def close(self) -> None:
        """Free the memory of the judge."""
        close_engine(self._sampler)

    def _approval_fractions(
        self, item: ScorerInput, prompt: str, critiques: Sequence[Completion]
    ) -> list[float] | None:
        n_steps = len(item.steps)
        votes = read_votes(self._prm_format, prompt, critiques, n_steps)
        if not votes:
            return None
        if self._prm_format.counting == "majority":
            votes = [majority_vote(votes)]
        return [count / len(votes) for count in count_approvals(votes, n_steps)]
