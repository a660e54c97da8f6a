"""Process rewards: step rewards of a process reward model, and their aggregate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fsdpo_data.core.errors import InputError
from fsdpo_data.engines.load import load_scorer
from fsdpo_data.engines.options import ScorerOptions
from fsdpo_data.engines.scorers import Scorer, ScorerInput
from fsdpo_data.engines.scorers.prm_formats import model_aggregate, needs_question
from fsdpo_data.engines.weights import resolve_prm
from fsdpo_data.models.prompts import Template, add_chat_format, get_template, template_of_ref
from fsdpo_data.models.resolve import find_trained_template_ref
from fsdpo_data.rewards.messages import Conversation, completion_text, user_text
from fsdpo_data.rewards.reward_function import RewardFunction, Rollout
from fsdpo_data.rewards.shared_scorer import SharedScorer
from fsdpo_data.steps.rewards import DEFAULT_AGGREGATE, check_aggregate
from fsdpo_data.steps.rewards import aggregate as aggregate_rewards
from fsdpo_data.steps.segment import segmenter_name, split_solution


class StepRewards(NamedTuple):
    """The steps of a completion and their rewards."""

    steps: list[str]  #: The steps; joined, they are the text of the completion.
    #: One reward per step. None if the completion is longer than the context of the reward model,
    #: or no critique of a judge is readable.
    rewards: list[float] | None


class ProcessReward(RewardFunction):
    """A reward function that scores the steps with a reward model; see :func:`process`."""

    __name__ = "process_reward"

    def __init__(
        self,
        scorer: SharedScorer,
        *,
        aggregate: str,
        per_step: bool,
        question_column: str | None,
        template: Template | None,
        trained_template: Template | None,
        segmenter: str,
        reads_question: bool,
    ) -> None:
        self._scorer = scorer
        self._aggregate = aggregate
        self._per_step = per_step
        self._question_column = question_column
        self._template = template
        self._trained_template = trained_template
        self._segmenter = segmenter
        self._reads_question = reads_question

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the questions, if one is named."""
        return (self._question_column,) if self._question_column else ()

    def score(self, rollouts: Sequence[Rollout]) -> list[float | None]:
        """Return the aggregate of the step rewards; None without step rewards."""
        return [self._aggregate_steps(steps) for steps in self.score_rollouts(rollouts)]

    def __call__(
        self, prompts: Sequence[Conversation], completions: Sequence[Conversation], **columns: Any
    ) -> list[Any]:
        """Return one reward per completion; with ``per_step`` one list of rewards, or None."""
        if self._per_step:
            scored = self.score_steps(prompts, completions, **columns)
            return [step_rewards.rewards for step_rewards in scored]
        return super().__call__(prompts, completions, **columns)

    def score_steps(
        self, prompts: Sequence[Conversation], completions: Sequence[Conversation], **columns: Any
    ) -> list[StepRewards]:
        """Return the steps of each completion with their rewards, for advantages per token.

        The arguments are the same as in a call. A trainer that assigns the steps to its own token
        ids passes texts that it decoded from these ids.
        """
        return self.score_rollouts(self.make_rollouts(prompts, completions, columns))

    def score_rollouts(self, rollouts: Sequence[Rollout]) -> list[StepRewards]:
        """Return the steps and the step rewards of each rollout; a blank one has no steps."""
        items = [self._scorer_input(rollout) for rollout in rollouts]
        rewards = self._scorer.score_in_order(items)
        return [
            StepRewards(list(item.steps), step_rewards)
            for item, step_rewards in zip(items, rewards, strict=True)
        ]

    def _scorer_input(self, rollout: Rollout) -> ScorerInput:
        question = self._find_question(rollout)
        prompt = self._make_prompt(rollout, question)
        steps = split_solution(prompt, completion_text(rollout.completion), self._segmenter)
        return ScorerInput(prompt, steps, question)

    def _find_question(self, rollout: Rollout) -> str | None:
        """Return the question of a rollout; None for a plain prompt without a named column.

        Raises:
            InputError: if the reward model reads the question, and the rollout does not have it.
        """
        value: Any = rollout.prompt
        if self._question_column is not None:
            value = rollout.columns[self._question_column]
        is_question = isinstance(value, str) and self._question_column is not None
        question = value if is_question else user_text(value)
        if question is None and (self._reads_question or self._template is not None):
            raise InputError(
                "the reward model reads the question, and a plain prompt may contain more than "
                "the question. Name the column of the questions with `question_column`. If the "
                "prompts are the questions, name the column `prompt`.",
                field="process.question_column",
                value=self._question_column,
            )
        return question

    def _make_prompt(self, rollout: Rollout, question: str | None) -> str:
        """Return the prompt for the reward model; empty if the reward model reads none.

        Raises:
            InputError: if the reward model reads the prompt, and there is no prompt as text.
        """
        if self._template is not None:
            return self._template.render(question or "")
        if isinstance(rollout.prompt, str) and (rollout.prompt or self._reads_question):
            return rollout.prompt
        if self._reads_question:
            return ""
        if self._trained_template is not None and question is not None:
            return self._trained_template.render(question)
        raise InputError(
            "the reward model reads the prompt as text, and the trainer passed a chat or no "
            "prompt. Name the prompt template with which the reward model was trained, e.g. "
            '`template="alpaca"`, and the column of the questions with `question_column`.',
            field="process.template",
            value=None,
        )

    def _aggregate_steps(self, scored: StepRewards) -> float | None:
        return aggregate_rewards(scored.rewards, self._aggregate) if scored.rewards else None


