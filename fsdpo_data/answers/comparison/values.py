"""Compare two answers by what the gold is: a number, a list, an interval, a relation, words."""

from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.budget import Budget
from fsdpo_data.answers.comparison import families, reals, relations
from fsdpo_data.answers.comparison.expressions import (
    constant_ratio,
    parameter_ratio,
    same_node,
    within_tolerance,
)
from fsdpo_data.answers.comparison.reals import NotASetError, parse_real_set
from fsdpo_data.answers.lexicon import units
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import Node, Value

MAX_ITEMS = 200  #: Longest lists that are compared.
_ORDERED = ("()", "[]", "(]", "[)")
_HALF_DAY = 12 * 3600
_STATEMENTS = (tree.Relation, tree.SetMembership, tree.Connective, tree.SetBuilder)


class AnswerComparer:
    """Compares one gold with one answer within one budget."""

    def __init__(self, budget: Budget, tolerance: float | None = None) -> None:
        self.budget = budget
        self._listed = False
        self.tolerance = None if tolerance is None else Fraction(tolerance)

    def same(self, gold: Value, answer: Value) -> bool:
        """Whether ``answer`` deserves the mark for ``gold``.

        Raises:
            BudgetExceededError: Deciding takes too many operations.
            NumberTooLargeError: Both sides are too large to be calculated with.
        """
        if isinstance(gold, tree.Words) or isinstance(answer, tree.Words):
            return False  # words were compared as words
        if gold == answer:
            return True
        if isinstance(gold, tree.DateOrTime) or isinstance(answer, tree.DateOrTime):
            return _same_moment(gold, answer)
        gold, answer = (
            relations.without_domain_condition(gold),
            relations.without_domain_condition(answer),
        )
        if _is_statement(gold) or _is_statement(answer):
            return self._statements(gold, answer)
        if isinstance(gold, tree.Piecewise) or isinstance(answer, tree.Piecewise):
            return self._cases(gold, answer)
        gold, answer = _expand(gold), _expand(answer)
        several = tree.ValueList | tree.Matrix
        if isinstance(gold, several) or isinstance(answer, several):
            return self._collections(gold, answer)
        return self._scalars(gold, answer)

    def _cases(self, gold: Value, answer: Value) -> bool:
        """Compare two functions by cases, whose branches stand in any order.

        "Otherwise" stands for any condition that its own side does not name.
        """
        if not (isinstance(gold, tree.Piecewise) and isinstance(answer, tree.Piecewise)):
            return False
        left, right = ([when for _, when in each.branches if when] for each in (gold, answer))

        def same_branch(one: tree.Branch, other: tree.Branch) -> bool:
            if not self.same(one[0], other[0]):
                return False
            if one[1] and other[1]:
                return one[1] == other[1] or self.same(one[1], other[1])
            named, taken = (one[1], right) if one[1] else (other[1], left)
            return named is None or not any(x == named or self.same(x, named) for x in taken)

        return len(gold.branches) == len(answer.branches) and relations.same_members(
            gold.branches, answer.branches, same_branch
        )

    def _scalars(self, gold: Value, answer: Value) -> bool:
        if isinstance(gold, tree.NumberInBase) or isinstance(answer, tree.NumberInBase):
            return _same_digits(gold, answer)
        if isinstance(gold, tree.Ratio) or isinstance(answer, tree.Ratio):
            return self._ratios(gold, answer)
        if isinstance(gold, tree.Quantity) and isinstance(answer, tree.Quantity):
            return self._quantities(gold, answer)
        if isinstance(gold, tree.Quantity) or isinstance(answer, tree.Quantity):
            return self._compare_quantity(gold, answer)
        return tree.is_node(gold) and tree.is_node(answer) and self._nodes(gold, answer)

    def _nodes(self, gold: Node, answer: Node) -> bool:
        if same_node(gold, answer, self.budget):
            return True
        if isinstance(gold, tree.Num):
            tolerance = self.tolerance
            return tolerance is not None and within_tolerance(gold, answer, tolerance, self.budget)
        return families.same_up_to_constants(gold, answer, self.budget) or families.same_family(
            gold, answer, self.same, self.budget
        )

    def _quantities(self, gold: tree.Quantity, answer: tree.Quantity) -> bool:
        size = units.unit_ratio(answer.unit, gold.unit)
        if size is None or units.are_opposites(gold.unit.words, answer.unit.words):
            return False
        counted = not (gold.unit.dims or answer.unit.dims)
        if self._listed and counted and gold.unit.label.lower() != answer.unit.label.lower():
            return False  # "9 red and 5 blue" are not 5 red and 9 blue
        if size == 1:
            return self._nodes(gold.node, answer.node)
        return self._nodes(gold.node, tree.scale(answer.node, size))

    def _compare_quantity(self, gold: Value, answer: Value) -> bool:
        """Compare a quantity with a value that states no unit."""
        quantity, other = (gold, answer) if isinstance(gold, tree.Quantity) else (answer, gold)
        if not (isinstance(quantity, tree.Quantity) and tree.is_node(other)):
            return False
        if quantity.unit.dims == units.PERCENT.dims:
            return self._percentage(quantity, other, quantity is gold)
        if quantity.unit.dims == units.RANK_DIMS and quantity.unit.label not in units.RANK_WORDS:
            return False  # "seventh grade" is not 7, "seventh place" is
        if quantity.unit.dims == units.PART_DIMS:
            return self._nodes(tree.scale(quantity.node, quantity.unit.factor), other)
        if quantity.unit.dims == units.DEGREE.dims and tree.Const("pi") in tree.walk(other):
            return self._nodes(tree.Call("deg", (quantity.node,)), other)
        return self._nodes(quantity.node, other)

    def _percentage(self, percentage: tree.Quantity, other: Node, is_gold: bool) -> bool:
        """Compare a percentage, which is its value, with a number.

        A missing sign is forgiven only where the question was asked in percent: the gold has the
        sign, or it is 1 or more.
        """
        value = other.value if isinstance(other, tree.Num) else Fraction(0)
        asked = is_gold or abs(value) >= 1
        if asked and self._nodes(percentage.node, other):
            return True
        if abs(value) > 1 and value.denominator == 1:
            return False  # 18 is a count, or 18 of a hundred; nobody writes it as 1800 %
        return self._nodes(tree.scale(percentage.node, Fraction(1, 100)), other)

    def _ratios(self, gold: Value, answer: Value) -> bool:
        first, second = _parts(gold), _parts(answer)
        if len(first) == len(second) == 1:
            return self._nodes(first[0], second[0])
        return len(first) == len(second) > 1 and all(
            self._nodes(tree.divide(first[0], a), tree.divide(second[0], b))
            for a, b in zip(first[1:], second[1:], strict=True)
        )

    def _collections(self, gold: Value, answer: Value) -> bool:
        if isinstance(gold, tree.Matrix) or isinstance(answer, tree.Matrix):
            return self._matrices(gold, answer)
        if not (isinstance(gold, tree.ValueList) and isinstance(answer, tree.ValueList)):
            return self._one_of_one(gold, answer)
        if max(len(gold.items), len(answer.items)) > MAX_ITEMS:
            return False
        left, right = gold.brackets, answer.brackets
        if left in _ORDERED or right in _ORDERED:
            if not _brackets_agree(left, right, len(gold.items)):
                return False
            named = relations.assignments(answer)
            values = tuple(named[name] for name in sorted(named))  # "y = 2, x = 1" for (1, 2)
            return self._in_order(gold.items, values or answer.items)
        names = relations.assignments(gold), relations.assignments(answer)
        if names[0] and names[1] and names[0].keys() == names[1].keys():
            return all(self.same(value, names[1][name]) for name, value in names[0].items())
        # Roots, called x_1 and x_2, come in no order.
        named = names[0] or (names[1] if gold.brackets == "" else {})
        if all(name[:2] in ("x_", "t_", "z_") and name[2:].isdigit() for name in named):
            return self._compare_unordered(_values(gold), _values(answer))
        if not names[0]:  # "a = 2, b = 1" says which is which
            orders = named.values(), (named[name] for name in sorted(named))
            return any(self._in_order(gold.items, tuple(order)) for order in orders)
        if any(isinstance(item, tree.Relation) for item in answer.items):
            return False
        return self._in_order(tuple(names[0].values()), answer.items)

    def _one_of_one(self, gold: Value, answer: Value) -> bool:
        """Compare a list of one, or one value in several forms, with a value that stands alone."""
        if isinstance(answer, tree.ValueList) and answer.brackets == "" and answer.items:
            values = _values(answer)
            same_number = len({value.value for value in values if isinstance(value, tree.Num)}) < 2
            return same_number and all(self.same(gold, value) for value in values)
        for items, other in ((gold, answer), (answer, gold)):
            if isinstance(items, tree.ValueList) and len(items.items) == 1:
                # Among the members of a set, the set of one is another member than the one.
                member = self._listed and items.brackets == "{}"
                return not member and self.same(items.items[0], other)
        return False

    def _in_order(self, gold: tuple[Value, ...], answer: tuple[Value, ...]) -> bool:
        return len(gold) == len(answer) and all(map(self.same, gold, answer))

    def _compare_unordered(self, gold: tuple[Value, ...], answer: tuple[Value, ...]) -> bool:
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
        if not (isinstance(gold, tree.Matrix) and isinstance(answer, tree.Matrix)):
            # A tuple may be meant as a row or as a column.
            first, second = _flat(first), _flat(second)
        return len(first) == len(second) and all(
            self._in_order(a, b) for a, b in zip(first, second, strict=True)
        )

    def _statements(self, gold: Value, answer: Value) -> bool:
        for one, other in ((gold, answer), (answer, gold)):
            if families.residue_with_modulus(one) and (
                _is_statement(other) or families.parse_family(other)
            ):
                return families.same_congruence(gold, answer, self.same)
        if self._as_sets(gold, answer):
            return True
        if isinstance(gold, tree.Relation) and isinstance(answer, tree.Relation):
            return self._relations(gold, answer)
        if not _is_statement(gold):
            said = relations.chain_result(answer, gold)
            rounded = isinstance(answer, tree.Relation) and "~" in answer.ops
            return said is not None and (any if rounded else all)(self.same(gold, x) for x in said)
        if not _is_statement(answer):
            named = isinstance(gold, tree.SetMembership) or relations.is_assignment(gold)
            said = relations.assigned_values(gold) if named else None
            return said is not None and self.same(said[-1], answer)
        for said, other in (
            (relations.assigned_values(answer), gold),
            (relations.assigned_values(gold), answer),
        ):
            if said is not None and self.same(other, said[-1]):
                return True
        return relations.same_structure(gold, answer, self.same)

    def _as_sets(self, gold: Value, answer: Value) -> bool:
        try:
            first, second = parse_real_set(gold, self.budget), parse_real_set(answer, self.budget)
        except NotASetError:
            return families.same_family(gold, answer, self.same, self.budget)
        if first.variable and second.variable and first.variable != second.variable:
            return False
        return reals.same_set(first, second, self.budget)

    def _relations(self, gold: tree.Relation, answer: tree.Relation) -> bool:
        definitions = relations.same_definition(gold, answer)
        if definitions is not None:
            return self.same(*definitions)
        if set(gold.ops) == set(answer.ops) == {"="} and len(gold.parts) == len(answer.parts) == 2:
            return self._equations(gold, answer)
        if len(gold.parts) == len(answer.parts) == 2:
            return self._inequalities(gold, answer)
        return relations.same_chain(gold, answer, self.same)

    def _equations(self, gold: tree.Relation, answer: tree.Relation) -> bool:
        if all(self.same(a, b) for a, b in zip(gold.parts, answer.parts, strict=True)):
            return True
        if relations.is_constant_assignment(gold) and relations.is_constant_assignment(answer):
            return False
        sides = relations.differences(gold, answer)
        if sides is None:
            return False
        if constant_ratio(*sides, self.budget) or parameter_ratio(*sides, self.budget):
            return True
        bare = relations.without_arguments(*sides)
        return bare is not None and constant_ratio(*bare, self.budget) != 0

    def _inequalities(self, gold: tree.Relation, answer: tree.Relation) -> bool:
        if relations.same_chain(gold, answer, self.same):
            return True
        sides = relations.differences(gold, answer)
        if sides is None or not relations.ORDER.issuperset((*gold.ops, *answer.ops)):
            return False
        sign = constant_ratio(*sides, self.budget)
        if gold.ops == answer.ops:
            return sign == 1 or (sign != 0 and gold.ops[0] == "!=")
        return sign == -1 and relations.FLIPPED.get(gold.ops[0]) == answer.ops[0]


