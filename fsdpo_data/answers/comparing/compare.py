"""Compare two answers by what the gold is: a number, a list, an interval, a relation, words."""

from __future__ import annotations

from fractions import Fraction

from fsdpo_data.answers.budget import Budget
from fsdpo_data.answers.comparing import families, reals, relations
from fsdpo_data.answers.comparing.agree import constant_ratio, parameter_ratio, same_node, within
from fsdpo_data.answers.comparing.moments import same_digits, same_moment
from fsdpo_data.answers.comparing.reals import NotASet, real_set
from fsdpo_data.answers.lexicon import units
from fsdpo_data.answers.tree import (
    Based,
    Builder,
    Call,
    Cases,
    Const,
    Items,
    Join,
    Matrix,
    Member,
    Moment,
    Node,
    Num,
    Quantity,
    Ratio,
    Relation,
    Sym,
    Text,
    Unit,
    Value,
    both_values,
    divide,
    is_node,
    multiply,
    walk,
)

#: Longest lists that are compared.
MAX_ITEMS = 200
_ORDERED = ("()", "[]", "(]", "[)")
_STATEMENTS = (Relation, Member, Join, Builder)


class Comparison:
    """Compares one gold with one answer within one budget.

    Args:
        budget: Counts operations.
        tolerance: Relative error that numbers may have, or None.
    """

    def __init__(self, budget: Budget, tolerance: float | None = None) -> None:
        self.budget = budget
        self._listed = False
        self.tolerance = None if tolerance is None else Fraction(tolerance)

    def same(self, gold: Value, answer: Value) -> bool:
        """Whether ``answer`` deserves the mark for ``gold``.

        Raises:
            OutOfBudget: Deciding takes too many operations.
            TooLarge: Both sides are too large to be calculated with.
        """
        if isinstance(gold, Text) or isinstance(answer, Text):
            return False  # words were compared as words
        if gold == answer:
            return True
        if isinstance(gold, Moment) or isinstance(answer, Moment):
            return same_moment(gold, answer)
        if _is_statement(gold) or _is_statement(answer):
            return self._statements(gold, answer)
        if isinstance(gold, Cases) or isinstance(answer, Cases):
            return self._cases(gold, answer)
        gold, answer = _expanded(gold), _expanded(answer)
        if isinstance(gold, Items | Matrix) or isinstance(answer, Items | Matrix):
            return self._collections(gold, answer)
        return self._scalars(gold, answer)

    def _cases(self, gold: Value, answer: Value) -> bool:
        """Compare two functions by cases, whose branches stand in any order."""
        if not (isinstance(gold, Cases) and isinstance(answer, Cases)):
            return False
        left = list(gold.branches)
        for value, condition in sorted(answer.branches, key=lambda branch: branch[1] is None):
            found = [
                branch
                for branch in sorted(left, key=lambda branch: branch[1] is None)
                if self.same(branch[0], value) and self._same_condition(branch[1], condition)
            ]
            if not found:
                return False
            left.remove(found[0])
        return not left

    def _same_condition(self, gold: Value | None, answer: Value | None) -> bool:
        if gold is None or answer is None or gold == answer:
            return True  # "otherwise" is what the other branches leave
        return self.same(gold, answer)

    def _scalars(self, gold: Value, answer: Value) -> bool:
        if isinstance(gold, Based) or isinstance(answer, Based):
            return same_digits(gold, answer)
        if isinstance(gold, Ratio) or isinstance(answer, Ratio):
            return self._ratios(gold, answer)
        if isinstance(gold, Quantity) and isinstance(answer, Quantity):
            return self._quantities(gold, answer)
        if isinstance(gold, Quantity) or isinstance(answer, Quantity):
            return self._measured(gold, answer)
        return self._nodes(_node(gold), _node(answer))

    def _nodes(self, gold: Node, answer: Node) -> bool:
        if same_node(gold, answer, self.budget):
            return True
        if isinstance(gold, Num):
            tolerance = self.tolerance
            return tolerance is not None and within(gold, answer, tolerance, self.budget)
        return families.same_up_to_constants(gold, answer, self.budget) or families.same_family(
            gold, answer, self
        )

    def _quantities(self, gold: Quantity, answer: Quantity) -> bool:
        size = units.ratio(answer.unit, gold.unit)
        if (
            size is None
            or units.opposed(gold.unit, answer.unit)
            or (self._listed and not _same_things(gold.unit, answer.unit))
        ):
            return False
        if size == 1:
            return self._nodes(gold.node, answer.node)
        return self._nodes(gold.node, multiply([_exactly(answer.node), Num(size)]))

    def _measured(self, gold: Value, answer: Value) -> bool:
        """Compare a quantity with a value that states no unit."""
        quantity, other = (gold, answer) if isinstance(gold, Quantity) else (answer, gold)
        node = _node(other)
        if not isinstance(quantity, Quantity):
            return False
        if quantity.unit.dims == units.PERCENT.dims:
            return self._percentage(quantity, node, quantity is gold)
        if quantity.unit.dims == units.PLACE and quantity.unit.label != "th":
            return False  # "seventh grade" is not 7
        if quantity.unit.dims == units.PART:
            whole = multiply([_exactly(quantity.node), Num(quantity.unit.factor)])
            return self._nodes(whole, node)
        if self._nodes(quantity.node, node):
            return True
        in_radians = quantity.unit == units.DEGREE and Const("pi") in walk(node)
        return in_radians and self._nodes(Call("deg", (quantity.node,)), node)

    def _percentage(self, percentage: Quantity, other: Node, is_gold: bool) -> bool:
        """Compare a percentage, which is its value, with a number.

        A missing sign is forgiven only where the question was asked in percent: the gold has the
        sign, or it is 1 or more.
        """
        value = other.value if isinstance(other, Num) else Fraction(0)
        asked = is_gold or abs(value) >= 1
        if asked and self._nodes(percentage.node, other):
            return True
        if abs(value) > 1 and value.denominator == 1:
            return False  # 18 is a count, or 18 of a hundred; nobody writes it as 1800 %
        return self._nodes(multiply([_exactly(percentage.node), Num(Fraction(1, 100))]), other)

    def _ratios(self, gold: Value, answer: Value) -> bool:
        first, second = _parts(gold), _parts(answer)
        if len(first) != len(second):
            return False
        if len(first) == 1:
            return self._nodes(first[0], second[0])
        return all(
            self._nodes(divide(first[0], a), divide(second[0], b))
            for a, b in zip(first[1:], second[1:], strict=True)
        )

    def _collections(self, gold: Value, answer: Value) -> bool:
        if isinstance(gold, Matrix) or isinstance(answer, Matrix):
            return self._matrices(gold, answer)
        if not (isinstance(gold, Items) and isinstance(answer, Items)):
            return self._one_of_one(gold, answer)
        if max(len(gold.items), len(answer.items)) > MAX_ITEMS:
            return False
        left, right = gold.brackets, answer.brackets
        if left in _ORDERED or right in _ORDERED:
            if not _brackets_agree(left, right, len(gold.items)):
                return False
            return self._in_order(gold.items, _in_order_of_names(answer.items))
        names = relations.assignments(gold), relations.assignments(answer)
        if names[0] and names[1] and names[0].keys() == names[1].keys():
            return all(self.same(value, names[1][name]) for name, value in names[0].items())
        if names[0]:
            if relations.are_roots(names[0]):
                return self._unordered(tuple(names[0].values()), _values(answer))
            if any(isinstance(item, Relation) for item in answer.items):
                return False
            return self._in_order(tuple(names[0].values()), answer.items)
        return self._unordered(_values(gold), _values(answer))

    def _one_of_one(self, gold: Value, answer: Value) -> bool:
        """Compare a list of one, or one value in several forms, with a value that stands alone."""
        if isinstance(answer, Items) and answer.brackets == "" and answer.items:
            values = _values(answer)
            same_number = len({value.value for value in values if isinstance(value, Num)}) < 2
            return same_number and all(self.same(gold, value) for value in values)
        for items, other in ((gold, answer), (answer, gold)):
            if isinstance(items, Items) and len(items.items) == 1:
                return self.same(items.items[0], other)
        return False

    def _in_order(self, gold: tuple[Value, ...], answer: tuple[Value, ...]) -> bool:
        return len(gold) == len(answer) and all(map(self.same, gold, answer))

    def _unordered(self, gold: tuple[Value, ...], answer: tuple[Value, ...]) -> bool:
        """Every value of one side occurs on the other; how often does not matter."""
        if not gold or not answer:
            return not gold and not answer
        if len(gold) * len(answer) > MAX_ITEMS * MAX_ITEMS // 4:
            return set(gold) == set(answer)
        self._listed = True
        same = relations.same_members(gold, answer, self.same)
        self._listed = False
        return same

    def _matrices(self, gold: Value, answer: Value) -> bool:
        first, second = _rows(gold), _rows(answer)
        if first is None or second is None:
            return False
        if not (isinstance(gold, Matrix) and isinstance(answer, Matrix)):
            # A tuple may be meant as a row or as a column.
            first, second = _flat(first), _flat(second)
        return len(first) == len(second) and all(
            self._in_order(a, b) for a, b in zip(first, second, strict=True)
        )

    def _statements(self, gold: Value, answer: Value) -> bool:
        if families.has_modulus(gold) and (_is_statement(answer) or families.family(answer)):
            return families.same_congruence(gold, answer, self)
        if families.has_modulus(answer) and (_is_statement(gold) or families.family(gold)):
            return families.same_congruence(gold, answer, self)
        if self._as_sets(gold, answer):
            return True
        if isinstance(gold, Relation) and isinstance(answer, Relation):
            return self._relations(gold, answer)
        if not _is_statement(gold):
            said = relations.assigned(answer)
            return said is not None and self._said(gold, answer, said)
        if not _is_statement(answer):
            said = relations.assigned(gold) if relations.names_value(gold) else None
            return said is not None and self.same(said[-1], answer)
        for said, other in ((relations.assigned(answer), gold), (relations.assigned(gold), answer)):
            if said is not None and self.same(other, said[-1]):
                return True
        return relations.same_structure(gold, answer, self)

    def _said(self, gold: Value, answer: Value, said: tuple[Value, ...]) -> bool:
        """Compare a gold with the value that ``x = ...`` gives."""
        if isinstance(answer, Relation) and "~" in answer.ops:
            return any(self.same(gold, part) for part in said)
        return all(self.same(gold, part) for part in said)

    def _as_sets(self, gold: Value, answer: Value) -> bool:
        try:
            first, second = real_set(gold, self.budget), real_set(answer, self.budget)
        except NotASet:
            return families.same_family(gold, answer, self)
        if first.variable and second.variable and first.variable != second.variable:
            return False
        return reals.same_set(first, second, self.budget)

    def _relations(self, gold: Relation, answer: Relation) -> bool:
        definitions = relations.same_definition(gold, answer)
        if definitions is not None:
            return self.same(*definitions)
        if set(gold.ops) == set(answer.ops) == {"="} and len(gold.parts) == len(answer.parts) == 2:
            return self._equations(gold, answer)
        if len(gold.parts) == len(answer.parts) == 2:
            return self._inequalities(gold, answer)
        return relations.same_chain(gold, answer, self)

    def _equations(self, gold: Relation, answer: Relation) -> bool:
        if all(self.same(a, b) for a, b in zip(gold.parts, answer.parts, strict=True)):
            return True
        if relations.is_constant_assignment(gold) and relations.is_constant_assignment(answer):
            return False
        sides = relations.differences(gold, answer)
        if sides is None:
            return False
        if constant_ratio(*sides, self.budget) or parameter_ratio(*sides, self.budget):
            return True
        bare = relations.unapplied(*sides)
        return bare is not None and constant_ratio(*bare, self.budget) != 0

    def _inequalities(self, gold: Relation, answer: Relation) -> bool:
        if relations.same_chain(gold, answer, self):
            return True
        sides = relations.differences(gold, answer)
        if sides is None or not relations.ORDER.issuperset((*gold.ops, *answer.ops)):
            return False
        sign = constant_ratio(*sides, self.budget)
        if gold.ops == answer.ops:
            return sign == 1 or (sign != 0 and gold.ops[0] == "!=")
        return sign == -1 and relations.FLIPPED.get(gold.ops[0]) == answer.ops[0]


