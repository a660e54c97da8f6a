"""Conventions of published process reward models: data, read by one scorer.

Every publisher has a prompt, a mark behind each step, a place where the model is read and a number
that it means. Scores made under two conventions are not comparable, though the weights be the same,
so a convention has a name and a digest, and both go wherever its rewards go.
"""

import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, Literal

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import digest
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.toml_tables import TomlTable, read_toml
from fsdpo_data.engines.scorers import ScorerInput
from fsdpo_data.models.resolve import ResolvedWeights

#: What the number of each link means.
REWARD_MEANINGS = {
    "softmax": "probability",
    "sigmoid": "probability",
    "difference": "difference of two probabilities",
    "value": "value of any size",
    "log-ratio": "log-ratio of two policies",
    "log-ratio-so-far": "log-ratio of two policies up to the step's end",
}
_NUMBERED = re.compile(r"\W*step\s+\d", re.I)
_FIELD = re.compile(r"\{(question|prompt|bos|steps|step|k|i)\}")
_STRIPPED = {"newlines": "\r\n", "space": None, "nothing": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrmFormat(Options):
    """How a reward model is asked, where it is read, and what the number is."""

    name: str  #: Its row in the table, or the file it is read from.
    #: ``chat``: the steps are the assistant's turn; ``turns``: every step is a turn of the user,
    #: its mark the assistant's.
    layout: Literal["text", "chat", "turns"] = "text"
    #: Whether prompt, steps and marks are tokenised each by itself; else all together.
    tokenize_separately: bool = False
    system: str | None = None  #: System message of the chat; None leaves it to the chat template.
    #: What comes before the first step: ``{question}``, ``{prompt}`` (the policy's), ``{bos}`` (the
    #: token, where the tokenizer has one); of a critique all of it, with ``{steps}``.
    prompt: str = "{question}"
    bos: bool = True  #: Whether the tokenizer's own beginning comes before the text.
    #: How step number ``{k}``, from 0 ``{i}``, is written; one that begins with a number has it.
    step: str = "{step}"
    #: What steps lose at both ends: their line ends, all white space, or nothing.
    strip: Literal["newlines", "space", "nothing"] = "newlines"
    #: Whether each line of a step is marked as if it were one; the last one is read.
    mark_each_line: bool = False
    step_token: str = ""  #: What follows each step.
    separator: str = ""  #: What stands between a mark and the next step.
    #: What is read at its last token. Of critiques, which a judge writes: the last box, the
    #: ``index`` of the first wrong step or -1; or ``verdicts``, correct or incorrect in boxes.
    read_at: Literal["step_token", "step", "index", "verdicts"] = "step_token"
    token_offset: int = 0  #: Tokens from there to where the vendor's code reads.
    #: Name of the head's weights in the checkpoint. ``vocabulary``: the rows of ``words``, or the
    #: mean of all rows without any; ``none``: the model is a policy, held against a reference.
    head: str = "score"
    label_tokens: Sequence[str] = ()  #: Tokens whose logits are read.
    #: From logits to the number: ``softmax`` over them, ``sigmoid``, each class against its
    #: opposite (``difference``), none (``value``); with a reference ``log-ratio`` of the step, or
    #: of all up to its end (``log-ratio-so-far``).
    activation: Literal[
        "softmax", "sigmoid", "difference", "value", "log-ratio", "log-ratio-so-far"
    ] = "softmax"
    positive: Sequence[int] = (1,)  #: The classes that are summed.
    beta: Annotated[float, Option(exclusive_min=0)] = 0.05  #: What log-ratios are multiplied by.
    reference: str = ""  #: Model that they are held against, where none is given.
    template: str = "chat"  #: How a model is asked for a critique.
    reply_prefix: str = ""  #: What a critique begins with.
    stop: Sequence[str] = ()  #: What ends one.
    votes: Annotated[int, Option(min=1)] = 1  #: Critiques of a solution, where nobody says it.
    temperature: Annotated[float, Option(min=0)] = 1.0  #: Of more than one; one is greedy.
    top_p: float = 1.0
    max_tokens: Annotated[int, Option(min=1)] = 8192
    unsupported_reason: str = ""  #: Why a model is not run that is recognised.
    #: Repositories, ``*`` for any characters, that are recognised by their name.
    models: Sequence[str] = ()
    architectures: Sequence[str] = ()  #: Recognised, where no other convention has them.

    @property
    def meaning(self) -> str:
        """Say what the number is."""
        return REWARD_MEANINGS[self.activation]

    @property
    def is_probability(self) -> bool:
        """Whether the number is one."""
        return self.meaning == "probability"

    @property
    def has_own_prompt(self) -> bool:
        """Whether the question is put in words of its own, and no prompt of the policy's."""
        return "{prompt}" not in self.prompt

    @property
    def is_judge(self) -> bool:
        """Whether it is sampled: a reward is the share of its critiques that find no error."""
        return self.read_at in ("index", "verdicts")

    def question_text(self, item: ScorerInput) -> str:
        """Return the question as it is put; InputError if it is wanted and not known."""
        if item.question is None and "{question}" in self.prompt:
            raise InputError(
                f"{self.name} is asked with the question: expected it beside the prompt.",
                field="ScorerInput.question",
            )
        question = item.question or ""
        return question.strip() if self.strip == "space" else question

    def format_step(self, k: int, step: str) -> str:
        """Return how step number ``k``, from 1, stands in the text."""
        text = step.strip(_STRIPPED[self.strip])
        if _NUMBERED.match(text) and "{k}" in self.step:
            return text
        return fill_fields(self.step, k=str(k), i=str(k - 1), step=text)

    def manifest_entry(self) -> dict[str, str]:
        """Return what a manifest says of it.

        Its digest is over what differs from the defaults, how it is recognised left out.
        """
        fields = {each.name: each.default for each in dataclasses.fields(self)}
        told = {name: getattr(self, name) for name in fields if name not in _RECOGNISED}
        how = {name: value for name, value in told.items() if value != fields[name]}
        return {"name": self.name, "digest": digest(how), "meaning": self.meaning}


def fill_fields(text: str, **values: str) -> str:
    """Fill in the fields of a convention's text."""
    # One pass over the text and none over what is put in.
    return _FIELD.sub(lambda field: values.get(field[1], field[0]), text)


_RECOGNISED = ("name", "models", "architectures")


def _row(name: str, based_on: str = "", **told: Any) -> PrmFormat:
    """Make a convention of its row; one that is ``based_on`` another says what differs."""
    fields = {**told, "name": name}
    while based_on:
        base = read_toml(__file__)[based_on]
        fields = {key: base[key] for key in base if key not in _RECOGNISED} | fields
        based_on = fields.pop("based_on", "")
    known = {each.name for each in dataclasses.fields(PrmFormat)}
    if unknown := sorted(fields.keys() - known):
        raise InputError(
            f"{name} has {', '.join(unknown)}. A convention has {', '.join(sorted(known))}, and "
            "may be like another.",
            field="prm_format",
        )
    return PrmFormat(**fields)


PRM_FORMATS: TomlTable[PrmFormat] = TomlTable(__file__, _row)  #: By name.


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPrm(ResolvedWeights):
    """A reward model that is pinned down, and how to ask it."""

    prm_format: PrmFormat
    reference: ResolvedWeights | None = None  #: What log-ratios are held against.


def get_prm_format(name: str) -> PrmFormat:
    """Return the convention of that name, or that a TOML file of one's own says.

    Raises:
        InputError: if there is none, or the file is not one.
    """
    if name in PRM_FORMATS:
        return PRM_FORMATS[name]
    file = Path(name)
    if file.suffix != ".toml":
        raise InputError(
            f"expected one of {', '.join(PRM_FORMATS)}, or a .toml file of your own.",
            field="prm_format",
            value=name,
        )
    try:
        return _row(file.name, **tomllib.loads(file.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError, TypeError, KeyError) as error:
        raise InputError(f"it cannot be read: {error}.", field="prm_format", value=name) from error


def detect_format(weights: ResolvedWeights, config: Any) -> PrmFormat | None:
    """Return the convention that name or architecture of a checkpoint tell; None for our own kind.

    Raises:
        InputError: if there is none, or more than one.
    """
    if named := format_by_name(weights, config):
        return named
    kinds = config.architectures
    kind = str(kinds[0]) if isinstance(kinds, list) and kinds else "of no architecture"
    rows = PRM_FORMATS.values()
    classifier = kind.endswith("ForTokenClassification")
    if classifier and config.num_labels in (1, 2):
        return PRM_FORMATS["trl"] if config.num_labels == 2 else None
    found = [each for each in rows if kind in each.architectures]
    if len(found) == 1:
        return found[0]
    choices = ", ".join(each.name for each in found or rows)
    labels = f" with {config.num_labels} labels" if classifier else ""
    raise InputError(
        f"it is {kind}{labels}. Expected …ForTokenClassification with one, as `fsdpo-train prm` "
        f"writes it, or one that others published: say by `prm_format` which of {choices}.",
        field="prm",
        value=weights.path,
    )


def format_by_name(weights: ResolvedWeights, config: Any) -> PrmFormat | None:
    """Return the convention that the name of a checkpoint tells; None if it tells none."""
    names = {weights.ref.name, str(getattr(config, "_name_or_path", ""))}
    rows = PRM_FORMATS.values()
    return next((row for row in rows if any(_has_name(row, name) for name in names)), None)


def _has_name(convention: PrmFormat, name: str) -> bool:
    """Whether a repository, or the folder it was copied to, has a name of the convention's."""
    own = name.lower().rpartition("/")
    patterns = [each.lower().rpartition("/") for each in convention.models]
    return any(
        fnmatch(own[2], each[2]) and (not own[1] or fnmatch(own[0], each[0])) for each in patterns
    )


def format_entry(weights: ResolvedWeights) -> Mapping[str, Any]:
    """Return what specs say of how a reward model is asked; nothing of our own kind."""
    if not isinstance(weights, PublishedPrm):
        return {}
    told: dict[str, Any] = {"prm_format": weights.prm_format.manifest_entry()}
    return told | ({"reference": asdict(weights.reference.ref)} if weights.reference else {})
