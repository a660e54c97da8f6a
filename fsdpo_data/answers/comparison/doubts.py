"""Doubts about two answers whose values differ: another meaning of a notation makes them equal."""

from collections.abc import Callable

from fsdpo_data.answers.comparison.values import AnswerComparer
from fsdpo_data.answers.parsing.read import ParsedAnswer, read
from fsdpo_data.answers.tables import compile_patterns, read_module_table
from fsdpo_data.answers.tree import Num, Quantity, Relation

_TABLE = read_module_table(__file__)
_PATTERNS = compile_patterns(_TABLE["patterns"])
_SCALES: dict[str, int] = _TABLE["scales"]
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


_DOUBTS: tuple[Doubt, ...] = (_product_or_cycle, _limit, _decimal_or_list, _scaled_number)
