"""Whether two answers agree: equal text, then plain numbers, then all that can be read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from fsdpo_data.answers import Verdict
from fsdpo_data.answers.budget import Budget, OutOfBudget, TooLarge
from fsdpo_data.answers.comparing.agree import within
from fsdpo_data.answers.comparing.compare import Comparison
from fsdpo_data.answers.comparing.numeric import symbols
from fsdpo_data.answers.lexicon.numbers import agree, read_number
from fsdpo_data.answers.memory import MAX_KEPT, remember
from fsdpo_data.answers.reading.clean import MAX_LENGTH, clean
from fsdpo_data.answers.reading.lex import Unreadable, spelling
from fsdpo_data.answers.reading.prose import UNDEFINED, same_words
from fsdpo_data.answers.reading.read import MAX_READ, alternatives, read
from fsdpo_data.answers.show import show
from fsdpo_data.answers.tree import (
    Based,
    Builder,
    Items,
    Join,
    Matrix,
    Member,
    Moment,
    Num,
    Quantity,
    Ratio,
    Relation,
    Text,
    Value,
    is_node,
)
from fsdpo_data.core.nouns import Outcome

#: Operations modulo a prime that one pair may take; about 30 ms.
BUDGET = 60_000


@dataclass(frozen=True, slots=True)
class Options:
    """How answers are compared.

    Attributes:
        tolerance: None for strict comparison. Otherwise a prediction also agrees with a number
            if it rounds to it at the gold's digits or has at most this relative error.
    """

    tolerance: float | None = None


STRICT = Options()


def equivalent(gold: str, answer: str, options: Options = STRICT) -> Verdict:
    """Compare two bare answers; never raises on text."""
    if not gold.strip():
        return Verdict("gold_unparsed", answer, "empty-gold")
    if not answer.strip():
        return Verdict("no_answer", answer, "empty-answer")
    quick = _quick(gold, answer, options)
    if quick is not None:
        return quick
    key = canonical(gold)
    if key == canonical(answer):
        return Verdict("correct", answer, "text", key, key)
    left, right = Side(gold, read(gold)), Side(answer, read(answer))
    try:
        same, rule = _compare(left, right, options)
        status: Outcome = "correct" if same else "incorrect"
    except (OutOfBudget, TooLarge):
        status, rule = "timed_out", "budget"
    return Verdict(status, answer, rule, left.form(), right.form())


def _quick(gold: str, answer: str, options: Options) -> Verdict | None:
    """Decide pairs of plain numbers."""
    left, right = _number(gold), _number(answer)
    if not isinstance(left, Num) or not isinstance(right, Num):
        return None
    same = agree(left, right)
    if not same and options.tolerance is not None:
        same = within(left, right, Fraction(options.tolerance), Budget(BUDGET))
    if not same and "," in gold and "," in answer:
        return None  # "70,110" may be a list, but a list is no single number
    return Verdict("correct" if same else "incorrect", answer, "number", show(left), show(right))


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: a text and how it was read."""

    text: str
    value: Value

    def form(self) -> str:
        """Return the normal form: how the text was read."""
        return show(self.value) if len(self.text) > MAX_KEPT else _form(self.text)


@remember(8_192)
def _form(text: str) -> str:
    return show(read(text))


@remember(32_768)
def _number(text: str) -> Num | Quantity | None:
    return read_number(text)


_SPACE = re.compile(r"(?<=[A-Za-z0-9.])\s+(?=[A-Za-z0-9.])|\s+|\\[!]|\\(?:left|right)(?![A-Za-z])")


@remember(8_192)
def canonical(answer: str) -> str:
    """Return a key that only equivalent answers share."""
    if len(answer) > MAX_LENGTH:
        return answer
    number = _number(answer)
    if isinstance(number, Num):
        return f"{number.value.numerator:x}/{number.value.denominator:x}"
    text = clean(answer).replace("dfrac", "frac").replace("tfrac", "frac")
    return _SPACE.sub(lambda gap: " " if gap.group().isspace() and _between(gap) else "", text)


def _between(gap: re.Match[str]) -> bool:
    """Whether a gap keeps two words or numbers apart."""
    before, after = gap.string[: gap.start()][-1:], gap.string[gap.end() :][:1]
    return before.isalnum() and after.isalnum()


def _compare(gold: Side, answer: Side, options: Options) -> tuple[bool, str]:
    are_text = isinstance(gold.value, Text), isinstance(answer.value, Text)
    if same_words(gold.text, answer.text, *are_text):
        return True, "words"
    if gold.value == answer.value == UNDEFINED:
        return True, "words"
    if all(are_text):
        return same_spelling(gold.text, answer.text), "words"
    comparison = Comparison(Budget(BUDGET), options.tolerance)
    for left in alternatives(gold.text, gold.value):
        for right in alternatives(answer.text, answer.value):
            if comparison.same(left, right):
                return True, rule_of(left)
    if _with_units(gold, answer, comparison):
        return True, "unit"
    return False, rule_of(gold.value)


def _with_units(gold: Side, answer: Side, comparison: Comparison) -> bool:
    """Read letters as units where they cannot be variables.

    They cannot if the other side is a number without letters; a gold such as ``37/4 m`` is a
    quantity only for answers that spell out a unit.
    """
    left, right = gold.value, answer.value
    if _has_letters(right) and not _has_letters(left):
        measured = read(answer.text, letter_units=True)
        return measured != right and comparison.same(left, measured)
    if _has_letters(left) and isinstance(right, Quantity) and right.unit.dims:
        measured = read(gold.text, letter_units=True)
        return measured != left and comparison.same(measured, right)
    return False


def same_spelling(gold: str, answer: str) -> bool:
    """Whether two texts that cannot be read are written with the same signs."""
    if max(len(gold), len(answer)) > MAX_READ:
        return False
    try:
        return spelling(clean(gold)) == spelling(clean(answer))
    except Unreadable:
        return False


def is_words(answer: str) -> bool:
    """Whether ``answer`` is plain words, not a value that can be calculated with."""
    return isinstance(read(answer), Text)


def _has_letters(value: Value) -> bool:
    match value:
        case Quantity():
            return bool(symbols(value.node))
        case Items():
            return any(map(_has_letters, value.items))
        case Relation():
            return _has_letters(value.parts[-1])
        case Text():
            return True
    return is_node(value) and bool(symbols(value))  # type: ignore[arg-type]


def rule_of(gold: Value) -> str:
    """Name the comparison that a gold of this type asks for."""
    match gold:
        case Num():
            return "number"
        case Items():
            return {"": "list", "{}": "set"}.get(gold.brackets, "tuple")
        case Relation():
            return "equation" if gold.ops == ("=",) else "inequality"
    for kinds, name in _RULES:
        if isinstance(gold, kinds):
            return name
    return "expression"


_RULES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (Quantity, "quantity"),
    (Ratio, "ratio"),
    (Based, "base"),
    (Matrix, "matrix"),
    ((Member, Builder, Join), "set"),
    (Moment, "time"),
    (Text, "words"),
)
