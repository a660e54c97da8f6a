"""Formats of published process reward models; the formats are data, and one scorer reads them all.

Every publisher has a prompt, a step token, a score position and an activation. The rewards of one
model under two PRM formats are not comparable. Every manifest with rewards therefore contains the
name and the digest of the format.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.file_model import FileModel
from fsdpo_data.core.identity import EngineRef, ModelRef, digest
from fsdpo_data.core.options import Option
from fsdpo_data.core.placeholders import fill_text
from fsdpo_data.engines.model_formats import FormatTable, ModelFormat
from fsdpo_data.engines.options import IMPLICIT_REWARD_BETA
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.engines.scorers.trained_prm import TrainedPrm
from fsdpo_data.models.resolve import ResolvedWeights
from fsdpo_data.steps.rewards import AGGREGATES, DEFAULT_AGGREGATE, default_aggregate

#: The meaning of the rewards, by activation.
REWARD_MEANINGS = {
    "softmax": "probability",
    "sigmoid": "probability",
    "difference": "difference of two probabilities",
    "value": "value of any size",
    "log-ratio": "log-ratio of two policies",
    "log-ratio-so-far": "log-ratio of two policies up to the step's end",
}
#: A step that has a number of its own. "### Step 2:" and "**Step 2**" are Markdown, not numbers.
_STEP_NUMBER = re.compile(r"\s*step\s*\d", re.I)
#: The numbers that the code of PQM and ThinkPRM removes before it numbers the steps.
_REMOVED_NUMBER = re.compile(r"Step \d+:", re.A)
#: The characters that ``strip`` removes; None for all white space.
_STRIPPED_CHARACTERS = {"newlines": "\r\n", "space": None, "nothing": ""}
#: The fields that only detect a format; they do not change its rewards.
_DETECTION_FIELDS = (
    "name",
    "models",
    "architectures",
    "head_tensors",
    "token_labels",
    "is_for_policies",
)


class PrmFormatRef(FileModel):
    """A reference to a :class:`PrmFormat`."""

    name: str  #: Name of the PRM format.
    digest: str  #: Digest of its definition.
    meaning: str  #: Meaning of the step rewards, such as ``probability``.


#: The format of recorded step scores that are no probabilities.
RECORDED_VALUES = PrmFormatRef(
    name="recorded", digest=digest("recorded"), meaning=REWARD_MEANINGS["value"]
)


class ScoreSettings(FileModel):
    """Everything that determines the step rewards of a reward model."""

    prm: ModelRef  #: The reward model.
    engine: EngineRef  #: The engine that ran the reward model.
    #: The format of a published PRM; None for a reward model of ``fsdpo-train prm``.
    prm_format: PrmFormatRef | None = None
    reference: ModelRef | None = None  #: The reference model of implicit rewards.
    last_step_only: bool = False  #: Whether the reward model was trained on last steps only.


class PrmFormat(ModelFormat):
    """The prompt, the score positions and the activation of a published reward model or judge."""

    layout: Literal["text", "chat", "turns"] = "text"
    """``text``: no chat template. ``chat``: the steps are one turn of the assistant. ``turns``:
    each step is a turn of the user, and its step token is the answer of the assistant.
    """
    tokenize_separately: bool = False
    """Whether the prompt, each step and each step token are tokenized separately."""
    system: str | None = None
    """System message of the chat; None for the default of the chat template."""
    prompt: str = "{question}"
    """The text before the first step. ``{question}`` is the question, ``{prompt}`` the prompt of
    the policy, and ``{bos}`` the beginning-of-sequence token, if the tokenizer has one. For a judge
    the complete instruction, with ``{steps}``.
    """
    bos: bool = True
    """Whether the beginning-of-sequence token of the tokenizer comes before the text."""
    step: str = "{step}"
    """Text of a step, with its number ``{k}`` from 1, or ``{i}`` from 0."""
    own_number: Literal["keep", "replace", "remove"] = "keep"
    """What ``{k}`` does with a number in the step itself. ``keep``: a step that starts with "Step"
    and a number stays as it is. ``replace``: "Step 2:" at the start is removed. ``remove``: "Step
    2:" is removed everywhere in the step.
    """
    strip: Literal["newlines", "space", "nothing"] = "newlines"
    """The characters that are removed at both ends of a step: line ends, white space, or nothing.
    """
    mark_each_line: bool = False
    """Whether a step token follows each line of a step; the reward of the last line counts."""
    step_token: str = ""
    """The text after each step, usually one special token."""
    separator: str = ""
    """The text between a step token and the next step."""
    read_at: Literal["step_token", "step", "index", "verdicts"] = "step_token"
    """The part of the text that ends near the score position: the step token or the step. For a
    judge: ``index`` if its last box has the index of the first wrong step, from 0, or -1;
    ``verdicts`` if it writes one box per step, *correct* or *incorrect*.
    """
    token_offset: int = 0
    """The score position minus the position of the last token of that part; -1 is the token before
    the last one.
    """
    head: str = "score"
    """Name of the head's weights in the checkpoint. ``vocabulary``: the logits of ``label_tokens``
    in the language model head, or the mean of all logits without label tokens. ``none``: the model
    is a policy, and its rewards are implicit.
    """
    label_tokens: Sequence[str] = ()
    """The tokens whose logits are the classes."""
    activation: Literal[
        "softmax", "sigmoid", "difference", "value", "log-ratio", "log-ratio-so-far"
    ] = "softmax"
    """The function from logits to a reward. ``softmax``: sum of the positive classes. ``sigmoid``:
    sigmoid of each output, averaged over the outputs of an ensemble. ``difference``: probability of
    the positive classes minus the others. ``value``: no function. With a reference: ``log-ratio``
    of the step, or ``log-ratio-so-far`` of all tokens up to the end of the step.
    """
    positive: Sequence[int] = (1,)
    """The indices of the classes that count as right; their values are summed."""
    aggregate: Annotated[str, Option(choices=AGGREGATES)] = DEFAULT_AGGREGATE
    """The default aggregate of step rewards for decoders that choose among samples."""
    beta: Annotated[float, Field(gt=0)] = IMPLICIT_REWARD_BETA
    """The factor β of log-ratios."""
    reference: str = ""
    """The default reference model of log-ratios; empty if the user must name one."""
    template: str = "chat"
    """Name of the prompt template of a judge."""
    reply_prefix: str = ""
    """The text with which each critique of a judge starts."""
    stop: Sequence[str] = ()
    """The strings that end a critique."""
    votes: Annotated[int, Field(ge=1)] = 1
    """Default number of critiques per solution."""
    counting: Literal["share", "majority"] = "share"
    """The reward of a judge. ``share``: the fraction of critiques without an error up to the step.
    ``majority``: 1 before the step that most critiques name as the first wrong one, else 0.
    """
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Sampling temperature of several critiques; a single critique is greedy."""
    top_p: float = 1.0
    """Nucleus sampling probability of several critiques."""
    max_tokens: Annotated[int, Field(ge=1)] = 8192
    """Maximum number of tokens of a critique."""
    unsupported_reason: str = ""
    """The reason why matching models are refused; empty for supported formats."""
    architectures: Sequence[str] = ()
    """The architectures with this format; an architecture in several formats selects none of them.
    """
    head_tensors: Sequence[str] = ()
    """Names of weights that show this format; weights in several formats select none of them."""
    token_labels: int = 0
    """Number of labels of the checkpoints for token classification with this format; 0 for none."""
    is_for_policies: bool = False
    """Whether models with a reference model have this format, unless their name is in another one.
    """

    fields_without_effect: ClassVar[Collection[str]] = (*_DETECTION_FIELDS, "aggregate")

    @property
    def meaning(self) -> str:
        """The meaning of the rewards."""
        return REWARD_MEANINGS[self.activation]

    @property
    def is_probability(self) -> bool:
        """Whether the rewards are probabilities."""
        return self.meaning == "probability"

    @property
    def has_own_prompt(self) -> bool:
        """Whether the format has a prompt with the question, instead of the policy's prompt."""
        return "{prompt}" not in self.prompt

    @property
    def has_policy_tokens(self) -> bool:
        """Whether the token ids are those of the policy: its prompt, and the steps as sampled."""
        text = (self.layout, self.prompt, self.step, self.step_token, self.separator)
        return self.head == "none" and text == ("text", "{prompt}", "{step}", "", "")

    @property
    def is_judge(self) -> bool:
        """Whether the model is a judge.

        Its reward of a step is the fraction of critiques without an error up to the step.
        """
        return self.read_at in ("index", "verdicts")

    def question_text(self, item: ScorerInput) -> str:
        """Return the question for the prompt.

        Raises:
            InputError: if the prompt contains the question and the item has none.
        """
        if item.question is None and "{question}" in self.prompt:
            raise InputError(
                f"the PRM format {self.name} needs the question. Give `question` besides the "
                "prompt.",
                field="ScorerInput.question",
            )
        question = item.question or ""
        return question.strip() if self.strip == "space" else question

    def format_step(self, number: int, step: str) -> str:
        """Return the text of a step in the prompt; ``number`` starts at 1."""
        text = step.strip(_STRIPPED_CHARACTERS[self.strip])
        if "{k}" in self.step:
            if self.own_number == "remove":
                text = _REMOVED_NUMBER.sub("", text).strip()
            elif self.own_number == "replace" and (match := _REMOVED_NUMBER.match(text)):
                text = text[match.end() :].strip()
            elif self.own_number == "keep" and _STEP_NUMBER.match(text):
                return text
        return fill_text(self.step, {"k": str(number), "i": str(number - 1), "step": text})

    @property
    def ref(self) -> PrmFormatRef:
        """The name, the digest and the meaning of the rewards, as files name the format."""
        return PrmFormatRef(name=self.name, digest=self.digest, meaning=self.meaning)


#: All formats by name.
PRM_FORMATS = FormatTable(
    __file__,
    PrmFormat,
    title="PRM format",
    field="prm_format",
    not_inherited=_DETECTION_FIELDS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPrm(ResolvedWeights):
    """The resolved weights of a published reward model, and its format."""

    prm_format: PrmFormat  #: The format of the model.
    #: How the format was recognised, such as ``architecture Qwen2ForEnsemblePRM``.
    format_evidence: str = ""
    #: The reference model of implicit rewards; None for other models.
    reference: ResolvedWeights | None = None


def model_aggregate(weights: ResolvedWeights) -> str:
    """Return the default aggregate of decoders that choose by a reward model."""
    return default_aggregate(
        is_outcome_model=isinstance(weights, TrainedPrm) and weights.last_step_only,
        format_aggregate=weights.prm_format.aggregate
        if isinstance(weights, PublishedPrm)
        else None,
    )


def needs_question(weights: ResolvedWeights) -> bool:
    """Return whether a reward model reads the question instead of the policy's prompt."""
    return isinstance(weights, PublishedPrm) and weights.prm_format.has_own_prompt
