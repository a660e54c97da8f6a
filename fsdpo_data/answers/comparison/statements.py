"""Comparison of statements part by part: chains of relations, set-builders, joined statements."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from fsdpo_data.answers.tree import (
    Connective,
    Relation,
    SetBuilder,
    SetMembership,
    Sym,
    Value,
    ValueList,
)

Member = TypeVar("Member")
#: Comparison of a part of the gold with a part of the answer.
ValueComparison = Callable[[Value, Value], bool]

#: Operators of a relation after its sides are swapped.
SWAPPED_OPS = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!=", "->": "<-",
               "sub": "sup", "sup": "sub", "sub=": "sup=", "sup=": "sub="}  # fmt: skip
_STATEMENT_TYPES = (Relation, SetMembership, Connective, SetBuilder)
_ORDER_OPS = frozenset(("<", ">", "<=", ">="))
MAX_STATEMENTS = 20  #: Most statements that are compared in any order.


def is_statement(value: Value) -> bool:
    """Whether ``value`` is a relation, a set, or a list that contains one.

    A list of equations such as ``a = 2, b = 1`` is a list of values, not a statement.
    """
    if isinstance(value, ValueList) and value.brackets == "":
        return any(
            isinstance(item, SetMembership)
            or (isinstance(item, Relation) and item.ops not in (("=",), ("~",)))
            for item in value.items
        )
    return isinstance(value, _STATEMENT_TYPES) or (isinstance(value, Sym) and value.name == "RR")


def are_equal_chains(gold: Relation, answer: Relation, is_equal: ValueComparison) -> bool:
    """Whether two chains agree in either direction: ``a < b < c`` is ``c > b > a``."""
    reversed_ops = tuple(SWAPPED_OPS.get(op, op) for op in reversed(answer.ops))
    return len(gold.parts) == len(answer.parts) and any(
        gold.ops == ops and all(map(is_equal, gold.parts, parts))
        for parts, ops in ((answer.parts, answer.ops), (answer.parts[::-1], reversed_ops))
    )


def as_pairs(value: Value) -> tuple[Relation, ...] | None:
    """Return the relations of two sides in a chain or in joined relations; None for other values.

    ``a < b < c`` and ``a < b and c > b`` have the same pairs.
    """
    parts = value.parts if isinstance(value, Connective) and value.op == "and" else (value,)
    if isinstance(value, ValueList) and value.brackets == "":
        parts = value.items
    pairs: list[Relation] = []
    for part in parts:
        if not isinstance(part, Relation) or not set(part.ops) <= _ORDER_OPS:
            return None
        for left, op, right in zip(part.parts, part.ops, part.parts[1:], strict=False):
            is_swapped = op.startswith(">")
            sides = (right, left) if is_swapped else (left, right)
            pairs.append(Relation(sides, (SWAPPED_OPS[op] if is_swapped else op,)))
    return tuple(pairs)


def are_equal_statements(gold: Value, answer: Value, is_equal: ValueComparison) -> bool:
    """Whether two statements of the same form have equal parts."""
    gold_pairs = as_pairs(gold)
    answer_pairs = as_pairs(answer) if gold_pairs else None
    if gold_pairs and answer_pairs and len(gold_pairs) == len(answer_pairs) <= MAX_STATEMENTS:
        return have_same_members(gold_pairs, answer_pairs, is_equal)
    match gold, answer:
        case SetMembership(), SetMembership():
            return (
                gold.negated == answer.negated
                and is_equal(gold.left, answer.left)
                and is_equal(gold.right, answer.right)
            )
        case Connective(), Connective() if gold.op == answer.op == "minus":
            return all(map(is_equal, gold.parts, answer.parts))
        case SetBuilder(), SetBuilder():
            if gold.head != answer.head and (
                isinstance(gold.head, ValueList) or not is_equal(gold.head, answer.head)
            ):
                return False
            gold_parts = gold.conditions
            answer_parts = answer.conditions
        case ((Connective() | ValueList()), (Connective() | ValueList())) if _connective(
            gold
        ) == _connective(answer):
            gold_parts = _parts(gold)
            answer_parts = _parts(answer)
        case _:
            return False
    if not len(gold_parts) == len(answer_parts) <= MAX_STATEMENTS:
        return False
    return have_same_members(gold_parts, answer_parts, is_equal)


def _connective(value: Connective | ValueList) -> str:
    """Return the operator between statements; a comma counts as ``and``."""
    return value.op if isinstance(value, Connective) else "and"


def _parts(value: Connective | ValueList) -> tuple[Value, ...]:
    return value.parts if isinstance(value, Connective) else value.items


def have_same_members(
    gold: Sequence[Member], answer: Sequence[Member], is_equal: Callable[[Member, Member], bool]
) -> bool:
    """Whether each member of one side equals a member of the other; repetitions do not matter."""
    is_equal_by_pair = [
        [is_equal(gold_member, answer_member) for answer_member in answer] for gold_member in gold
    ]
    has_each_gold = all(map(any, is_equal_by_pair))
    return has_each_gold and all(map(any, zip(*is_equal_by_pair, strict=True)))