def _expand(value: Value) -> Value:
    values = tree.plus_minus_values(value)
    return value if len(values) == 1 else tree.ValueList("", values)


def _parts(value: Value) -> tuple[Node, ...]:
    """Return the parts of a ratio; a ratio of two is its quotient."""
    if isinstance(value, tree.Ratio):
        return (tree.divide(*value.parts),) if len(value.parts) == 2 else value.parts
    node = value.node if isinstance(value, tree.Quantity) else value
    return (node,) if tree.is_node(node) else ()


def _is_statement(value: Value) -> bool:
    if isinstance(value, tree.ValueList) and value.brackets == "":
        return any(
            isinstance(item, tree.SetMembership)
            or (isinstance(item, tree.Relation) and item.ops not in (("=",), ("~",)))
            for item in value.items
        )
    return isinstance(value, _STATEMENTS) or (isinstance(value, tree.Sym) and value.name == "RR")


def _brackets_agree(left: str, right: str, length: int) -> bool:
    if left == right:
        return True
    pair = {left, right}
    if pair == {"()", "[]"}:
        return length > 2
    return "" in pair and bool(pair & {"()", "[]"}) and (length != 2 or pair == {"", "()"})


def _rows(value: Value) -> tuple[tuple[Value, ...], ...] | None:
    if isinstance(value, tree.Matrix):
        return value.rows
    if not isinstance(value, tree.ValueList) or value.brackets not in ("()", "[]", ""):
        return None
    tuples = [item for item in value.items if isinstance(item, tree.ValueList)]
    if len(tuples) < len(value.items) or any(row.brackets not in ("()", "[]") for row in tuples):
        return (value.items,)
    return tuple(row.items for row in tuples)


