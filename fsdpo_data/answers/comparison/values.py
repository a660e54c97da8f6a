"""Comparison of two parsed answers by the type of their values."""

from collections.abc import Callable
from fractions import Fraction
from typing import Self

from fsdpo_data.answers import tree
from fsdpo_data.answers.budget import Budget
from fsdpo_data.answers.comparison import assignments, points, relations
from fsdpo_data.answers.comparison.expressions import (
    are_equal_solutions,
    constant_ratio_sign,
    has_parameter_ratio,
)
from fsdpo_data.answers.comparison.lists import (
    Container,
    assigned_items,
    brackets_agree,
    column_as_row,
    expand_plus_minus,
    have_same_roots,
    independent_signs,
    matrix_rows,
    named_items,
)
from fsdpo_data.answers.comparison.notations import are_equal_times
from fsdpo_data.answers.comparison.periodic_sets import (
    are_equal_periodic_sets,
    residue_with_modulus,
)
from fsdpo_data.answers.comparison.piecewise import are_equal_by_cases
from fsdpo_data.answers.comparison.real_set_parser import parse_real_set
from fsdpo_data.answers.comparison.real_sets import NotASetError, are_equal_sets
from fsdpo_data.answers.comparison.scalars import ScalarComparer
from fsdpo_data.answers.comparison.statements import (
    SWAPPED_OPS,
    are_equal_chains,
    are_equal_statements,
    have_same_members,
    is_statement,
)
from fsdpo_data.answers.tree import Value

MAX_ITEMS = 200  #: Most items of a list that is compared item by item.
#: Most pairs of items of two unordered lists that are compared.
MAX_ITEM_PAIRS = MAX_ITEMS * MAX_ITEMS // 4
#: Brackets of lists whose order matters.
_DOTS = tree.Sym("ldots")  #: The last item of a sequence that goes on.
_MIN_TERMS = 3  #: Fewest terms of a sequence that determine it.
_ORDERED_BRACKETS = ("()", "[]", "(]", "[)")


