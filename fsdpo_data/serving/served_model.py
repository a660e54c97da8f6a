"""A reward model whose batches contain the requests of several clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import ModelRef
from fsdpo_data.engines.load import load_scorer
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.engines.scorers.prm_formats import PublishedPrm, format_entry, needs_question
from fsdpo_data.engines.weights import resolve_prm
from fsdpo_data.models.prompts import Template, get_template
from fsdpo_data.models.resolve import ResolvedWeights
from fsdpo_data.models.trained_template import read_trained_template
from fsdpo_data.rewards.shared_scorer import SharedScorer


class TokenInput(NamedTuple):
    """A text whose tokens are all classified."""

    input_ids: Sequence[int]  #: Token ids.


@runtime_checkable
class TokenClassifier(Protocol):
    """A scorer that can classify every token of a text."""

    def encode_text(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the token ids of a text."""
        ...

    def check_token_ids(self, input_ids: Sequence[int]) -> None:
        """Raise InputError for token ids that the model cannot read."""
        ...

    def classify_tokens(self, sequences: Sequence[Sequence[int]]) -> list[list[list[float]]]:
        """Return the logits of each token, [T, C] for C classes, for each text."""
        ...


class _RequestScorer:
    """A scorer of solutions and of texts; both come from requests that wait at the same time."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    def score(self, items: Sequence[ScorerInput | TokenInput]) -> list[Any]:
        """Return the step rewards of each solution, and the logits of each text."""
        results: list[Any] = [None] * len(items)
        solutions: dict[int, ScorerInput] = {}
        texts: dict[int, Sequence[int]] = {}
        for index, item in enumerate(items):
            if isinstance(item, TokenInput):
                texts[index] = item.input_ids
            else:
                solutions[index] = item
        if solutions:
            step_rewards = self._scorer.score(list(solutions.values()))
            for index, rewards in zip(solutions, step_rewards, strict=True):
                results[index] = rewards
        if texts:
            assert isinstance(self._scorer, TokenClassifier)
            token_logits = self._scorer.classify_tokens(list(texts.values()))
            for index, logits in zip(texts, token_logits, strict=True):
                results[index] = logits
        return results


class ServedModel:
    """A loaded reward model for several threads; waiting requests share a batch.

    Raises:
        InputError: if the model is not a process reward model.
        UnavailableError: if a library, a GPU or the weights are missing.
    """

    def __init__(self, prm: str, options: ScorerOptions) -> None:
        weights = resolve_prm(prm, options)
        self._scorer = load_scorer(weights, options)
        request_scorer = _RequestScorer(self._scorer)
        self._batches: SharedScorer[ScorerInput | TokenInput, Any] = SharedScorer(
            lambda: request_scorer
        )
        self._reads_question = needs_question(weights)
        self._template = _find_trained_template(weights)
        self._format_entry = format_entry(weights)
        self.activation = (
            weights.prm_format.activation if isinstance(weights, PublishedPrm) else "sigmoid"
        )

    @property
    def ref(self) -> ModelRef:
        """Name and revision of the model."""
        return self._scorer.model

    def describe(self) -> dict[str, Any]:
        """Return the entry of the model in the list of models."""
        return {
            "id": self.ref.name,
            "object": "model",
            "owned_by": "fsdpo",
            "revision": self.ref.revision,
            "reads_question": self._reads_question or self._template is not None,
            "format": dict(self._format_entry),
        }

    def make_input(
        self, question: str | None, prompt: str | None, steps: Sequence[str]
    ) -> ScorerInput:
        """Return the input of the scorer for a request.

        Raises:
            InputError: if the model needs the question or the prompt, and the request has none.
        """
        if self._reads_question:
            if question is None:
                raise InputError("the reward model reads the question. Send `question`.")
            return ScorerInput(prompt or "", steps, question)
        if prompt is None and self._template is not None and question is not None:
            prompt = self._template.render(question)
        if prompt is None:
            sources = "`question` or `prompt`" if self._template is not None else "`prompt`"
            raise InputError(
                f"the reward model reads the prompt of the policy, as text. Send {sources}."
            )
        return ScorerInput(prompt, steps, question)

    def score(self, item: ScorerInput) -> list[float] | None:
        """Return one reward per step; None if the solution exceeds the context of the model."""
        rewards: list[float] | None = self._batches.score([item])[0]
        return rewards

    def make_token_input(
        self, text: str | Sequence[int], *, add_special_tokens: bool
    ) -> TokenInput:
        """Return the token ids of a text.

        Raises:
            InputError: if the model cannot classify tokens, or cannot read these tokens.
        """
        if not isinstance(self._scorer, TokenClassifier):
            raise InputError(
                "this reward model does not classify tokens, because its rewards are not the "
                "outputs of a head on the engine transformers. Use `/step_rewards`."
            )
        if isinstance(text, str):
            text = self._scorer.encode_text(text, add_special_tokens=add_special_tokens)
        self._scorer.check_token_ids(text)
        return TokenInput(text)

    def classify(self, inputs: Sequence[TokenInput]) -> list[list[list[float]]]:
        """Return the logits of the classes of each token, [T, C], for each text."""
        return self._batches.score(inputs)


def _find_trained_template(weights: ResolvedWeights) -> Template | None:
    """Return the template with which ``fsdpo-train prm`` trained the model; None if unknown."""
    name = read_trained_template(weights.path)
    if name is None:
        return None
    return get_template(name, tokenizer_path=weights.path, revision=weights.commit)
