"""The small immutable trees that answers are read into.

``Node`` is an expression that has a value; ``Value`` is anything an answer can be: an expression,
a quantity, a list, an interval, a relation, a matrix, a clock time, plain words.
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

    value: Fraction  #: What is written, exactly.
    #: Digits shown after the point, None for a number that is exact (``3``, ``1/7``); negative when
    #: the last digit shown is above the units (``4.5e33``).
    decimal_places: int | None = None
    significant_digits: int = 0  #: Significant digits shown by a decimal, without zeros at its end.


@dataclass(frozen=True, slots=True)
class Sym:
    """A variable; case and subscript are part of the name."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """``pi``, ``e``, ``i`` or ``inf``."""

    name: str


@dataclass(frozen=True, slots=True)
class Add:
    """A sum."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mul:
    """A product; a difference is a sum with a factor -1."""

    factors: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Div:
    """A quotient."""

    top: Node
    bottom: Node


@dataclass(frozen=True, slots=True)
class Pow:
    """A power."""

    base: Node
    exponent: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A function of its arguments: ``sin``, ``root``, ``log``, or an unknown one such as ``f``."""

    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class PlusMinus:
    r"""``\pm node`` (sign +1) or ``\mp node`` (sign -1), both values meant."""

    sign: int
    node: Node


Node: TypeAlias = Num | Sym | Const | Add | Mul | Div | Pow | Call | PlusMinus
NODE_TYPES = frozenset((Num, Sym, Const, Add, Mul, Div, Pow, Call, PlusMinus))


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of measure, a currency, or the name of the things that were counted."""

    label: str  #: As it is shown.
    dims: tuple[tuple[str, int], ...] = ()  #: With their powers, sorted; empty for counted things.
    factor: Fraction = Fraction(1)  #: Size in the base unit of its dimensions.
    words: tuple[str, ...] = ()  #: What was said after it: "north", "of paint".


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of units."""

    node: Node
    unit: Unit


@dataclass(frozen=True, slots=True)
class Ratio:
    """``3:4`` or ``3 to 4 to 5``."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class NumberInBase:
    """Digits in a number base: ``25_6``."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class ValueList:
    """Several values."""

    #: Opening and closing bracket: ``()``, ``[]``, ``(]``, ``[)``, ``{}``; empty for a list without
    #: brackets.
    brackets: str
    items: tuple[Value, ...]  #: The values.


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of expressions."""

    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain ``a < b <= c`` or an equation; ``ops`` has one entry fewer than ``parts``."""

    parts: tuple[Value, ...]
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetMembership:
    """``left`` is an element of ``right``; with ``negated``, it is not."""

    left: Value
    right: Value
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Connective:
    """Statements joined by ``or`` or ``and``, or sets by ``∪``, ``∩`` or ``∖``."""

    op: str
    parts: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class SetBuilder:
    """``{head | conditions}``."""

    head: Value
    conditions: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Piecewise:
    """A function by cases: (value, condition) pairs; None is the condition "otherwise"."""

    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class DateOrTime:
    """A clock time, a date, or both; what is not stated is None."""

    seconds: int | None = None  #: Since midnight; since midnight or noon if ``half`` is unknown.
    half_of_day: str = (
        ""  #: ``am`` or ``pm``, ``24h`` where the hour shows it, or "" if not stated.
    )
    day: int | None = None  #: Day of the month.
    month: int | None = None  #: Month from 1 to 12.
    year: int | None = None  #: Year.


@dataclass(frozen=True, slots=True)
class Words:
    """Words, lower-case, without articles and punctuation."""

    words: tuple[str, ...]


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

Branch: TypeAlias = tuple[Value, Value | None]  #: A value and the condition under which it holds.

ONE = Num(Fraction(1))
MINUS_ONE = Num(Fraction(-1))


_PARTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
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
    parts = _PARTS.get(type(node))
    return parts(node) if parts else ()


def negate(node: Node) -> Node:
    """Return ``-node``."""
    if isinstance(node, Num):
        return Num(-node.value, node.decimal_places, node.significant_digits)
    return Mul((MINUS_ONE, node))


def _exact(nodes: list[Node]) -> list[Fraction] | None:
    """Return the values of exact numbers, None if not all are such."""
    values = [node.value for node in nodes if isinstance(node, Num) and node.decimal_places is None]
    return values if len(values) == len(nodes) else None


def add(terms: list[Node]) -> Node:
    """Return the sum, folded if all terms are exact numbers."""
    if len(terms) == 1:
        return terms[0]
    values = _exact(terms)
    return Add(tuple(terms)) if values is None else Num(sum(values, Fraction(0)))


def multiply(factors: list[Node]) -> Node:
    """Return the product, folded if all factors are exact numbers of moderate size."""
    if len(factors) == 1:
        return factors[0]
    values = _exact(factors)
    if values is not None:
        return Num(prod(values, start=Fraction(1)))
    scaled = _scientific(*factors) if len(factors) == 2 else None
    return scaled or Mul(tuple(factors))


def scale(node: Node, size: Fraction) -> Node:
    """Return ``size`` times ``node``, of which a decimal counts as exact."""
    return multiply([Num(node.value) if isinstance(node, Num) else node, Num(size)])


def divide(top: Node, bottom: Node) -> Node:
    """Return the quotient, folded if both are exact numbers."""
    values = _exact([top, bottom])
    return Num(values[0] / values[1]) if values and values[1] else Div(top, bottom)


MAX_POWER_OF_TEN = 5_000  #: Powers of ten in scientific notation beyond this are left as powers.


def _scientific(number: Node, power: Node) -> Node | None:
    """Read ``4.5 * 10^33`` as one number that shows two digits."""
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
    places = None if number.decimal_places is None else number.decimal_places - shift
    return Num(number.value * Fraction(10) ** shift, places, number.significant_digits)


def map_children(node: Node, function: Callable[[Node], Node]) -> Node:
    """Return ``node`` with ``change`` made to its direct subexpressions."""
    match node:
        case Add() | Mul():
            return type(node)(tuple(map(function, children(node))))
        case Div() | Pow():
            return type(node)(*map(function, children(node)))
        case Call():
            return Call(node.name, tuple(map(function, node.args)))
        case PlusMinus():
            return PlusMinus(node.sign, function(node.node))
        case _:
            return node


def substitute(node: Node, values: Mapping[str, Node]) -> Node:
    """Put ``values`` for the symbols of those names."""
    if isinstance(node, Sym):
        return values.get(node.name, node)
    return map_children(node, lambda child: substitute(child, values))


def walk(value: Value) -> list[Value]:
    """Return ``value`` and what it is made of: subexpressions, items, numbers of units."""
    found = [value]
    for part in found:  # which grows meanwhile
        parts = _PARTS.get(type(part))
        if parts:
            found.extend(parts(part))
    return found


def list_values(value: Value) -> tuple[Value, ...]:
    """Return the values of a list without brackets, or the one value."""
    return value.items if isinstance(value, ValueList) and not value.brackets else (value,)


def has_plus_minus(value: Value) -> bool:
    r"""Whether ``\pm`` occurs in an expression or quantity."""
    kind = type(value)
    return kind in _PARTS and kind is not ValueList and PlusMinus in map(type, walk(value))


def plus_minus_values(value: Value) -> tuple[Value, ...]:
    r"""Return the values that ``1 \pm x`` stands for; signs of several ``\pm`` go together."""
    if not has_plus_minus(value):
        return (value,)
    if isinstance(value, Quantity):
        return tuple(Quantity(_choose(value.node, sign), value.unit) for sign in (1, -1))
    return tuple(_choose(value, sign) for sign in (1, -1)) if is_node(value) else (value,)


def _choose(node: Node, sign: int) -> Node:
    """Replace every ``±`` by one of its signs."""
    if isinstance(node, PlusMinus):
        inner = _choose(node.node, sign)
        return inner if node.sign == sign else negate(inner)
    return map_children(node, lambda child: _choose(child, sign))