def _same_things(left: Unit, right: Unit) -> bool:
    """Whether two names of counted things are the same: "9 red and 5 blue"."""
    return bool(left.dims or right.dims) or left.label.lower() == right.label.lower()


def _expanded(value: Value) -> Value:
    values = both_values(value)
    return value if len(values) == 1 else Items("", values)


def _exactly(node: Node) -> Node:
    return Num(node.value) if isinstance(node, Num) else node


def _node(value: Value) -> Node:
    if not is_node(value):
        raise TypeError(f"{type(value).__name__} is no expression")
    return value


def _parts(value: Value) -> tuple[Node, ...]:
    """Return the parts of a ratio; a ratio of two is its quotient."""
    if isinstance(value, Ratio):
        if len(value.parts) == 2:
            return (divide(*value.parts),)
        return value.parts
    return (value.node if isinstance(value, Quantity) else _node(value),)


def _is_statement(value: Value) -> bool:
    if isinstance(value, Items) and value.brackets == "":
        return any(isinstance(item, Member) or _is_inequality(item) for item in value.items)
    return isinstance(value, _STATEMENTS) or (isinstance(value, Sym) and value.name == "RR")


def _is_inequality(value: Value) -> bool:
    return isinstance(value, Relation) and value.ops != ("=",)


def _brackets_agree(left: str, right: str, length: int) -> bool:
    if left == right:
        return True
    pair = {left, right}
    if pair == {"()", "[]"}:
        return length > 2
    return "" in pair and bool(pair & {"()", "[]"}) and (length != 2 or pair == {"", "()"})


