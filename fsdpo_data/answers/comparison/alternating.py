"""Comparison of expressions whose signs alternate over whole numbers: (-1)^n and cos(n pi)."""

from fractions import Fraction
from itertools import product

from fsdpo_data.answers.budget import Budget
from fsdpo_data.answers.comparison.expressions import are_equal_expressions
from fsdpo_data.answers.comparison.symbols import free_symbols
from fsdpo_data.answers.comparison.windows import INTEGER_NAMES
from fsdpo_data.answers.lexicon.vocabulary import TRIG_FUNCTIONS
from fsdpo_data.answers.tree import MINUS_ONE, Call, Const, Node, Num, Pow, substitute, walk

#: Whole numbers at which two expressions are compared, for one name and for two names.
_NUMBERS = {1: (*range(1, 9), 23, 46), 2: tuple(range(1, 6))}


def are_equal_at_integers(left: Node, right: Node, budget: Budget) -> bool:
    """Whether two expressions with alternating signs are equal for all sampled whole numbers."""
    names = sorted(_alternating_names(left) | _alternating_names(right))
    numbers = _NUMBERS.get(len(names))
    if numbers is None or not free_symbols(left) & free_symbols(right) >= set(names):
        return False
    for sizes in product(numbers, repeat=len(names)):
        values: dict[str, Node] = {
            name: Num(Fraction(size)) for name, size in zip(names, sizes, strict=True)
        }
        if not are_equal_expressions(substitute(left, values), substitute(right, values), budget):
            return False
    return True


def _alternating_names(node: Node) -> frozenset[str]:
    """Return the whole numbers that give powers of -1 or multiples of pi their values."""
    names: set[str] = set()
    for part in walk(node):
        is_power = isinstance(part, Pow) and (part.base == MINUS_ONE or _has_pi(part))
        is_wave = isinstance(part, Call) and part.name in TRIG_FUNCTIONS and _has_pi(part)
        if is_power or is_wave:
            names |= free_symbols(part) & INTEGER_NAMES
    return frozenset(names)


def _has_pi(node: Node) -> bool:
    return Const("pi") in walk(node)
