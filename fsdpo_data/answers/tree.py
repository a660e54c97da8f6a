"""The small immutable trees into which answers are parsed.

A ``Node`` is an expression with a value. A ``Value`` is any kind of answer: an expression, a
quantity, a list, an interval, a relation, a matrix, a time, or plain words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from operator import attrgetter
from typing import Any, TypeAlias, TypeGuard


@dataclass(frozen=True, slots=True)
class Num:
    """A rational number."""

    value: Fraction  #: The exact value of the written number.
    #: Digits after the decimal point, or None for an exact number (``3``, ``1/7``). Negative if the
    #: last written digit is left of the units (``4.5e33``).
    decimal_places: int | None = None
    significant_digits: int = 0  #: Significant digits of a decimal, without zeros at its end.


@dataclass(frozen=True, slots=True)
class Sym:
    """A variable."""

    name: str  #: The name, with its case and its subscript.


@dataclass(frozen=True, slots=True)
class Const:
    """A mathematical constant."""

    name: str  #: ``pi``, ``e``, ``i`` or ``inf``.


@dataclass(frozen=True, slots=True)
class Add:
    """A sum."""

    terms: tuple[Node, ...]  #: The summands. A difference has a summand with the factor -1.


@dataclass(frozen=True, slots=True)
class Mul:
    """A product."""

    factors: tuple[Node, ...]  #: The factors.


@dataclass(frozen=True, slots=True)
class Div:
    """A quotient."""

    top: Node  #: The numerator.
    bottom: Node  #: The denominator.


@dataclass(frozen=True, slots=True)
class Pow:
    """A power."""

    base: Node  #: The base.
    exponent: Node  #: The exponent.


@dataclass(frozen=True, slots=True)
class Call:
    """A function of its arguments."""

    name: str  #: ``sin``, ``root``, ``log``, or the name of an unknown function such as ``f``.
    args: tuple[Node, ...]  #: The arguments.


@dataclass(frozen=True, slots=True)
class PlusMinus:
    r"""An expression with ``\pm`` or ``\mp``, which has two values."""

    sign: int  #: +1 for ``\pm``, -1 for ``\mp``.
    node: Node  #: The expression after the sign.


Node: TypeAlias = Num | Sym | Const | Add | Mul | Div | Pow | Call | PlusMinus
#: The brackets of intervals, as :attr:`ValueList.brackets` has them.
INTERVAL_BRACKETS = ("()", "[]", "(]", "[)")
NODE_TYPES = frozenset((Num, Sym, Const, Add, Mul, Div, Pow, Call, PlusMinus))


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of measure, a currency, or the name of counted things."""

    label: str  #: The name for display.
    #: Base dimensions with their powers, sorted. Empty for counted things.
    dims: tuple[tuple[str, int], ...] = ()
    factor: Fraction = Fraction(1)  #: Size in the base unit of its dimensions.
    words: tuple[str, ...] = ()  #: The name of counted things, or words after the unit: "north".


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with a unit."""

    node: Node  #: The number.
    unit: Unit  #: The unit.


@dataclass(frozen=True, slots=True)
class Ratio:
    """``3:4`` or ``3 to 4 to 5``."""

    parts: tuple[Node, ...]  #: The numbers of the ratio.


@dataclass(frozen=True, slots=True)
class NumberInBase:
    """A number in another base than ten: ``25_6``."""

    digits: str  #: The digits in upper case, without leading zeros, after an optional sign.
    base: int  #: The number base.


@dataclass(frozen=True, slots=True)
class ValueList:
    """Several values: a list, tuple, interval or set."""

    #: Opening and closing bracket: ``()``, ``[]``, ``(]``, ``[)`` or ``{}``. Empty for a list
    #: without brackets.
    brackets: str
    items: tuple[Value, ...]  #: The values.


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix or vector."""

    rows: tuple[tuple[Value, ...], ...]  #: The rows of entries.


@dataclass(frozen=True, slots=True)
class Relation:
    """An equation, or a chain of inequalities such as ``a < b <= c``."""

    parts: tuple[Value, ...]  #: The sides.
    ops: tuple[str, ...]  #: The relation signs between the sides.


@dataclass(frozen=True, slots=True)
class SetMembership:
    """The statement that a value is an element of a set."""

    left: Value  #: The element.
    right: Value  #: The set.
    negated: bool = False  #: Whether the statement is "not an element".


