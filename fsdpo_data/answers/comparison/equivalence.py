"""Whether two answers agree: equal text, then plain numbers, then all that can be read."""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice, product

from fsdpo_data.answers import Verdict, tree
from fsdpo_data.answers.budget import Budget, BudgetExceededError, NumberTooLargeError
from fsdpo_data.answers.comparison.expressions import within_tolerance
from fsdpo_data.answers.comparison.numeric import symbols
from fsdpo_data.answers.comparison.values import AnswerComparer
from fsdpo_data.answers.lexicon.numbers import numbers_agree
from fsdpo_data.answers.lexicon.units import are_opposites
from fsdpo_data.answers.parsing.answer import ParsedAnswer, read_answer
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError, token_texts
from fsdpo_data.answers.parsing.prose import UNDEFINED, normalize_words, plain_words, same_words
from fsdpo_data.answers.parsing.read import MAX_READ, read
from fsdpo_data.answers.tree import Num, Quantity, Relation, Value, ValueList, Words, is_node
from fsdpo_data.core.entities import Outcome

#: Operations modulo a prime that one pair may take; about 30 ms.
BUDGET = 60_000


def compare_answers(
    gold: ParsedAnswer | str, answer: ParsedAnswer | str, tolerance: float | None = None
) -> Verdict:
    """Compare two bare answers; never raises on text.

    With a ``tolerance``, a prediction also agrees with a number if it rounds to it at the digits
    that the gold shows, or has at most this relative error; 0 allows for digits only.
    """
    left = read_answer(gold) if isinstance(gold, str) else gold
    right = read_answer(answer) if isinstance(answer, str) else answer
    if not left.text.strip():
        return Verdict("gold_unparsed", right.text, "empty-gold")
    if not right.text.strip():
        return Verdict("no_answer", right.text, "empty-answer")
    quick = _quick(left, right, tolerance)
    if quick is not None:
        return quick
    if left.key == right.key:
        return Verdict("correct", right.text, "text", left.key, left.key)
    try:
        same, rule = _compare(left, right, tolerance)
        status: Outcome = "correct" if same else "incorrect"
    except (BudgetExceededError, NumberTooLargeError):
        status, rule = "timed_out", "budget"
    return Verdict(status, right.text, rule, left.form, right.form)


def _quick(gold: ParsedAnswer, answer: ParsedAnswer, tolerance: float | None) -> Verdict | None:
    """Decide pairs of plain numbers."""
    left, right = gold.number, answer.number
    if not isinstance(left, Num) or not isinstance(right, Num):
        return None
    same = left is right or numbers_agree(left, right)
    if not same and tolerance is not None:
        same = within_tolerance(left, right, Fraction(tolerance), Budget(BUDGET))
    if not same and "," in gold.text and "," in answer.text:
        return None  # "70,110" may be a list, but a list is no single number
    status: Outcome = "correct" if same else "incorrect"
    return Verdict(status, answer.text, "number", gold.form, answer.form)


def _compare(gold: ParsedAnswer, answer: ParsedAnswer, tolerance: float | None) -> tuple[bool, str]:
    are_text = isinstance(gold.value, Words), isinstance(answer.value, Words)
    if same_words(gold.plain, answer.plain, *are_text):
        return True, "words"
    if gold.value == answer.value == UNDEFINED:
        return True, "words"
    if gold.label and are_opposites(gold.label, answer.label):
        return False, "words"
    comparison = AnswerComparer(Budget(BUDGET), tolerance)
    if are_text[0] and same_statement(gold.cleaned, answer.cleaned, comparison):
        return True, "words"
    if all(are_text):
        return same_spelling(gold.cleaned, answer.cleaned), "words"
    for left, right in _readings(gold, answer):
        if comparison.same(left, right):
            tier = comparison.budget.decided_by
            return True, comparison_rule(left) + (f"+{tier}" if tier else "")
    if _with_units(gold, answer, comparison):
        return True, "unit"
    if isinstance(gold.value, Num) and answer.with_decimal_comma is not None:
        return comparison.same(gold.value, answer.with_decimal_comma), "decimal-comma"
    return False, comparison_rule(gold.value)