def _rows(value: Value) -> tuple[tuple[Value, ...], ...] | None:
    if isinstance(value, Matrix):
        return value.rows
    if isinstance(value, Items) and value.brackets in ("()", "[]", ""):
        if all(isinstance(item, Items) and item.brackets in ("()", "[]") for item in value.items):
            return tuple(item.items for item in value.items if isinstance(item, Items))
        return (value.items,)
    return None


def _flat(rows: tuple[tuple[Value, ...], ...]) -> tuple[tuple[Value, ...], ...]:
    if all(len(row) == 1 for row in rows):
        return (tuple(row[0] for row in rows),)
    return rows


def _values(items: Items) -> tuple[Value, ...]:
    """Return the values of a list: assignments give theirs, ``±`` gives two."""
    found: list[Value] = []
    for item in items.items:
        said = relations.assigned(item)
        found.extend(both_values(item if said is None else said[-1]))
    return tuple(found)


def _in_order_of_names(items: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return the values of ``y = 2, x = 1`` in the order of the names, other values as is."""
    named = [
        (item.parts[0].name, item.parts[-1])
        for item in items
        if isinstance(item, Relation) and isinstance(item.parts[0], Sym) and item.ops == ("=",)
    ]
    if len(named) != len(items) or len({name for name, _ in named}) != len(items):
        return items
    return tuple(value for _, value in sorted(named, key=lambda pair: pair[0]))
