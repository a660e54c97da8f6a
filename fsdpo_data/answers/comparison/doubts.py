"""Doubts about two answers whose values differ: another meaning of a notation makes them equal."""

from collections.abc import Callable
from fractions import Fraction

from fsdpo_data.answers.comparison.symbols import all_names
from fsdpo_data.answers.comparison.values import AnswerComparer
from fsdpo_data.answers.parsing.read import ParsedAnswer, read
from fsdpo_data.answers.tables import compile_patterns, read_module_table
from fsdpo_data.answers.tree import (
    DateOrTime,
    Num,
    NumberInBase,
    Quantity,
    Relation,
    Value,
    ValueList,
    Words,
)

_TABLE = read_module_table(__file__)
_PATTERNS = compile_patterns(_TABLE["patterns"])
_SCALES: dict[str, int] = _TABLE["scales"]
#: ``1/2x`` as a fraction with the letter in its denominator.
_CLOSED_FRACTION = r"\\frac{\1}{\2\3}"
#: A function that returns another meaning of an answer to a gold, or None.
OtherMeaning = Callable[[ParsedAnswer, ParsedAnswer], Value | None]


def find_doubt(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> str:
    """Return the side whose other meaning makes both sides equal, or ""."""
    for other_meaning in _OTHER_MEANINGS:
        meaning = other_meaning(gold, answer)
        if meaning is not None and comparer.is_equal(gold.value, meaning):
            return f"the answer: “{answer.plain}”"
    decimal = gold.with_decimal_comma  # a gold such as 0,75 may be a list or a decimal
    if decimal is not None and isinstance(answer.value, Num | Quantity):
        return f"the gold: “{gold.plain}”" if comparer.is_equal(decimal, answer.value) else ""
    return ""


def _product(gold: ParsedAnswer, answer: ParsedAnswer) -> Value | None:
    """Return the product that a recurring decimal, 0.5(4), may be."""
    match = _PATTERNS["recurring"].search(answer.plain)
    return read(f"{match['number']} \\cdot {match['cycle']}") if match else None


def _limit(gold: ParsedAnswer, answer: ParsedAnswer) -> Value | None:
    r"""Return the limit of a sequence or a variable, ``x_n \to 0``."""
    match answer.value:
        case Relation((*_, limit), ("->",)):
            return limit
    return None


def _scaled_number(gold: ParsedAnswer, answer: ParsedAnswer) -> Value | None:
    """Return the number of thousands or lakhs that 12k or 12,00,000 may be."""
    match = _PATTERNS["scaled"].fullmatch(answer.plain)
    if match is None:
        return None
    size = _SCALES.get((match["scale"] or "").lower(), 1)
    return read(f"{match['number'].replace(',', '')} \\cdot {size}")


def _hours(gold: ParsedAnswer, answer: ParsedAnswer) -> Value | None:
    """Return the number of hours that a clock time such as "5 o'clock" may be."""
    time = answer.value
    if not (isinstance(time, DateOrTime) and isinstance(gold.value, Num)):
        return None
    if time.seconds is None or time.day is not None:
        return None
    return Num(Fraction(time.seconds, 3600))


def _number_in_base(gold: ParsedAnswer, answer: ParsedAnswer) -> Value | None:
    """Return the gold if the answer has its digits without the base: A3F or 0b1011."""
    if not isinstance(gold.value, NumberInBase):
        return None
    digits = _PATTERNS["base_prefix"].sub("", answer.plain).upper()
    return gold.value if digits == gold.value.digits else None


def _point(gold: ParsedAnswer, answer: ParsedAnswer) -> Value | None:
    """Return the point that [2, -3] may be, which is no interval."""
    match answer.value:
        case ValueList("[]", (Num() as first, Num() as second)) if first.value > second.value:
            return ValueList("()", (first, second))
    return None


def _mixed_number(gold: ParsedAnswer, answer: ParsedAnswer) -> Value | None:
    """Return the number that "2 and 3/4" may be, which may also be a list."""
    match answer.value:
        case ValueList("", (Num() as whole, Num() as part)) if (
            whole.value.denominator == 1 and 0 < part.value < 1 and part.decimal_places is None
        ):
            return Num(whole.value + part.value)
    return None


def _number_below_zero(gold: ParsedAnswer, answer: ParsedAnswer) -> Value | None:
    """Return the negative number that "12 below zero" may be."""
    match = _PATTERNS["below_zero"].fullmatch(answer.plain)
    return read(f"-{match['number']}") if match else None


def _closed_fraction(gold: ParsedAnswer, answer: ParsedAnswer) -> Value | None:
    """Return 1/2x with x as a factor of the denominator."""
    text, n_fractions = _PATTERNS["fraction_of_letter"].subn(_CLOSED_FRACTION, answer.cleaned)
    return read(text) if n_fractions else None


_OTHER_MEANINGS: tuple[OtherMeaning, ...] = (
    _product, _limit, _scaled_number, _hours, _number_in_base, _point, _mixed_number,
    _number_below_zero, _closed_fraction,
)  # fmt: skip


def find_doubt_about_equal(gold: ParsedAnswer, answer: ParsedAnswer) -> str:
    """Return what may make two sides different whose values are equal, or ""."""
    texts = (gold.cleaned, answer.cleaned)
    if isinstance(gold.value, Words) and isinstance(answer.value, Words):
        cycles = [_PATTERNS["cycle"].findall(text) for text in (gold.plain, answer.plain)]
        factorials = [_PATTERNS["factorial"].findall(text) for text in texts]
        if factorials[0] != factorials[1] or (all(cycles) and cycles[0] != cycles[1]):
            return f"the answer: “{answer.plain}”"
    derivatives = [_PATTERNS["nabla"].findall(text) for text in texts]
    vectors = [_PATTERNS["vector"].findall(text) for text in texts]
    has_product = any("\\times" in text for text in texts)
    if derivatives[0] != derivatives[1] or (
        has_product and all(vectors) and vectors[0] != vectors[1]
    ):
        return "the gold: a product of vectors"
    if not isinstance(gold.value, Words) and isinstance(answer.value, Words):
        # CO is not the symbol Co.
        differ_in_case = gold.plain.lower() == answer.plain.lower() and gold.plain != answer.plain
        return f"the answer: “{answer.plain}”" if differ_in_case else ""
    fractions = [_PATTERNS["fraction_of_letter"].findall(text) for text in texts]
    has_open_fraction = bool(fractions[1] and not fractions[0] and all_names(gold.value))
    return f"the answer: “{answer.plain}”" if has_open_fraction else ""
