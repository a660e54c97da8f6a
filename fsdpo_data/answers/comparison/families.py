"""Families: values over a parameter, classes modulo a number, functions up to a constant."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

from fsdpo_data.answers import tree
from fsdpo_data.answers.budget import Budget
from fsdpo_data.answers.comparison.expressions import constant_difference, same_node
from fsdpo_data.answers.comparison.modular import rational_value
from fsdpo_data.answers.comparison.numeric import symbols
from fsdpo_data.answers.comparison.reals import linear
from fsdpo_data.answers.comparison.relations import Same, same_members
from fsdpo_data.answers.tree import Node, Value

_SHIFTS = range(-3, 4)
_PARAMETERS = frozenset("knmlj")  #: Names of whole numbers, where nothing says what they are.
_NUMBERS = frozenset(("ZZ", "NN", "NN+", "RR", "QQ"))
#: Domains on which a parameter may be moved, and on which it may change its sign.
_MOVABLE, _SIGNED = frozenset(("ZZ", "")), frozenset(("ZZ", "RR", "QQ", ""))
_ARBITRARY = re.compile(r"[CcKkABD](?:_\w+)?")
#: Constants that nobody takes for anything else, and the variables of what they stand in.
_SURELY = re.compile(r"C|[Cc]_\w+")
_ADDED = re.compile(r"[CcK](?:_\w+)?")
_VARIABLES = frozenset(("x", "t", "y", "s", "u", "theta", "r"))


@dataclass(frozen=True, slots=True)
class ParametricFamily:
    """Values over a parameter."""

    head: Value | None  #: What takes the values, if it is named: the x of ``x = 2k``.
    bodies: tuple[Value, ...]  #: The values.
    parameter: str  #: Its name.
    domain: str  #: The set that it runs over, "" if that is not said.


def parse_family(value: Value) -> ParametricFamily | None:
    """Read ``{3k | k in Z}``, ``x = pi k`` or ``x = a + 2 pi k, x = b + 2 pi k, k in Z``."""
    parts = _parts(value)
    domains = [part for part in parts if _is_domain(part)]
    if len(domains) > 1:
        return None
    name, domain = "", ""
    for member in domains:
        name, domain = member.left.name, member.right.name  # type: ignore[union-attr]
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
    names = frozenset().union(*map(symbols, bodies))
    if not domains:
        free = names & _PARAMETERS
        name = next(iter(free)) if len(free) == 1 else ""
    if not bodies or name not in names or any(head != heads[0] for head in heads):
        return None
    return ParametricFamily(heads[0] if heads else None, tuple(bodies), name, domain)


def _parts(value: Value) -> tuple[Value, ...]:
    if isinstance(value, tree.SetBuilder):
        named = any(
            isinstance(each, tree.Relation) and each.parts[0] == value.head
            for each in value.conditions
        )
        return value.conditions if named else (value.head, *value.conditions)
    if isinstance(value, tree.Connective) and value.op in ("and", "or"):
        return value.parts
    if isinstance(value, tree.ValueList) and value.brackets in ("", "{}"):
        listed = (tree.list_values(item) for item in value.items)
        return tuple(part for items in listed for part in items)
    return (value,)


def _is_domain(part: Value) -> bool:
    return (
        isinstance(part, tree.SetMembership)
        and not part.negated
        and isinstance(part.left, tree.Sym)
        and isinstance(part.right, tree.Sym)
        and part.right.name in _NUMBERS
    )


def same_family(gold: Value, answer: Value, same: Same, budget: Budget) -> bool:
    """Whether two families have the same values, whatever their parameters are called."""
    left = parse_family(gold)
    right = parse_family(answer) if left else None
    if left is None or right is None or len(left.bodies) != len(right.bodies):
        return False
    if tree.is_node(gold) and tree.is_node(answer) and left.parameter == right.parameter:
        return False  # as expressions they were compared before
    # "4k + 1" is meant as the numbers that leave 1, and an angle with a parameter as all of them.
    progression = left.parameter == "k" and all(isinstance(body, tree.Add) for body in left.bodies)
    if not (left.domain or right.domain or progression or any(map(_mentions_angle, left.bodies))):
        return False
    if left.domain and right.domain and left.domain != right.domain:
        return False
    if left.head is not None and right.head is not None and left.head != right.head:
        return False

    def same_values(body: Value, other: Value) -> bool:
        return any(
            same_node(body, each, budget)
            if tree.is_node(body) and tree.is_node(each)
            else same(body, each)
            for each in _shift_parameter(other, left, right)
        )

    return same_members(left.bodies, right.bodies, same_values)


def _mentions_angle(value: Value) -> bool:
    return any(
        isinstance(part, tree.Quantity)
        or part == tree.Const("pi")
        or (isinstance(part, tree.Call) and part.name == "deg")
        for part in tree.walk(value)
    )


def _shift_parameter(
    other: Value, left: ParametricFamily, right: ParametricFamily
) -> Iterator[Value]:
    """Yield a body of the right family in the left one's parameter, moved as its domain allows."""
    domain = left.domain or right.domain
    for sign in (1, -1) if domain in _SIGNED else (1,):
        for shift in _SHIFTS if domain in _MOVABLE else (0,):
            turned = tree.scale(tree.Sym(left.parameter), Fraction(sign))
            moved = tree.add([turned, tree.Num(Fraction(shift))])
            yield _substitute_values(other, {right.parameter: moved})


