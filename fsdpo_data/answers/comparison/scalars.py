"""Comparison of single values: expressions, quantities, percentages, ratios, numbers in a base."""

from dataclasses import dataclass
from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.budget import Budget
from fsdpo_data.answers.comparison import families
from fsdpo_data.answers.comparison.alternating import are_equal_at_integers
from fsdpo_data.answers.comparison.dots import expand_dots
from fsdpo_data.answers.comparison.expressions import are_equal_expressions, within_tolerance
from fsdpo_data.answers.comparison.notations import are_equal_digits
from fsdpo_data.answers.comparison.periodic_sets import are_equal_periodic_sets
from fsdpo_data.answers.comparison.symbols import free_symbols
from fsdpo_data.answers.lexicon import units
from fsdpo_data.answers.tree import Node, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarComparer:
    """Comparison of two single values within the budget of the whole comparison."""

    budget: Budget  #: The operations that the comparison may use.
    tolerance: Fraction | None  #: The relative tolerance for numbers.
    is_in_unordered_collection: bool  #: Whether the values are items of a set or a plain list.
    is_complete_answer: bool  #: Whether the values are complete answers, not parts of them.
    is_part: (
        bool  #: Whether the values are parts of an answer, whose constants are those of others.
    )

    def is_equal(self, gold: Value, answer: Value) -> bool:
        """Whether ``answer`` is a correct answer for ``gold``."""
        if isinstance(gold, tree.NumberInBase) or isinstance(answer, tree.NumberInBase):
            return are_equal_digits(gold, answer)
        if isinstance(gold, tree.Ratio) or isinstance(answer, tree.Ratio):
            return self._compare_ratios(gold, answer)
        if isinstance(gold, tree.Quantity) and isinstance(answer, tree.Quantity):
            return self._compare_quantities(gold, answer)
        if isinstance(gold, tree.Quantity) or isinstance(answer, tree.Quantity):
            return self._compare_quantity(gold, answer)
        return tree.is_node(gold) and tree.is_node(answer) and self._compare_nodes(gold, answer)

    def _compare_nodes(self, gold: Node, answer: Node) -> bool:
        """Compare two expressions: as values, within the tolerance, then as families."""
        if are_equal_expressions(gold, answer, self.budget):
            return True
        sides = (expand_dots(gold), expand_dots(answer))
        if sides != (gold, answer) and are_equal_expressions(*sides, self.budget):
            return True
        if are_equal_at_integers(gold, answer, self.budget):
            return True
        if isinstance(gold, tree.Num):
            tolerance = self.tolerance
            return tolerance is not None and within_tolerance(gold, answer, tolerance, self.budget)
        if not self.is_part and families.are_equal_up_to_constants(
            gold, answer, self.budget, is_complete_answer=self.is_complete_answer
        ):
            return True
        # With one name, both sides may be its values at one number.
        return free_symbols(gold).isdisjoint(free_symbols(answer)) and are_equal_periodic_sets(
            gold, answer, self.budget
        )

    def _compare_quantities(self, gold: tree.Quantity, answer: tree.Quantity) -> bool:
        """Compare two quantities after a conversion to the unit of the gold."""
        if {gold.unit.dims, answer.unit.dims} == {units.DEGREE.dims, units.RADIAN.dims}:
            return self._compare_nodes(_in_radians(gold), _in_radians(answer))
        are_temperatures = units.temperature_scale(gold.unit) and units.temperature_scale(
            answer.unit
        )
        if are_temperatures and gold.unit.dims != answer.unit.dims:
            return self._compare_nodes(_in_kelvins(gold), _in_kelvins(answer))
        unit_factor = units.unit_ratio(answer.unit, gold.unit)
        if unit_factor is None or units.are_opposites(gold.unit.words, answer.unit.words):
            return False
        if unit_factor == 1:
            return self._compare_nodes(gold.node, answer.node)
        return self._compare_nodes(gold.node, tree.scale(answer.node, unit_factor))

    def _compare_quantity(self, gold: Value, answer: Value) -> bool:
        """Compare a quantity with a value that states no unit."""
        quantity, other = (gold, answer) if isinstance(gold, tree.Quantity) else (answer, gold)
        if not (isinstance(quantity, tree.Quantity) and tree.is_node(other)):
            return False
        if quantity.unit.dims == units.PERCENT.dims:
            return self._compare_percentage(quantity, other, is_gold=quantity is gold)
        if quantity.unit.dims == units.RANK_DIMS and quantity.unit.label in units.PART_WORDS:
            return False  # "twelfth part" is not 12, but "twelfth place" is
        if quantity.unit.dims == units.PART_DIMS:
            return self._compare_nodes(tree.scale(quantity.node, quantity.unit.factor), other)
        if quantity.unit.dims == units.DEGREE.dims and tree.Const("pi") in tree.walk(other):
            return self._compare_nodes(tree.Call("deg", (quantity.node,)), other)
        return self._compare_nodes(quantity.node, other)

    def _compare_percentage(self, percentage: tree.Quantity, other: Node, *, is_gold: bool) -> bool:
        """Compare a percentage with a number: 25 % is 0.25.

        25 % also agrees with 25 if the question asks for percent. This holds if the percentage is
        the gold, or if the number is at least 1.
        """
        value = other.value if isinstance(other, tree.Num) else Fraction(0)
        asks_for_percent = is_gold or abs(value) >= 1
        if asks_for_percent and self._compare_nodes(percentage.node, other):
            return True
        if abs(value) > 1 and value.denominator == 1:
            return False  # 18 is a count, or 18 of a hundred, but not 1800 %
        return self._compare_nodes(_share_of_one(percentage), other)

    def _compare_ratios(self, gold: Value, answer: Value) -> bool:
        gold_parts = _ratio_parts(gold)
        answer_parts = _ratio_parts(answer)
        if len(gold_parts) == len(answer_parts) == 1:
            return self._compare_nodes(gold_parts[0], answer_parts[0])
        return len(gold_parts) == len(answer_parts) > 1 and all(
            self._compare_nodes(
                tree.divide(gold_parts[0], gold_part), tree.divide(answer_parts[0], answer_part)
            )
            for gold_part, answer_part in zip(gold_parts[1:], answer_parts[1:], strict=True)
        )


def _share_of_one(percentage: tree.Quantity) -> Node:
    """Return a percentage as a number; 33.3333 % shows as many digits as 0.333333."""
    node = percentage.node
    match node:
        case tree.Num(value, int() as decimal_places, digits) if percentage.unit.factor == 1:
            return tree.Num(value / 100, decimal_places + 2, digits)
    return tree.scale(node, percentage.unit.factor / 100)


def _in_kelvins(temperature: tree.Quantity) -> Node:
    """Return a temperature in kelvins; other quantities are unchanged."""
    size, zero = units.temperature_scale(temperature.unit) or (Fraction(1), Fraction(0))
    return tree.add([tree.scale(temperature.node, size), tree.Num(zero)])


def _in_radians(angle: tree.Quantity) -> Node:
    """Return the size of an angle in radians."""
    size = tree.scale(angle.node, angle.unit.factor)
    return tree.Call("deg", (size,)) if angle.unit.dims == units.DEGREE.dims else size


def _ratio_parts(value: Value) -> tuple[Node, ...]:
    """Return the parts of a ratio; a ratio of two parts becomes its quotient."""
    if isinstance(value, tree.Ratio):
        if len(value.parts) != 2:
            return value.parts
        return (tree.divide(value.parts[0], value.parts[1]),)
    node = value.node if isinstance(value, tree.Quantity) else value
    return (node,) if tree.is_node(node) else ()