@dataclass(frozen=True, slots=True)
class Connective:
    """Statements joined by ``or`` or ``and``, or sets by ``∪``, ``∩`` or ``∖``."""

    op: str  #: ``or``, ``and``, ``union``, ``intersection`` or ``minus``.
    parts: tuple[Value, ...]  #: The statements or sets.


@dataclass(frozen=True, slots=True)
class SetBuilder:
    """A set in set-builder notation: ``{head | conditions}``."""

    head: Value  #: The form of the elements.
    conditions: tuple[Value, ...]  #: The conditions on the elements.


@dataclass(frozen=True, slots=True)
class Piecewise:
    """A function by cases."""

    branches: tuple[Branch, ...]  #: The cases, in order.


@dataclass(frozen=True, slots=True)
class DateOrTime:
    """A clock time, a date, or both. Fields that the text does not state are None."""

    #: Seconds since midnight; since midnight or noon if ``half_of_day`` is unknown.
    seconds: int | None = None
    half_of_day: str = ""  #: ``am``, ``pm``, ``24h`` if the hour implies it, or "" if unknown.
    day: int | None = None  #: The day of the month.
    month: int | None = None  #: The month from 1 to 12.
    year: int | None = None  #: The year.


@dataclass(frozen=True, slots=True)
class Words:
    """An answer in plain words."""

    words: tuple[str, ...]  #: The words in lower case, without articles and punctuation.


Value: TypeAlias = (
    Node
    | Quantity
    | Ratio
    | NumberInBase
    | ValueList
    | Matrix
    | Relation
    | SetMembership
    | Connective
    | SetBuilder
    | Piecewise
    | DateOrTime
    | Words
)

#: A value and its condition. None is the condition "otherwise".
Branch: TypeAlias = tuple[Value, Value | None]

ONE = Num(Fraction(1))
MINUS_ONE = Num(Fraction(-1))

#: For each type with subexpressions, a function that returns them.
_GET_PARTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Add: attrgetter("terms"),
    Mul: attrgetter("factors"),
    Div: attrgetter("top", "bottom"),
    Pow: attrgetter("base", "exponent"),
    Call: attrgetter("args"),
    PlusMinus: lambda value: (value.node,),
    Quantity: lambda value: (value.node,),
    ValueList: attrgetter("items"),
}


def is_node(value: Value) -> TypeGuard[Node]:
    """Whether ``value`` is an expression."""
    return type(value) in NODE_TYPES


def children(node: Node) -> tuple[Node, ...]:
    """Return the direct subexpressions of ``node``."""
    get_parts = _GET_PARTS.get(type(node))
    return get_parts(node) if get_parts else ()


def negate(node: Node) -> Node:
    """Return ``-node``."""
    if isinstance(node, Num):
        return Num(-node.value, node.decimal_places, node.significant_digits)
    return Mul((MINUS_ONE, node))


def _exact_values(nodes: list[Node]) -> list[Fraction] | None:
    """Return the values of the nodes, or None if they are not all exact numbers."""
    values = [node.value for node in nodes if isinstance(node, Num) and node.decimal_places is None]
    return values if len(values) == len(nodes) else None


def add(terms: list[Node]) -> Node:
    """Return the sum, evaluated if all terms are exact numbers."""
    if len(terms) == 1:
        return terms[0]
    values = _exact_values(terms)
    return Add(tuple(terms)) if values is None else Num(sum(values, Fraction(0)))


def multiply(factors: list[Node]) -> Node:
    """Return the product, evaluated if all factors are exact numbers."""
    if len(factors) == 1:
        return factors[0]
    values = _exact_values(factors)
    if values is not None:
        return Num(prod(values, start=Fraction(1)))
    number = _evaluate_scientific(factors[0], factors[1]) if len(factors) == 2 else None
    return number or Mul(tuple(factors))


def scale(node: Node, size: Fraction) -> Node:
    """Return ``size`` times ``node``; a decimal number counts as exact."""
    return multiply([Num(node.value) if isinstance(node, Num) else node, Num(size)])


def divide(top: Node, bottom: Node) -> Node:
    """Return the quotient, evaluated if both are exact numbers."""
    values = _exact_values([top, bottom])
    return Num(values[0] / values[1]) if values and values[1] else Div(top, bottom)