def _flat(rows: tuple[tuple[Value, ...], ...]) -> tuple[tuple[Value, ...], ...]:
    """Return a column as a row."""
    return rows if any(len(row) > 1 for row in rows) else (tuple(row[0] for row in rows),)


def _values(items: tree.ValueList) -> tuple[Value, ...]:
    """Return the values of a list: assignments give theirs, ``±`` gives two."""
    found: list[Value] = []
    for item in items.items:
        said = relations.assigned_values(item)
        found.extend(tree.plus_minus_values(item if said is None else said[-1]))
    return tuple(found)


def _same_moment(gold: Value, answer: Value) -> bool:
    """Whether two clock times or dates agree in everything both state."""
    if isinstance(answer, tree.Num) and isinstance(gold, tree.DateOrTime):
        if gold.seconds is None or gold.day is not None or gold.half_of_day not in ("am", "pm"):
            return False
        return gold.seconds % 3600 == 0 and answer.value % 12 == gold.seconds // 3600 % 12
    if not (isinstance(gold, tree.DateOrTime) and isinstance(answer, tree.DateOrTime)):
        return False
    for left, right in ((gold.day, answer.day), (gold.month, answer.month)):
        if left != right and (gold.seconds is None or (left is not None and right is not None)):
            return False
    if gold.year is not None and answer.year is not None and gold.year != answer.year:
        return False
    if gold.seconds is None or answer.seconds is None:
        return gold.seconds == answer.seconds
    if gold.seconds == answer.seconds:
        return True
    # "3:30" without a.m. or p.m. may be either.
    return abs(gold.seconds - answer.seconds) == _HALF_DAY and (
        (
            gold.half_of_day == ""
            and gold.seconds < _HALF_DAY + 3600
            and answer.half_of_day in ("am", "pm")
        )
        or (
            answer.half_of_day == ""
            and answer.seconds < _HALF_DAY + 3600
            and gold.half_of_day in ("am", "pm")
        )
    )


def _same_digits(gold: Value, answer: Value) -> bool:
    """Compare numbers in a base; the answer may leave out the gold's base."""
    if isinstance(gold, tree.NumberInBase) and isinstance(answer, tree.NumberInBase):
        written = [each.digits.lstrip("0") for each in (gold, answer)]
        return gold.base == answer.base and written[0] == written[1]
    for based, other in ((gold, answer), (answer, gold)):
        if (
            isinstance(based, tree.NumberInBase)
            and based.base == 10
            and isinstance(other, tree.Num)
        ):
            return Fraction(based.digits) == other.value
    if isinstance(gold, tree.NumberInBase) and isinstance(answer, tree.Num):
        return gold.digits.lstrip("0") == format_value(answer).lstrip("0")
    return False
