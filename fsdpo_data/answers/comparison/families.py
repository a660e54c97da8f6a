"""Families of values: over a parameter, modulo a number, or up to an arbitrary constant."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

from fsdpo_data.answers import tree
from fsdpo_data.answers.budget import Budget
from fsdpo_data.answers.comparison.expressions import (
    are_equal_expressions,
    has_constant_difference,
)
from fsdpo_data.answers.comparison.spans import have_equal_spans
from fsdpo_data.answers.comparison.statements import ValueComparison, have_same_members
from fsdpo_data.answers.comparison.symbols import free_symbols
from fsdpo_data.answers.tree import Node, Value

#: Shifts of an integer parameter that are tried.
_SHIFTS = range(-3, 4)
#: Names that denote an integer parameter when the answer states no domain.
PARAMETERS = frozenset("knmlj")
_DOMAINS = frozenset(("ZZ", "NN", "NN+", "RR", "QQ"))
#: Domains in which a parameter may be shifted; "" means an unstated domain.
_SHIFTABLE_DOMAINS = frozenset(("ZZ", ""))
#: Domains in which a parameter may change its sign.
_SIGNED_DOMAINS = frozenset(("ZZ", "RR", "QQ", ""))
#: Names that may denote an arbitrary constant.
_ARBITRARY_CONSTANT = re.compile(r"[CcKkABD](?:_\w+)?")
#: Names that always denote an arbitrary constant.
_CERTAIN_CONSTANT = re.compile(r"C|[Cc]_\w+")
#: Names that may denote the constant of integration.
_ADDED_CONSTANT = re.compile(r"[CcK](?:_\w+)?")
#: Most constants that are matched in every order, exclusive.
_MAX_CONSTANTS = 5
#: Variables of functions that may contain arbitrary constants.
_VARIABLES = frozenset(("x", "t", "y", "s", "u", "theta", "r"))


@dataclass(frozen=True, slots=True)
class ParametricFamily:
    """Values that depend on one parameter, such as ``x = 2k`` for all integers k."""

    head: Value | None  #: Left side of the equation, such as the x of ``x = 2k``; None without one.
    bodies: tuple[Value, ...]  #: Expressions in the parameter.
    parameter: str  #: Name of the parameter.
    domain: str  #: Name of the set of parameter values, "" if not stated.


def parse_family(value: Value) -> ParametricFamily | None:
    """Read a family of values over one parameter; return None if ``value`` is another value.

    Examples are ``{3k | k in Z}``, ``x = pi k`` and ``x = a + 2 pi k, x = b + 2 pi k, k in Z``.
    """
    parts = statements_and_values(value)
    domains = [part for part in parts if is_domain(part)]
    if len(domains) > 1:
        return None
    parameter = ""
    domain = ""
    for membership in domains:
        parameter = membership.left.name  # type: ignore[union-attr]
        domain = membership.right.name  # type: ignore[union-attr]
    bodies: list[Value] = []
    heads: list[Value] = []
    for part in parts:
        if part in domains:
            continue
        body = part
        if isinstance(part, tree.Relation) and part.ops == ("=",):
            heads.append(part.parts[0])
            body = part.parts[1]
        bodies.extend(tree.plus_minus_values(body))
    names = _all_symbols(bodies)
    if not domains:
        candidates = names & PARAMETERS
        parameter = next(iter(candidates)) if len(candidates) == 1 else ""
    if not bodies or parameter not in names or any(head != heads[0] for head in heads):
        return None
    return ParametricFamily(
        head=heads[0] if heads else None,
        bodies=tuple(bodies),
        parameter=parameter,
        domain=domain,
    )


def _all_symbols(values: list[Value]) -> frozenset[str]:
    """Return the free symbols of all values."""
    return frozenset(name for value in values for name in free_symbols(value))


def statements_and_values(value: Value) -> tuple[Value, ...]:
    """Return the parts of a set-builder, of a list or of joined statements."""
    if isinstance(value, tree.SetBuilder):
        defines_head = any(
            isinstance(condition, tree.Relation) and condition.parts[0] == value.head
            for condition in value.conditions
        )
        return value.conditions if defines_head else (value.head, *value.conditions)
    if isinstance(value, tree.Connective) and value.op in ("and", "or"):
        return value.parts
    if isinstance(value, tree.ValueList) and value.brackets in ("", "{}"):
        return tuple(part for item in value.items for part in tree.list_values(item))
    return (value,)


def is_domain(part: Value) -> bool:
    """Whether ``part`` is the domain of a parameter, such as ``k in Z``."""
    return (
        isinstance(part, tree.SetMembership)
        and not part.negated
        and isinstance(part.left, tree.Sym)
        and isinstance(part.right, tree.Sym)
        and part.right.name in _DOMAINS
    )


def are_equal_families(
    gold: Value, answer: Value, is_equal: ValueComparison, budget: Budget
) -> bool:
    """Whether two families have the same values; the names of their parameters may differ."""
    left = parse_family(gold)
    right = parse_family(answer) if left else None
    if left is None or right is None or len(left.bodies) != len(right.bodies):
        return False
    if tree.is_node(gold) and tree.is_node(answer) and left.parameter == right.parameter:
        return False  # already compared as expressions
    if not _is_surely_family(left, right):
        return False
    if left.domain and right.domain and left.domain != right.domain:
        return False
    if left.head is not None and right.head is not None and left.head != right.head:
        return False

    def is_equal_body(left_body: Value, right_body: Value) -> bool:
        """Whether two bodies agree after some change of the parameter."""
        return any(
            are_equal_expressions(left_body, candidate, budget)
            if tree.is_node(left_body) and tree.is_node(candidate)
            else is_equal(left_body, candidate)
            for candidate in _shift_parameter(right_body, left, right)
        )

    return have_same_members(left.bodies, right.bodies, is_equal_body)


def _is_surely_family(left: ParametricFamily, right: ParametricFamily) -> bool:
    """Whether a pair denotes all values of its bodies, not one value for a given parameter.

    This holds if one side states the domain. It also holds if the left side is an arithmetic
    progression such as ``4k + 1``, or an angle with a parameter.
    """
    is_progression = left.parameter == "k" and all(
        isinstance(body, tree.Add) for body in left.bodies
    )
    has_domain = bool(left.domain or right.domain)
    return has_domain or is_progression or any(map(mentions_angle, left.bodies))


def mentions_angle(value: Value) -> bool:
    """Whether a value contains pi or an angle in degrees."""
    return any(
        isinstance(part, tree.Quantity)
        or part == tree.Const("pi")
        or (isinstance(part, tree.Call) and part.name == "deg")
        for part in tree.walk(value)
    )


def _shift_parameter(
    body: Value, left: ParametricFamily, right: ParametricFamily
) -> Iterator[Value]:
    """Yield a body of the right family in the left family's parameter, with signs and shifts.

    The domain of the parameter decides which signs and shifts leave the family unchanged.
    """
    domain = left.domain or right.domain
    for sign in (1, -1) if domain in _SIGNED_DOMAINS else (1,):
        for shift in _SHIFTS if domain in _SHIFTABLE_DOMAINS else (0,):
            signed_parameter = tree.scale(tree.Sym(left.parameter), Fraction(sign))
            new_parameter = tree.add([signed_parameter, tree.Num(Fraction(shift))])
            yield _substitute_values(body, {right.parameter: new_parameter})


def _substitute_values(value: Value, replacements: dict[str, Node]) -> Value:
    """Replace symbols in an expression, a quantity or a list; leave other values unchanged."""
    if isinstance(value, tree.ValueList):
        items = tuple(_substitute_values(item, replacements) for item in value.items)
        return tree.ValueList(value.brackets, items)
    if isinstance(value, tree.Quantity):
        return tree.Quantity(tree.substitute(value.node, replacements), value.unit)
    return tree.substitute(value, replacements) if tree.is_node(value) else value


def residue_with_modulus(value: Value) -> tree.Quantity | None:
    """Return the right side of a congruence, or None. The modulus is its unit."""
    if not isinstance(value, tree.Relation) or value.ops != ("==",):
        return None
    right = value.parts[-1]
    if isinstance(right, tree.Quantity) and right.unit.label.startswith("mod "):
        return right
    return None


def are_equal_up_to_constants(
    gold: Node, answer: Node, budget: Budget, *, is_complete_answer: bool
) -> bool:
    """Whether two functions agree up to arbitrary constants, as in ``+ C`` or ``A e^x``.

    Only a complete answer may add a constant that the gold omits.
    """
    constants = sorted(filter(_ARBITRARY_CONSTANT.fullmatch, free_symbols(answer)))
    gold_names = free_symbols(gold) if constants else frozenset[str]()
    if not gold_names & _VARIABLES:
        return False
    gold_constants = [name for name in sorted(gold_names) if _ARBITRARY_CONSTANT.fullmatch(name)]
    gold_remainder = _without_constant(gold)
    answer_remainder = _without_constant(answer)
    if gold_remainder is not None and answer_remainder is not None:
        if has_constant_difference(gold_remainder, answer_remainder, budget):
            return True
    elif answer_remainder is not None and not gold_constants:
        # The gold omits the constant of integration.
        return (
            is_complete_answer
            and "C" in constants
            and are_equal_expressions(gold, answer_remainder, budget)
        )
    if not len(gold_constants) == len(constants) < _MAX_CONSTANTS:
        return False
    all_constants = (*constants, *gold_constants)
    if not any(map(_CERTAIN_CONSTANT.fullmatch, all_constants)):
        return False
    if len(constants) > 1 and have_equal_spans((gold, gold_constants), (answer, constants), budget):
        return True
    # A cheap refusal: functions that differ with all constants equal differ in every order.
    merged = dict.fromkeys(all_constants, tree.Sym("C"))
    merged_gold = tree.substitute(gold, merged)
    merged_answer = tree.substitute(answer, merged)
    if not are_equal_expressions(merged_gold, merged_answer, budget):
        return False
    gold_symbols = [tree.Sym(name) for name in gold_constants]
    renamings = (dict(zip(order, gold_symbols, strict=True)) for order in permutations(constants))
    return any(
        are_equal_expressions(gold, tree.substitute(answer, renaming), budget)
        for renaming in renamings
    )


def _without_constant(node: Node) -> Node | None:
    """Return ``F(x)`` for ``F(x) + C``, None if ``node`` has another form."""
    terms = tuple(_terms(node))
    constants = [
        term
        for term in terms
        if isinstance(term, tree.Sym) and _ADDED_CONSTANT.fullmatch(term.name)
    ]
    other_terms = [term for term in terms if term not in constants]
    if len(constants) != 1 or not other_terms:
        return None
    if any(constants[0].name in free_symbols(term) for term in other_terms):
        return None
    return tree.add(other_terms)


def _terms(node: Node) -> Iterator[Node]:
    """Yield the terms of a sum, also of sums inside it."""
    if not isinstance(node, tree.Add):
        yield node
        return
    for term in node.terms:
        yield from _terms(term)