def _substitute_values(value: Value, values: dict[str, Node]) -> Value:
    if isinstance(value, tree.ValueList):
        return tree.ValueList(
            value.brackets, tuple(_substitute_values(item, values) for item in value.items)
        )
    if isinstance(value, tree.Quantity):
        return tree.Quantity(tree.substitute(value.node, values), value.unit)
    return tree.substitute(value, values) if tree.is_node(value) else value


@dataclass(frozen=True, slots=True)
class Congruence:
    """A class modulo a number: ``x = 2 (mod 5)``, or the values of ``5k + 2``."""

    left: Value | None
    residue: Fraction
    modulus: Fraction


def residue_with_modulus(value: Value) -> tree.Quantity | None:
    """Return the residue of a congruence as it is written with its modulus, a unit, or None."""
    right = value.parts[-1] if isinstance(value, tree.Relation) and value.ops == ("==",) else None
    return (
        right if isinstance(right, tree.Quantity) and right.unit.label.startswith("mod ") else None
    )


def parse_congruence(value: Value) -> Congruence | None:
    """Read a class of numbers; None if ``value`` is none."""
    written = residue_with_modulus(value)
    if written is not None and isinstance(value, tree.Relation):
        modulus, residue = Fraction(written.unit.label[4:]), rational_value(written.node)
        return None if residue is None else Congruence(value.parts[0], residue % modulus, modulus)
    found = parse_family(value)
    if found is None or found.domain not in _MOVABLE or len(found.bodies) > 1:
        return None
    (body,) = found.bodies
    line = linear(body, found.parameter) if tree.is_node(body) else None
    if line is None:
        return None
    start, step = line
    return Congruence(found.head, start % abs(step), abs(step))


def same_congruence(gold: Value, answer: Value, same: Same) -> bool:
    """Compare two classes of numbers, at least one of which names its modulus."""
    left, right = parse_congruence(gold), parse_congruence(answer)
    if left is None or right is None:
        return False
    if (left.residue, left.modulus) != (right.residue, right.modulus):
        return False
    return left.left is None or right.left is None or same(left.left, right.left)


def same_up_to_constants(gold: Node, answer: Node, budget: Budget) -> bool:
    """Whether two functions agree but for constants that are arbitrary: ``+ C``, ``A e^x``."""
    constants = sorted(filter(_ARBITRARY.fullmatch, symbols(answer)))
    names = symbols(gold) if constants else frozenset[str]()
    if not names & _VARIABLES:
        return False
    letters = [tree.Sym(name) for name in sorted(names) if _ARBITRARY.fullmatch(name)]
    tail, other_tail = _without_constant(gold), _without_constant(answer)
    if tail is not None and other_tail is not None:
        if constant_difference(tail, other_tail, budget):
            return True
    elif other_tail is not None and not letters:
        return "C" in constants and same_node(gold, other_tail, budget)  # the gold leaves it out
    named = (*constants, *(letter.name for letter in letters))
    # With one letter for all of them no order matters: where that differs, every order does.
    alike = dict.fromkeys(named, tree.Sym("C"))
    return (
        len(letters) == len(constants) < 5
        and any(map(_SURELY.fullmatch, named))
        and same_node(tree.substitute(gold, alike), tree.substitute(answer, alike), budget)
        and any(
            same_node(gold, tree.substitute(answer, dict(zip(order, letters, strict=True))), budget)
            for order in permutations(constants)
        )
    )


def _without_constant(node: Node) -> Node | None:
    """Return what is left of ``F(x) + C`` without its constant; None if it has none."""
    terms = tuple(_terms(node))
    dropped = [term for term in terms if isinstance(term, tree.Sym) and _ADDED.fullmatch(term.name)]
    kept = [term for term in terms if term not in dropped]
    if len(dropped) != 1 or not kept or dropped[0].name in frozenset().union(*map(symbols, kept)):
        return None
    return tree.add(kept)


def _terms(node: Node) -> Iterator[Node]:
    for term in node.terms if isinstance(node, tree.Add) else ():
        yield from _terms(term)
    if not isinstance(node, tree.Add):
        yield node