def process(
    prm: str | Path | Scorer,
    aggregate: str | None = None,
    per_step: bool = False,
    *,
    question_column: str | None = None,
    template: str | None = None,
    segmenter: str = "auto",
    engine: ScorerOptions | None = None,
) -> ProcessReward:
    """Return a reward function that scores the steps of each completion with a reward model.

    The reward is the aggregate of the step rewards. It is None for a completion without steps, or
    longer than the context of the reward model.

    The model is loaded once, at the first call, by the thread that calls first. Calls from several
    threads share batches.

    Args:
        prm: Process reward model: a directory, ``org/name[@revision]``, or a loaded scorer.
        aggregate: Name of the aggregate, such as ``min``, ``mean``, ``prod`` or ``last``. None
            takes the default of the reward model, which is ``min`` for a loaded scorer.
        per_step: Whether a call returns the list of step rewards instead of the aggregate. TRL's
            trainers cannot read such lists; :meth:`ProcessReward.score_steps` also has the steps.
        question_column: Name of the column with the questions, which published reward models read.
            None takes the last message of the user in a chat.
        template: Name of the prompt template of the reward model, which renders the question. None
            takes plain prompts as they are; a model that ``fsdpo-train prm`` wrote has its own.
        segmenter: Name of the segmenter that splits a completion into steps.
        engine: Options of the scorer, such as ``ScorerOptions(engine="vllm")``.

    Raises:
        InputError: if the model, the aggregate, the template or the segmenter does not exist.
        UnavailableError: if a library or the model is missing.
    """
    find_template: Callable[[str], Template] = get_template
    trained_template: Template | None = None
    reads_question = False
    default_name = DEFAULT_AGGREGATE
    if isinstance(prm, str | Path):
        options = engine or ScorerOptions()
        weights = resolve_prm(str(prm), options)
        scorer = SharedScorer(partial(load_scorer, weights, options))
        if trained_ref := find_trained_template_ref(weights):
            trained_template = add_chat_format(
                template_of_ref(trained_ref), weights.path, revision=weights.commit
            )
        find_template = partial(get_template, tokenizer_path=weights.path, revision=weights.commit)
        reads_question = needs_question(weights)
        default_name = model_aggregate(weights)
    elif engine is None:
        scorer = SharedScorer(partial(_return_scorer, prm))
    else:
        raise InputError(
            "a loaded scorer has its options already. Remove `engine`, or name the model.",
            field="process.engine",
            value=engine,
        )
    return ProcessReward(
        scorer,
        aggregate=check_aggregate(aggregate or default_name),
        per_step=per_step,
        question_column=question_column,
        template=find_template(template) if template else None,
        trained_template=trained_template,
        segmenter=segmenter_name(segmenter),
        reads_question=reads_question,
    )


def _return_scorer(scorer: Scorer) -> Scorer:
    """Return the scorer; a function of the module, so that it can be pickled."""
    return scorer
