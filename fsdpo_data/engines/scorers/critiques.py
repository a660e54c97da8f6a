"""Critiques of solutions: asked for and read as a convention says, each a vote.

A vote is the first wrong step, from 0, or ``NO_ERROR``. What cannot be read is no vote: a critique
that was cut, that names no step of the solution, or judges more steps or fewer than there are.
Critiques are read and never run.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from fsdpo_data.answers.extraction.boxes import last_box_content
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.sampling import Completion, SamplingSpec
from fsdpo_data.engines.samplers import Sampler
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.prm_formats import (
    PRM_FORMATS,
    PrmFormat,
    PublishedPrm,
    fill_fields,
    get_prm_format,
)
from fsdpo_data.models.prompts import Template, get_template
from fsdpo_data.models.thinking import find_thinking

NO_ERROR = -1  #: What says that no step is wrong.
_INDEX = re.compile(r"-1|\d{1,6}", re.A)
_VERDICT = re.compile(r"\\boxed\{(?:\\text\{)?(correct|incorrect)\}", re.I)


def get_judge_format(name: str) -> PrmFormat:
    """Return the convention of a judge, by its name or from a TOML file.

    Raises:
        InputError: if there is none, it is none of a judge, or its procedure is refused.
    """
    found = get_prm_format(name)
    if found.unsupported_reason:
        raise InputError(f"{found.unsupported_reason}.", field="judge_format", value=name)
    if not found.is_judge:
        known = ", ".join(each.name for each in PRM_FORMATS.values() if each.is_judge)
        expected = f"it asks for no critique: expected {known}, or a .toml file of your own."
        raise InputError(expected, field="judge_format", value=name)
    return found


def critique_prompt(convention: PrmFormat, template: Template, item: ScorerInput) -> str:
    """Return what a judge is asked of a solution; InputError if its question is not known."""
    written = (convention.format_step(k, step) for k, step in enumerate(item.steps, 1))
    question, steps = convention.question_text(item), convention.separator.join(written)
    return (
        template.render(fill_fields(convention.prompt, question=question, steps=steps))
        + convention.reply_prefix
    )


def critique_sampling(convention: PrmFormat, template: Template, votes: int) -> SamplingSpec:
    """Return how ``votes`` critiques are sampled; a single one is greedy."""
    drawn = votes > 1
    return SamplingSpec(
        n=votes,
        temperature=convention.temperature if drawn else 0.0,
        top_p=convention.top_p if drawn else 1.0,
        max_tokens=convention.max_tokens,
        stop=(*convention.stop, *template.stop),
    )


def read_votes(
    convention: PrmFormat, critiques: Iterable[tuple[str, str]], n_steps: int
) -> list[int]:
    """Return the votes among critiques, told as (text, finish reason), of ``n_steps`` steps."""
    read = (_vote(convention, text, n_steps) for text, end in critiques if end != "length")
    return [vote for vote in read if vote is not None]


def _vote(convention: PrmFormat, critique: str, n_steps: int) -> int | None:
    if convention.read_at == "index":
        thought = find_thinking("", critique)
        box = None if thought.closed is False else last_box_content(critique[thought.end :])
        index = _INDEX.fullmatch((box or "").strip())
        return int(index[0]) if index and int(index[0]) < n_steps else None
    right = [verdict[1].lower() == "correct" for verdict in _VERDICT.finditer(critique)]
    if not n_steps or len(right) > n_steps or (all(right) and len(right) < n_steps):
        return None
    return right.index(False) if False in right else NO_ERROR


def majority_vote(votes: Sequence[int]) -> int:
    """Return what most votes say; of equals the one first given, as ProcessBench's script does."""
    return Counter(votes).most_common(1)[0][0]


def count_approvals(votes: Sequence[int], n_steps: int) -> list[int]:
    """Return of each step how many votes find no error up to it."""
    return [sum(vote == NO_ERROR or vote > k for vote in votes) for k in range(n_steps)]


class CritiqueScorer:
    """Rewards a step by the share of critiques that find no error up to it; ``sampler`` writes."""

    def __init__(self, weights: PublishedPrm, sampler: Sampler) -> None:
        self.model, self._sampler, self._convention = weights.ref, sampler, weights.prm_format
        form, at = weights.prm_format, {"revision": weights.commit}
        self._template = get_template(form.template, weights.path, **at)
        self._sampling = critique_sampling(form, self._template, form.votes)

    def score(self, items: Sequence[ScorerInput]) -> list[list[float] | None]:
        """Return one share per step; None where no critique can be read.

        Raises:
            InputError: if a question is not known.
        """
        prompts = [critique_prompt(self._convention, self._template, item) for item in items]
        written = self._sampler.sample(prompts, self._sampling)
        return [self._shares(*each) for each in zip(items, written, strict=True)]

    def _shares(self, item: ScorerInput, critiques: Sequence[Completion]) -> list[float] | None:
        told = [(each.text, each.finish_reason) for each in critiques]
        votes = read_votes(self._convention, told, len(item.steps))
        approved = count_approvals(votes, len(item.steps))
        return [count / len(votes) for count in approved] if votes else None
