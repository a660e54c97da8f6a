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
    ValueList,
    Words,
)

_TABLE = read_module_table(__file__)
_PATTERNS = compile_patterns(_TABLE["patterns"])
_SCALES: dict[str, int] = _TABLE["scales"]
#: ``1/2x`` as a fraction with the letter in its denominator.
_CLOSED_FRACTION = r"\\frac{\1}{\2\3}"
#: A function that returns the part of an answer that may mean the gold, or "".
Doubt = Callable[[ParsedAnswer, ParsedAnswer, AnswerComparer], str]


def find_doubt(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> str:
    """Return the part of an answer whose other meaning equals the gold, or ""."""
    for doubt in _DOUBTS:
        if part := doubt(gold, answer, comparer):
            return part
    return ""


def _product_or_cycle(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> str:
    """Return a recurring decimal, 0.5(4), that may be a product."""
    match = _PATTERNS["recurring"].search(answer.plain)
    if match is None:
        return ""
    product = read(f"{match['number']} \\cdot {match['cycle']}")
    return f"the answer: “{match[0]}”" if comparer.is_equal(gold.value, product) else ""


def _limit(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> str:
    r"""Return the limit of a sequence or a variable, ``x_n \to 0``, that may be the gold."""
    value = answer.value
    if not isinstance(value, Relation) or value.ops != ("->",):
        return ""
    is_gold = comparer.is_equal(gold.value, value.parts[-1])
    return f"the answer: “{answer.plain}”" if is_gold else ""


def _decimal_or_list(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> str:
    """Return a gold such as 0,75 that may be a list or a decimal."""
    decimal = gold.with_decimal_comma
    if decimal is None or not isinstance(answer.value, Num | Quantity):
        return ""
    return f"the gold: “{gold.plain}”" if comparer.is_equal(decimal, answer.value) else ""


def _scaled_number(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> str:
    """Return a number such as 12k or 12,00,000 that may be a number of thousands or lakhs."""
    match = _PATTERNS["scaled"].fullmatch(answer.plain)
    if match is None:
        return ""
    size = _SCALES.get((match["scale"] or "").lower(), 1)
    number = read(f"{match['number'].replace(',', '')} \\cdot {size}")
    return f"the answer: “{answer.plain}”" if comparer.is_equal(gold.value, number) else ""


def _hour(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> str:
    """Return a clock time such as "5 o'clock" that may be a number of hours."""
    time = answer.value
    if not (isinstance(time, DateOrTime) and isinstance(gold.value, Num)):
        return ""
    if time.seconds is None or time.day is not None:
        return ""
    hours = Num(Fraction(time.seconds, 3600))
    return f"the answer: “{answer.plain}”" if comparer.is_equal(gold.value, hours) else ""


def _digits_in_base(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> str:
    """Return the digits of a gold in another base, A3F for A3F_16 or 0b1011 for 1011_2."""
    if not isinstance(gold.value, NumberInBase):
        return ""
    digits = _PATTERNS["base_prefix"].sub("", answer.plain).upper()
    return f"the answer: “{answer.plain}”" if digits == gold.value.digits else ""


def _point(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> str:
    """Return [2, -3], which is no interval and may be a point."""
    match answer.value:
        case ValueList("[]", (Num() as first, Num() as second)) if first.value > second.value:
            point = ValueList("()", (first, second))
            return f"the answer: “{answer.plain}”" if comparer.is_equal(gold.value, point) else ""
    return ""


def _mixed_number(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> str:
    """Return "2 and 3/4", which may be a list or one number."""
    match answer.value:
        case ValueList("", (Num() as whole, Num() as part)) if (
            whole.value.denominator == 1 and 0 < part.value < 1 and part.decimal_places is None
        ):
            total = Num(whole.value + part.value)
            return f"the answer: “{answer.plain}”" if comparer.is_equal(gold.value, total) else ""
    return ""


def _below_zero(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> str:
    """Return "12 below zero", which may be -12."""
    match = _PATTERNS["below_zero"].fullmatch(answer.plain)
    if match is None:
        return ""
    number = read(f"-{match['number']}")
    return f"the answer: “{answer.plain}”" if comparer.is_equal(gold.value, number) else ""


def _denominator(gold: ParsedAnswer, answer: ParsedAnswer, comparer: AnswerComparer) -> str:
    """Return 1/2x, in which x may be a factor of the denominator."""
    text, n_fractions = _PATTERNS["fraction_of_letter"].subn(_CLOSED_FRACTION, answer.cleaned)
    if not n_fractions or not comparer.is_equal(gold.value, read(text)):
        return ""
    return f"the answer: “{answer.plain}”"


_DOUBTS: tuple[Doubt, ...] = (
    _product_or_cycle, _limit, _decimal_or_list, _scaled_number, _hour, _digits_in_base, _point,
    _mixed_number, _below_zero, _denominator,
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