class AnswerComparer:
    """Comparison of one gold with one answer within one budget of operations.

    Args:
        budget: The operations that the comparison may use.
        tolerance: See :func:`~fsdpo_data.answers.comparison.equivalence.compare_answers`.
        container: The strictest collection around the values.
    """

    def __init__(
        self,
        budget: Budget,
        tolerance: Fraction | float | None = None,
        container: Container = Container.NONE,
    ) -> None:
        self.budget = budget
        self.tolerance = None if tolerance is None else Fraction(tolerance)
        self._container = container

    def _inside(self, container: Container) -> Self:
        """Return the comparer of the items of a collection, which is as strict or stricter."""
        if container <= self._container:
            return self
        return type(self)(self.budget, self.tolerance, container)

    def _as_parts(self) -> Self:
        """Return the comparer of the parts of an answer."""
        return self._inside(Container.ORDERED)

    def is_equal(self, gold: Value, answer: Value) -> bool:
        """Whether ``answer`` is a correct answer for ``gold``.

        Raises:
            BudgetExceededError: The comparison takes too many operations.
            NumberTooLargeError: Both sides are too large to be evaluated.
        """
        if isinstance(gold, tree.Words) or isinstance(answer, tree.Words):
            return False  # equivalence.py compares words
        return gold == answer or self._is_equal_by_type(gold, answer)

    def _is_equal_by_type(self, gold: Value, answer: Value) -> bool:
        """Compare two values that are not words, by their types."""
        if isinstance(gold, tree.DateOrTime) or isinstance(answer, tree.DateOrTime):
            return are_equal_times(gold, answer)
        gold = relations.insert_definitions(relations.without_domain_condition(gold))
        answer = relations.insert_definitions(relations.without_domain_condition(answer))
        answer = relations.rename_argument(relations.expand_equalities(answer, gold), gold)
        gold, answer = map(points.assigned_points, (gold, answer))
        gold, answer = points.sort_coordinates(gold, answer)
        if isinstance(gold, tree.Relation) or isinstance(answer, tree.Relation):
            gold, answer = map(points.equation_of_points, (gold, answer))
        if is_statement(gold) or is_statement(answer):
            are_equal = self._compare_statements(gold, answer)
            return are_equal or are_equal_periodic_sets(gold, answer, self.budget)
        if isinstance(gold, tree.Piecewise) or isinstance(answer, tree.Piecewise):
            return are_equal_by_cases(gold, answer, self.budget)
        if signs := independent_signs(gold, answer):
            return self._compare_collections(*signs)
        gold = expand_plus_minus(gold)
        answer = expand_plus_minus(answer)
        collection = tree.ValueList | tree.Matrix
        if isinstance(gold, collection) or isinstance(answer, collection):
            return self._compare_collections(gold, answer)
        return self._compare_scalars(gold, answer)

    def _compare_scalars(self, gold: Value, answer: Value) -> bool:
        """Compare two single values: numbers in a base, ratios, quantities or expressions."""
        scalars = ScalarComparer(
            budget=self.budget,
            tolerance=self.tolerance,
            is_in_unordered_collection=self._container is Container.UNORDERED,
            is_complete_answer=self._container is Container.NONE,
            is_part=self._container is Container.ORDERED,
        )
        return scalars.is_equal(gold, answer)

    def _compare_collections(self, gold: Value, answer: Value) -> bool:
        """Compare a list or a matrix with another value."""
        if isinstance(gold, tree.Matrix) or isinstance(answer, tree.Matrix):
            return self._compare_matrices(gold, answer)
        if not (isinstance(gold, tree.ValueList) and isinstance(answer, tree.ValueList)):
            return self._compare_list_with_value(gold, answer)
        if max(len(gold.items), len(answer.items)) > MAX_ITEMS:
            return False
        if gold.items[-1:] == answer.items[-1:] == (_DOTS,):
            # Sequences that go on are compared as far as both are written.
            n_terms = min(len(gold.items), len(answer.items)) - 1
            terms = self._inside(Container.ORDERED)
            return n_terms >= _MIN_TERMS and terms._compare_in_order(
                gold.items[:n_terms], answer.items[:n_terms]
            )
        if gold.brackets in _ORDERED_BRACKETS or answer.brackets in _ORDERED_BRACKETS:
            return self._compare_tuples(gold, answer)
        if _DOTS in gold.items or _DOTS in answer.items:
            terms = self._inside(Container.ORDERED)
            return terms._compare_in_order(gold.items, answer.items)
        return self._compare_lists(gold, answer) or are_equal_periodic_sets(
            gold, answer, self.budget
        )

    def _compare_tuples(self, gold: tree.ValueList, answer: tree.ValueList) -> bool:
        """Compare a tuple or an interval with another list."""
        if not brackets_agree(gold.brackets, answer.brackets, len(gold.items)):
            return False
        gold_assignments = assignments.assignments_by_name(gold)
        answer_assignments = assignments.assignments_by_name(answer)
        if gold_assignments and answer_assignments:
            return self._compare_by_name(gold_assignments, answer_assignments)
        # "y = 2, x = 1" is an answer for (1, 2).
        values = tuple(answer_assignments[name] for name in sorted(answer_assignments))
        items = self._inside(Container.ORDERED)
        return items._compare_in_order(gold.items, values or answer.items)

    def _compare_by_name(self, gold: dict[str, Value], answer: dict[str, Value]) -> bool:
        """Whether two sides give equal values to the same names."""
        parts = self._as_parts()
        return gold.keys() == answer.keys() and all(
            parts.is_equal(value, answer[name]) for name, value in gold.items()
        )

    def _compare_lists(self, gold: tree.ValueList, answer: tree.ValueList) -> bool:
        """Compare two lists by name if their items are assignments, else in any order."""
        gold_assignments = assignments.assignments_by_name(gold)
        answer_assignments = assignments.assignments_by_name(answer)
        if gold_assignments and gold_assignments.keys() == answer_assignments.keys():
            return self._compare_by_name(gold_assignments, answer_assignments)
        values_by_name = gold_assignments
        if not values_by_name and gold.brackets == "":
            values_by_name = answer_assignments
        # Numbered roots, such as x_1 and x_2, have no order. This also covers plain lists.
        names_gold = any(map(assignments.name_of, gold.items))
        if all(map(assignments.is_numbered_root, values_by_name)) or (
            names_gold and not gold_assignments
        ):
            return self._compare_unordered_lists(gold, answer)
        if not gold_assignments:
            # The gold lists bare values, in the order of the assignments or of their names.
            orders = (
                values_by_name.values(),
                (values_by_name[name] for name in sorted(values_by_name)),
            )
            return any(self._compare_in_order(gold.items, tuple(order)) for order in orders)
        if any(isinstance(item, tree.Relation) for item in answer.items):
            return False
        return self._compare_in_order(tuple(gold_assignments.values()), answer.items)

    def _compare_unordered_lists(self, gold: tree.ValueList, answer: tree.ValueList) -> bool:
        """Compare the items of two lists in any order, with the names that both sides give."""
        gold_items = named_items(gold)
        answer_items = named_items(answer)
        if not have_same_roots(gold_items, answer_items):
            return False
        # A gold without braces does not repeat a value without a reason.
        if gold.brackets == "" and len(answer_items) < len(gold_items):
            return False
        if not (_has_equation(gold_items) and _has_equation(answer_items)):
            gold_items = tuple(map(self._result_of, gold_items))
            answer_items = tuple(map(assignments.value_of, answer_items))
        return self._compare_unordered(gold_items, answer_items)

    @staticmethod
    def _result_of(item: Value) -> Value:
        """Return the value of an item of a gold; "a + b = 5" is an equation, not the way to 5."""
        return item if assignments.is_open_equation(item) else assignments.value_of(item)

    def _is_equal_item(self, gold: Value, answer: Value) -> bool:
        """Compare two items of unordered lists; names count if both items have one."""
        members = self._inside(Container.UNORDERED)
        names = [assignments.name_of(item) for item in (gold, answer)]
        if names[0] is None or names[1] is None:
            return members.is_equal(gold, answer)
        values = [assignments.value_of(item) for item in (gold, answer)]
        return assignments.are_same_names(names[0], names[1]) and members.is_equal(*values)

    def _compare_list_with_value(self, gold: Value, answer: Value) -> bool:
        """Compare a list with a single value.

        The list may have one item, or it may be an answer with one value in several forms.
        """
        if isinstance(answer, tree.ValueList) and answer.brackets == "" and answer.items:
            values = assigned_items(answer)
            numbers = {value.value for value in values if isinstance(value, tree.Num)}
            return len(numbers) < 2 and all(self.is_equal(gold, value) for value in values)
        for items, other in ((gold, answer), (answer, gold)):
            if isinstance(items, tree.ValueList) and len(items.items) == 1:
                if items.brackets != "{}":
                    return self.is_equal(items.items[0], other)
                is_item = self._container is not Container.NONE
                members = self._inside(Container.UNORDERED)
                return not is_item and members.is_equal(items.items[0], other)
        return False

    def _compare_in_order(self, gold: tuple[Value, ...], answer: tuple[Value, ...]) -> bool:
        return len(gold) == len(answer) and all(map(self.is_equal, gold, answer))

    def _compare_unordered(self, gold: tuple[Value, ...], answer: tuple[Value, ...]) -> bool:
        """Whether each value of one side occurs on the other side.

        Repetitions matter if both sides repeat a value: the eigenvalues 2, 5, 5 are not 2, 2, 5.
        """
        if not gold or not answer:
            return not gold and not answer
        if len(gold) * len(answer) > MAX_ITEM_PAIRS:
            return set(gold) == set(answer)
        is_equal = self._is_equal_item
        if not have_same_members(gold, answer, is_equal):
            return False
        both_repeat = len(set(gold)) < len(gold) and len(set(answer)) < len(answer)
        return not both_repeat or _have_same_multiplicities(gold, answer, is_equal)

    def _compare_matrices(self, gold: Value, answer: Value) -> bool:
        gold_rows = matrix_rows(gold)
        answer_rows = matrix_rows(answer)
        if gold_rows is None or answer_rows is None:
            return False
        if not (isinstance(gold, tree.Matrix) and isinstance(answer, tree.Matrix)):
            # A tuple may denote a row or a column.
            gold_rows = column_as_row(gold_rows)
            answer_rows = column_as_row(answer_rows)
        entries = self._inside(Container.ORDERED)
        return len(gold_rows) == len(answer_rows) and all(
            entries._compare_in_order(gold_row, answer_row)
            for gold_row, answer_row in zip(gold_rows, answer_rows, strict=True)
        )

    def _compare_statements(self, gold: Value, answer: Value) -> bool:
        """Compare a statement or a set with another value."""
        if _has_residue_class(gold, answer) or _has_residue_class(answer, gold):
            return False  # They are compared as periodic sets.
        if self._compare_sets(gold, answer):
            return True
        if isinstance(gold, tree.Relation) and isinstance(answer, tree.Relation):
            return self._compare_relations(gold, answer)
        if not is_statement(gold):
            return self._compare_with_chain(gold, answer)
        if not is_statement(answer):
            if assignments.states_antiderivative(gold) and isinstance(gold, tree.Relation):
                return self.is_equal(gold.parts[-1], answer)
            if isinstance(gold, tree.Relation) and isinstance(gold.parts[-1], tree.Matrix):
                return gold.ops == ("=",) and self._compare_matrices(gold.parts[-1], answer)
            if assignments.is_rounded_calculation(gold):
                return any(self.is_equal(part, answer) for part in gold.parts)
            has_name = assignments.has_named_left_side(gold)
            defines_value = has_name or isinstance(gold, tree.SetMembership)
            values = assignments.assigned_values(gold) if defines_value else None
            return values is not None and self.is_equal(values[-1], answer)
        values = assignments.assigned_values(answer)
        if values is not None and self.is_equal(gold, values[-1]):
            return True
        values = assignments.assigned_values(gold)
        if values is not None and self.is_equal(answer, values[-1]):
            return True
        parts = self._as_parts() if isinstance(gold, tree.ValueList) else self
        return are_equal_statements(gold, answer, parts.is_equal)

    def _compare_with_chain(self, gold: Value, answer: Value) -> bool:
        """Compare a plain gold with an answer such as ``x = 2 · 3 = 6``."""
        results = assignments.chain_result(answer, gold)
        if results is None:
            return False
        if isinstance(answer, tree.Relation) and "~" in answer.ops:
            return any(self.is_equal(gold, result) for result in results)
        return all(self.is_equal(gold, result) for result in results)

    def _compare_sets(self, gold: Value, answer: Value) -> bool:
        """Compare two values as sets of reals."""
        try:
            gold_set = parse_real_set(gold, self.budget)
            answer_set = parse_real_set(answer, self.budget)
        except NotASetError:
            return False
        has_both_variables = gold_set.variable and answer_set.variable
        if has_both_variables and gold_set.variable != answer_set.variable:
            return False
        return are_equal_sets(gold_set, answer_set, self.budget)

    def _compare_relations(self, gold: tree.Relation, answer: tree.Relation) -> bool:
        bodies = relations.definition_bodies(gold, answer)
        if bodies is not None:
            gold_body, answer_body = bodies
            return self.is_equal(gold_body, answer_body)
        have_two_sides = len(gold.parts) == len(answer.parts) == 2
        is_gold_equation = gold.ops in (("=",), ("~",))  # "x = 3.2" is an answer for "x ≈ 3.2"
        if is_gold_equation and answer.ops == ("=",) and have_two_sides:
            return self._compare_equations(gold, answer)
        if have_two_sides:
            return self._compare_inequalities(gold, answer)
        return are_equal_chains(gold, answer, self.is_equal)

    def _compare_equations(self, gold: tree.Relation, answer: tree.Relation) -> bool:
        """Whether the sides are equal, or their differences have a constant ratio."""
        # Only "y = F(x)" may lack the constant of "y = F(x) + C", not "F(x) = 0".
        sides = self if isinstance(gold.parts[0], tree.Sym | tree.Call) else self._as_parts()
        if sides._compare_in_order(gold.parts, answer.parts):
            return True
        if assignments.is_constant_assignment(gold) and assignments.is_constant_assignment(answer):
            return False
        if assignments.states_result(gold) and assignments.states_result(answer):
            return sides._compare_results(gold, answer)
        differences = relations.side_differences(*map(relations.square_out, (gold, answer)))
        if differences is None:
            return False
        left, right = differences
        if constant_ratio_sign(left, right, self.budget):
            return True
        if has_parameter_ratio(left, right, self.budget):
            return True
        if any(
            are_equal_solutions(implicit, explicit, self.budget)
            for implicit, explicit in ((left, answer), (right, gold))
        ):
            return True
        constants = relations.arbitrary_constants(gold, answer)
        if constants is None:
            return False
        renamed = tree.substitute(right, {constants[1]: tree.Sym(constants[0])})
        return constant_ratio_sign(left, renamed, self.budget) != 0

    def _compare_results(self, gold: tree.Relation, answer: tree.Relation) -> bool:
        """Compare two calculations by their results; both must be true."""
        if not self.is_equal(gold.parts[-1], answer.parts[-1]):
            return False
        if assignments.states_antiderivative(gold):
            return self.is_equal(gold.parts[0], answer.parts[0])
        return all(self.is_equal(side.parts[0], side.parts[-1]) for side in (gold, answer))

    def _compare_inequalities(self, gold: tree.Relation, answer: tree.Relation) -> bool:
        """Whether the chains are equal, or the ratio of the differences has the right sign."""
        if are_equal_chains(gold, answer, self.is_equal):
            return True
        differences = relations.side_differences(gold, answer)
        if differences is None or not relations.INEQUALITY_OPS.issuperset(gold.ops + answer.ops):
            return False
        left, right = differences
        sign = constant_ratio_sign(left, right, self.budget)
        if gold.ops == answer.ops:
            return sign == 1 or (sign != 0 and gold.ops[0] == "!=")
        return sign == -1 and SWAPPED_OPS.get(gold.ops[0]) == answer.ops[0]


def _has_equation(items: tuple[Value, ...]) -> bool:
    return any(isinstance(item, tree.Relation) for item in items)


def _have_same_multiplicities(
    gold: tuple[Value, ...], answer: tuple[Value, ...], is_equal: Callable[[Value, Value], bool]
) -> bool:
    """Whether both sides repeat each value of the gold equally often."""
    return len(gold) == len(answer) and all(
        gold.count(value) == sum(is_equal(value, other) for other in answer) for value in set(gold)
    )


def _has_residue_class(value: Value, other: Value) -> bool:
    """Whether ``value`` is a congruence and ``other`` may be one."""
    return residue_with_modulus(value) is not None and is_statement(other)