MAX_POWER_OF_TEN = 5_000  #: Larger exponents in scientific notation are not evaluated.


def _evaluate_scientific(number: Node, power: Node) -> Node | None:
    """Return ``4.5 * 10^33`` as one number with two significant digits, or None."""
    if not (
        isinstance(number, Num)
        and isinstance(power, Pow)
        and power.base == Num(Fraction(10))
        and isinstance(power.exponent, Num)
        and power.exponent.value.denominator == 1
        and abs(power.exponent.value) <= MAX_POWER_OF_TEN
    ):
        return None
    shift = int(power.exponent.value)
    decimal_places = None if number.decimal_places is None else number.decimal_places - shift
    return Num(number.value * Fraction(10) ** shift, decimal_places, number.significant_digits)


def map_children(node: Node, function: Callable[[Node], Node]) -> Node:
    """Return ``node`` with ``function`` applied to its direct subexpressions."""
    match node:
        case Add():
            return Add(tuple(map(function, node.terms)))
        case Mul():
            return Mul(tuple(map(function, node.factors)))
        case Div():
            return Div(function(node.top), function(node.bottom))
        case Pow():
            return Pow(function(node.base), function(node.exponent))
        case Call():
            return Call(node.name, tuple(map(function, node.args)))
        case PlusMinus():
            return PlusMinus(node.sign, function(node.node))
        case _:
            return node


def substitute(node: Node, values: Mapping[str, Node]) -> Node:
    """Replace symbols by the values of their names."""
    if isinstance(node, Sym):
        return values.get(node.name, node)
    return map_children(node, lambda child: substitute(child, values))


def walk(value: Value) -> list[Value]:
    """List ``value`` and all its nested parts.

    Parts are subexpressions, list items, and the numbers of quantities.
    """
    values = [value]
    for part in values:  # the loop appends to the list
        get_parts = _GET_PARTS.get(type(part))
        if get_parts:
            values.extend(get_parts(part))
    return values


def list_values(value: Value) -> tuple[Value, ...]:
    """Return the items of a list without brackets, or a tuple of the value itself."""
    return value.items if isinstance(value, ValueList) and not value.brackets else (value,)


def has_plus_minus(value: Value) -> bool:
    r"""Whether ``\pm`` occurs in an expression or quantity."""
    value_type = type(value)
    if value_type not in _GET_PARTS or value_type is ValueList:
        return False
    return PlusMinus in map(type, walk(value))


def plus_minus_values(value: Value) -> tuple[Value, ...]:
    r"""Return the two values of ``1 \pm x``; all ``\pm`` of one value take the same sign."""
    if not has_plus_minus(value):
        return (value,)
    if isinstance(value, Quantity):
        return tuple(Quantity(_choose_sign(value.node, sign), value.unit) for sign in (1, -1))
    return tuple(_choose_sign(value, sign) for sign in (1, -1)) if is_node(value) else (value,)


def independent_sign_values(value: Value) -> tuple[Value, ...]:
    r"""Return the values of ``\pm a \pm b`` if each ``\pm`` takes its own sign.

    Other values, and values with one or many ``\pm``, give an empty tuple.
    """
    if not is_node(value) or not 2 <= [*map(type, walk(value))].count(PlusMinus) <= 3:
        return ()
    nodes: list[Node] = [value]
    while has_plus_minus(nodes[0]):
        nodes = [_choose_first_sign(node, sign) for node in nodes for sign in (1, -1)]
    return tuple(nodes)


def _choose_first_sign(node: Node, sign: int) -> Node:
    r"""Replace the first ``\pm`` by ``sign``; the others stay."""
    is_done = False

    def choose(part: Node) -> Node:
        nonlocal is_done
        if is_done:
            return part
        if isinstance(part, PlusMinus):
            is_done = True
            return part.node if part.sign == sign else negate(part.node)
        return map_children(part, choose)

    return choose(node)


def _choose_sign(node: Node, sign: int) -> Node:
    r"""Replace every ``\pm`` by ``sign``, and every ``\mp`` by the opposite sign."""
    if isinstance(node, PlusMinus):
        inner = _choose_sign(node.node, sign)
        return inner if node.sign == sign else negate(inner)
    return map_children(node, lambda child: _choose_sign(child, sign))