def _readings(gold: ParsedAnswer, answer: ParsedAnswer) -> Iterator[tuple[Value, Value]]:
    """Yield the values of both sides, then what else their texts may mean."""
    yield gold.value, answer.value
    yield from islice(product(gold.alternatives, answer.alternatives), 1, None)


def _with_units(gold: ParsedAnswer, answer: ParsedAnswer, comparison: AnswerComparer) -> bool:
    """Read letters as units where they cannot be variables.

    They cannot if the other side is a number without letters; a gold such as ``37/4 m`` is a
    quantity only for answers that spell out a unit.
    """
    left, right = gold.value, answer.value
    if isinstance(right, Relation):
        right = right.parts[-1]
    if _has_letters(right) and not _has_letters(left):
        return answer.with_letter_units != right and comparison.same(left, answer.with_letter_units)
    if isinstance(right, Quantity) and right.unit.dims and _has_letters(left):
        return gold.with_letter_units != left and comparison.same(gold.with_letter_units, right)
    return False


def same_spelling(gold: str, answer: str) -> bool:
    """Whether two cleaned texts that cannot be read are written with the same signs."""
    if max(len(gold), len(answer)) > MAX_READ:
        return False
    try:
        return token_texts(gold) == token_texts(answer)
    except UnparsableAnswerError:
        return False


#: Words between formulas, not the letters of one.
_WORDS = re.compile(r"((?<![\\A-Za-z^_])(?!(?:and|or)\b)[A-Za-z]{2,}(?![A-Za-z^_={(]))")
_TEXT = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")


def same_statement(gold: str, answer: str, comparison: AnswerComparer) -> bool:
    """Whether two cleaned texts of words and formulas say the same: "max at 1", "maximum at 1"."""
    said = [_WORDS.split(_TEXT.sub(r" \1 ", text[:MAX_READ])) for text in (gold, answer)]
    formulas = [[part.strip(" ,;.:") for part in parts[::2]] for parts in said]
    for parts, maths in zip(said, formulas, strict=True):
        parts[::2] = ["#" if part else "" for part in maths]
    counts = [parts.count("#") for parts in said]
    if not 0 < counts[0] == counts[1] or len(said[0]) < 2:
        return False
    words = [normalize_words(plain_words(" ".join(parts))) for parts in said]
    if words[0] != words[1] or not any(map(str.isalpha, words[0])):
        return False
    values = ([read(part) for part in maths if part] for maths in formulas)
    return all(map(comparison.same, *values))


def is_words(answer: str) -> bool:
    """Whether ``answer`` is plain words, not a value that can be calculated with."""
    return isinstance(read_answer(answer).value, Words)


def _has_letters(value: Value) -> bool:
    match value:
        case Quantity():
            return bool(symbols(value.node))
        case ValueList():
            return any(map(_has_letters, value.items))
        case Relation():
            return _has_letters(value.parts[-1])
        case Words():
            return True
    return is_node(value) and bool(symbols(value))


def comparison_rule(gold: Value) -> str:
    """Name the comparison that a gold of this type asks for."""
    match gold:
        case ValueList():
            return {"": "list", "{}": "set"}.get(gold.brackets, "tuple")
        case Relation():
            return "equation" if gold.ops == ("=",) else "inequality"
    return _RULES.get(type(gold), "expression")


_RULES: dict[type, str] = {
    Num: "number", Quantity: "quantity", tree.Ratio: "ratio", tree.NumberInBase: "base",
    tree.Matrix: "matrix", tree.SetMembership: "set", tree.SetBuilder: "set", tree.Connective: "set",
    tree.DateOrTime: "time", Words: "words",
}  # fmt: skip
