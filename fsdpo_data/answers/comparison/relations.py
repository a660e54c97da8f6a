"""Equations, inequalities, function definitions and sets given by a parameter."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

from fsdpo_data.answers.budget import Budget
from fsdpo_data.answers.comparison.modular import UndefinedValueError
from fsdpo_data.answers.comparison.numeric import OPERATORS, Evaluator, is_unknown, symbols
from fsdpo_data.answers.lexicon.units import unit_ratio
from fsdpo_data.answers.lexicon.vocabulary import TRIG_FUNCTIONS
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import (
    Call,
    Connective,
    Mul,
    Node,
    Num,
    Quantity,
    Ratio,
    Relation,
    SetBuilder,
    SetMembership,
    Sym,
    Unit,
    Value,
    ValueList,
    add,
    is_node,
    map_children,
    negate,
    plus_minus_values,
    substitute,
    walk,
)

Each = TypeVar("Each")
#: Whether a part of an answer deserves the mark for one of the gold.
Same = Callable[[Value, Value], bool]

FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!=", "->": "<-",
           "sub": "sup", "sup": "sub", "sub=": "sup=", "sup=": "sub="}  # fmt: skip
#: Relations that hold between a difference and zero as between their sides.
ORDER = frozenset(("<", ">", "<=", ">=", "!="))
MAX_STATEMENTS = 20  #: Most statements that are compared in any order.
_OPERATIONS = frozenset(("cross", "mod", "gcd", "lcm", "det", "not"))


def assigned_values(value: Value) -> tuple[Value, ...] | None:
    """Return the values that ``x = 2 + 3 = 5`` gives to a name, None if it is no such thing."""
    if isinstance(value, SetMembership | SetBuilder):
        return _finite(value)
    if not isinstance(value, Relation) or not set(value.ops) <= {"=", "~", "=="}:
        return None
    first, rest = value.parts[0], value.parts[1:]
    if all(
        isinstance(part, Connective | ValueList) and not _is_point(part) for part in value.parts
    ):
        return value.parts  # one set, written in several ways
    if _is_head(first) or _is_name(first) or _is_point(first):
        while len(rest) > 1 and isinstance(rest[0], Sym):  # x = y = 5
            rest = rest[1:]
        return rest
    if isinstance(rest[-1], Sym) and len(rest) == 1 and not _letters(first):
        return (first,)
    if not _letters(first):
        return value.parts
    if is_node(first) and _letters(first) == _letters(rest[-1]):
        return (first, rest[-1])  # an identity, if both are the answer
    # The result of a calculation follows it, as in "a + b + c = 5".
    return rest if is_node(first) and len(_letters(first)) > 1 else None


def chain_result(answer: Value, gold: Value) -> Sequence[Value] | None:
    """Return what a chain ``x = 2 · 3 = 6`` comes to, all of which must be the gold.

    That is its end, and the plain values before it: "19 + 7 = 26 + 4 = 30" is 30, sloppy as it
    is. Against a gold with letters it is the last part in the same letters; one that stands
    before rounded values is what was asked for.
    """
    chain = assigned_values(answer)
    if chain is None or (isinstance(answer, Relation) and "~" in answer.ops):
        return chain
    if is_node(gold) and symbols(gold) and _letters(chain[-1]):
        return [each for each in chain if _letters(each) == symbols(gold)][-1:] or chain
    return (
        *(part for part in chain[:-1] if isinstance(part, Num | ValueList | Connective)),
        chain[-1],
    )


def _is_head(value: Value) -> bool:
    """Whether ``value`` is ``x``, ``f(2)``, ``sin A`` or ``|AB|``: a name for a number.

    ``sqrt(y) = 3`` and ``log_2 x = 3`` are equations still to be solved.
    """
    if isinstance(value, Call) and value.name == "abs":
        return isinstance(value.args[0], Mul) or value.args[0] not in (Sym("x"), Sym("y"))
    if isinstance(value, Call):
        return (
            value.name == "int"
            or is_function(value.name)
            or (value.name in TRIG_FUNCTIONS and bool(symbols(value)))
        )
    return isinstance(value, Sym)


def is_function(name: str) -> bool:
    """Whether ``name`` is one that a problem gives to a function, such as f."""
    return is_unknown(name) and name not in OPERATORS and name not in _OPERATIONS


def _finite(value: SetMembership | SetBuilder) -> tuple[Value, ...] | None:
    """Return the set that ``x in {1, 2}`` or ``{x : x = 1 or x = 2}`` lists."""
    if isinstance(value, SetMembership):
        listed = isinstance(value.right, ValueList) and value.right.brackets == "{}"
        return (value.right,) if listed and not value.negated else None
    given = tuple(
        part.parts[1]
        for part in value.conditions
        if isinstance(part, Relation) and part.ops == ("=",) and part.parts[0] == value.head
    )
    return (ValueList("{}", given),) if len(given) == len(value.conditions) > 0 else None


def is_assignment(value: Value) -> bool:
    """Whether ``value`` is ``x = ...`` or ``f(x) = ...``, or gives a number to a longer name."""
    if not isinstance(value, Relation):
        return False
    first = value.parts[0]
    return isinstance(first, Sym | Call | ValueList) or (
        _is_name(first) and not _letters(value.parts[-1])
    )


def assignments(value: ValueList) -> dict[str, Value]:
    """Return the values of ``a = 2, f(1) = 3`` by name; empty unless all names are different."""
    named = {
        format_value(item.parts[0]): item.parts[-1]
        for item in value.items
        if isinstance(item, Relation)
        and isinstance(item.parts[0], Sym | Call)
        and item.ops in (("=",), ("~",))
    }
    return named if len(named) == len(value.items) > 1 else {}


def _letters(value: Value) -> frozenset[str]:
    """Return the symbols of an expression or a quantity; of anything else, one of ours."""
    named = is_node(value) or isinstance(value, Quantity)
    return symbols(value) - {"ldots"} if named else frozenset("?")


def _is_name(value: Value) -> bool:
    """Whether ``value`` is the name of a segment or an angle: ``AB``, ``angle ABC``."""
    return isinstance(value, Mul) and all(
        isinstance(factor, Sym)
        and (factor.name[-2:].isupper() or factor.name in ("angle", "triangle"))
        for factor in value.factors
    )


def _is_point(value: Value) -> bool:
    """Whether ``value`` is ``(x, y)``, ``x:y`` or ``M \u2229 N``: names, no values."""
    if isinstance(value, Connective):
        return all(_is_point(part) or isinstance(part, Sym) for part in value.parts)
    if isinstance(value, Ratio):
        return all(isinstance(part, Sym) or _is_name(part) for part in value.parts)
    return isinstance(value, ValueList) and all(isinstance(item, Sym) for item in value.items)


def is_constant_assignment(relation: Relation) -> bool:
    """Whether ``relation`` is ``name = number``."""
    return isinstance(relation.parts[0], Sym) and not _letters(relation.parts[-1])


def same_definition(gold: Relation, answer: Relation) -> tuple[Value, Value] | None:
    """Return the right sides of ``f(x) = ...`` and ``y = ...`` to compare, or None."""
    if gold.ops != ("=",) or answer.ops != ("=",):
        return None
    left, right = gold.parts[0], answer.parts[0]
    if not isinstance(left, Call) and not isinstance(right, Call):
        return None
    if not isinstance(left, Call | Sym) or not isinstance(right, Call | Sym):
        return None
    if left.name != right.name and "y" not in (left.name, right.name):
        return None
    if any(isinstance(head, Call) and not is_function(head.name) for head in (left, right)):
        return None
    if left != right and not all(
        isinstance(head, Sym) or _argument(head) for head in (left, right)
    ):
        return None  # f(2) is not f(3)
    body = answer.parts[1]
    variables = [_argument(left), _argument(right)]
    if all(variables) and variables[0] != variables[1] and is_node(body):
        body = substitute(body, {variables[1]: Sym(variables[0])})
    return gold.parts[1], body


def _argument(head: Value) -> str:
    if isinstance(head, Call) and len(head.args) == 1 and isinstance(head.args[0], Sym):
        return head.args[0].name
    return ""


def without_domain_condition(value: Value) -> Value:
    """Return the 1/x of ``1/x, x != 0``: where it has no value, nobody needs to say so.

    Any other condition belongs to the answer: ``y = 2x, x > 0`` is half of the line ``y = 2x``.
    """
    if not (isinstance(value, ValueList) and value.brackets == "" and len(value.items) > 1):
        return value
    said, *conditions = value.items
    head, body = None, said
    if isinstance(said, Relation) and said.ops == ("=",):
        head, body = said.parts[0], said.parts[-1]
    return (
        said
        if is_node(body) and all(_says_nothing(head, body, each) for each in conditions)
        else value
    )


#: How far from its end a half-line that is left out is looked at.
_BEYOND = (Fraction(-1, 2), Fraction(-1), Fraction(-7, 3))


def _says_nothing(head: Value | None, body: Node, condition: Value) -> bool:
    """Whether a condition ``x != 0`` or ``x >= 1`` leaves out only where a body has no value."""
    if isinstance(condition, SetMembership):
        return condition.right == Sym("RR") and condition.left in walk(body)
    if not isinstance(condition, Relation) or len(condition.ops) != 1:
        return False
    (name, place), op = condition.parts, condition.ops[0]
    if not (isinstance(name, Sym) and name.name in symbols(body) and op in ORDER):
        return False
    if op == ">=" and place in (Num(Fraction(0)), Num(Fraction(1))) and isinstance(head, Sym):
        return head.name.endswith(f"_{name.name}")  # the terms of a sequence begin there
    left_out = list(plus_minus_values(place)) if op in ("!=", "<", ">") else []
    if op != "!=" and isinstance(place, Num):
        away = 1 if op.startswith(">") else -1
        left_out += [Num(place.value + away * step) for step in _BEYOND]
    for each in left_out:
        try:
            if is_node(each):
                Evaluator(0, Budget(10_000)).value(substitute(body, {name.name: each}))
            return False
        except UndefinedValueError:
            continue
    return bool(left_out)


def differences(gold: Relation, answer: Relation) -> tuple[Node, Node] | None:
    """Return left side minus right side of both, None where a side or a unit forbids it."""
    found: list[Node] = []
    units: list[Unit] = []
    for relation in (gold, answer):
        measured = [part for part in relation.parts if isinstance(part, Quantity)]
        units.extend(part.unit for part in measured[:1])
        left, right = (
            part.node if isinstance(part, Quantity) else part for part in relation.parts[:2]
        )
        if not is_node(left) or not is_node(right):
            return None
        found.append(add([left, negate(right)]))
    if len(units) == 2 and unit_ratio(*units) != 1:
        return None
    one, other = found
    segments = _segments(one), _segments(other)
    return (segments[0], segments[1]) if segments[0] and segments[1] else (one, other)


def _segments(node: Node) -> Node | None:
    """Write ``AB`` as one name, if all letters of ``node`` stand in such pairs of capitals."""

    def name_segments(part: Node) -> Node:
        if isinstance(part, Mul) and len(part.factors) == 2 and _is_name(part):
            ends = sorted(factor.name for factor in part.factors if isinstance(factor, Sym))
            if all(len(end) == 1 for end in ends):
                return Sym("segment " + "".join(ends))
        return map_children(part, name_segments)

    found = name_segments(node)
    names = symbols(found)
    return found if names and all(name.startswith("segment ") for name in names) else None


def without_arguments(gold: Node, answer: Node) -> tuple[Node, Node] | None:
    """Write ``y`` for the ``y(t)`` of one side where the other writes ``y``.

    Equations of motion leave the time out as often as not; None if neither side does.
    """
    for one, other in ((gold, answer), (answer, gold)):
        applied = _function_applications(one)
        if (
            applied
            and {name for name, _ in applied} <= symbols(other)
            and len({argument for _, argument in applied}) == 1
            and not _function_applications(other)
        ):
            return _without_arguments(gold), _without_arguments(answer)
    return None


def _function_applications(node: Node) -> set[tuple[str, Node]]:
    """Return the unknown functions of ``node`` with their arguments."""
    calls = (part for part in walk(node) if isinstance(part, Call))
    return {(call.name, call.args[0]) for call in calls if is_function(call.name)}


def _without_arguments(node: Node) -> Node:
    if isinstance(node, Call) and is_function(node.name) and isinstance(node.args[0], Sym):
        return Sym(node.name)
    return map_children(node, _without_arguments)


def same_chain(gold: Relation, answer: Relation, same: Same) -> bool:
    """Whether ``a < b < c`` and ``c > b > a`` say the same."""
    turned = tuple(FLIPPED.get(op, op) for op in reversed(answer.ops))
    return len(gold.parts) == len(answer.parts) and any(
        gold.ops == ops and all(map(same, gold.parts, parts))
        for parts, ops in ((answer.parts, answer.ops), (answer.parts[::-1], turned))
    )


def same_structure(gold: Value, answer: Value, same: Same) -> bool:
    """Compare statements part by part."""
    match gold, answer:
        case SetMembership(), SetMembership():
            return (
                gold.negated == answer.negated
                and same(gold.left, answer.left)
                and same(gold.right, answer.right)
            )
        case Connective(), Connective() if gold.op == answer.op == "minus":
            return all(map(same, gold.parts, answer.parts))
        case SetBuilder(), SetBuilder():
            if not same(gold.head, answer.head):
                return False
            left, right = gold.conditions, answer.conditions
        case ((Connective() | ValueList()), (Connective() | ValueList())) if _connective(
            gold
        ) == _connective(answer):
            left, right = _statements(gold), _statements(answer)
        case _:
            return False
    return len(left) == len(right) <= MAX_STATEMENTS and same_members(left, right, same)


def _connective(value: Connective | ValueList) -> str:
    """Return what joins statements; a comma is an "and"."""
    return value.op if isinstance(value, Connective) else "and"


def _statements(value: Connective | ValueList) -> tuple[Value, ...]:
    return value.parts if isinstance(value, Connective) else value.items


def same_members(
    gold: Sequence[Each], answer: Sequence[Each], same: Callable[[Each, Each], bool]
) -> bool:
    """Whether each member of one side is among those of the other; how often does not matter."""
    met = [[same(one, other) for other in answer] for one in gold]
    return all(map(any, met)) and all(map(any, zip(*met, strict=True)))
