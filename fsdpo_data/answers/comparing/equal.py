"""Whether two answers agree: equal text, then plain numbers, then all that can be read."""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice, product

from fsdpo_data.answers import Verdict, tree
from fsdpo_data.answers.budget import Budget, OutOfBudget, TooLarge
from fsdpo_data.answers.comparing.agree import within
from fsdpo_data.answers.comparing.compare import Comparison
from fsdpo_data.answers.comparing.numeric import symbols
from fsdpo_data.answers.lexicon.numbers import agree
from fsdpo_data.answers.lexicon.units import opposed
from fsdpo_data.answers.reading.answer import Answer, read_answer
from fsdpo_data.answers.reading.lex import Unreadable, spelling
from fsdpo_data.answers.reading.prose import UNDEFINED, plain_words, same_words, settled
from fsdpo_data.answers.reading.read import MAX_READ, read
from fsdpo_data.answers.tree import Items, Num, Quantity, Relation, Text, Value, is_node
from fsdpo_data.core.nouns import Outcome

#: Operations modulo a prime that one pair may take; about 30 ms.
BUDGET = 60_000


def equivalent(gold: Answer | str, answer: Answer | str, tolerance: float | None = None) -> Verdict:
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
    except (OutOfBudget, TooLarge):
        status, rule = "timed_out", "budget"
    return Verdict(status, right.text, rule, left.form, right.form)


def _quick(gold: Answer, answer: Answer, tolerance: float | None) -> Verdict | None:
    """Decide pairs of plain numbers."""
    left, right = gold.number, answer.number
    if not isinstance(left, Num) or not isinstance(right, Num):
        return None
    same = left is right or agree(left, right)
    if not same and tolerance is not None:
        same = within(left, right, Fraction(tolerance), Budget(BUDGET))
    if not same and "," in gold.text and "," in answer.text:
        return None  # "70,110" may be a list, but a list is no single number
    status: Outcome = "correct" if same else "incorrect"
    return Verdict(status, answer.text, "number", gold.form, answer.form)


def _compare(gold: Answer, answer: Answer, tolerance: float | None) -> tuple[bool, str]:
    are_text = isinstance(gold.value, Text), isinstance(answer.value, Text)
    if same_words(gold.plain, answer.plain, *are_text):
        return True, "words"
    if gold.value == answer.value == UNDEFINED:
        return True, "words"
    if gold.label and opposed(gold.label, answer.label):
        return False, "words"
    comparison = Comparison(Budget(BUDGET), tolerance)
    if are_text[0] and same_statement(gold.cleaned, answer.cleaned, comparison):
        return True, "words"
    if all(are_text):
        return same_spelling(gold.cleaned, answer.cleaned), "words"
    for left, right in _readings(gold, answer):
        if comparison.same(left, right):
            tier = comparison.budget.decided_by
            return True, rule_of(left) + (f"+{tier}" if tier else "")
    if _with_units(gold, answer, comparison):
        return True, "unit"
    if isinstance(gold.value, Num) and answer.with_decimal_comma is not None:
        return comparison.same(gold.value, answer.with_decimal_comma), "decimal-comma"
    return False, rule_of(gold.value)


def _readings(gold: Answer, answer: Answer) -> Iterator[tuple[Value, Value]]:
    """Yield the values of both sides, then what else their texts may mean."""
    yield gold.value, answer.value
    yield from islice(product(gold.alternatives, answer.alternatives), 1, None)


def _with_units(gold: Answer, answer: Answer, comparison: Comparison) -> bool:
    """Read letters as units where they cannot be variables.

    They cannot if the other side is a number without letters; a gold such as ``37/4 m`` is a
    quantity only for answers that spell out a unit.
    """
    left, right = gold.value, answer.value
    if isinstance(right, Relation):
        right = right.parts[-1]
    if _has_letters(right) and not _has_letters(left):
        return answer.measured != right and comparison.same(left, answer.measured)
    if isinstance(right, Quantity) and right.unit.dims and _has_letters(left):
        return gold.measured != left and comparison.same(gold.measured, right)
    return False


def same_spelling(gold: str, answer: str) -> bool:
    """Whether two cleaned texts that cannot be read are written with the same signs."""
    if max(len(gold), len(answer)) > MAX_READ:
        return False
    try:
        return spelling(gold) == spelling(answer)
    except Unreadable:
        return False


#: Words between formulas, not the letters of one.
_WORDS = re.compile(r"((?<![\\A-Za-z^_])(?!(?:and|or)\b)[A-Za-z]{2,}(?![A-Za-z^_={(]))")
_TEXT = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")


def same_statement(gold: str, answer: str, comparison: Comparison) -> bool:
    """Whether two cleaned texts of words and formulas say the same: "max at 1", "maximum at 1"."""
    said = [_WORDS.split(_TEXT.sub(r" \1 ", text[:MAX_READ])) for text in (gold, answer)]
    formulas = [[part.strip(" ,;.:") for part in parts[::2]] for parts in said]
    for parts, maths in zip(said, formulas, strict=True):
        parts[::2] = ["#" if part else "" for part in maths]
    counts = [parts.count("#") for parts in said]
    if not 0 < counts[0] == counts[1] or len(said[0]) < 2:
        return False
    words = [settled(plain_words(" ".join(parts))) for parts in said]
    if words[0] != words[1] or not any(map(str.isalpha, words[0])):
        return False
    values = ([read(part) for part in maths if part] for maths in formulas)
    return all(map(comparison.same, *values))


def is_words(answer: str) -> bool:
    """Whether ``answer`` is plain words, not a value that can be calculated with."""
    return isinstance(read_answer(answer).value, Text)


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
    return is_node(value) and bool(symbols(value))


def rule_of(gold: Value) -> str:
    """Name the comparison that a gold of this type asks for."""
    match gold:
        case Items():
            return {"": "list", "{}": "set"}.get(gold.brackets, "tuple")
        case Relation():
            return "equation" if gold.ops == ("=",) else "inequality"
    return _RULES.get(type(gold), "expression")


_RULES: dict[type, str] = {
    Num: "number", Quantity: "quantity", tree.Ratio: "ratio", tree.Based: "base",
    tree.Matrix: "matrix", tree.Member: "set", tree.Builder: "set", tree.Join: "set",
    tree.Moment: "time", Text: "words",
}  # fmt: skip
