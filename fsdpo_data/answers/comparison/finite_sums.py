"""Terms of sums and products that are finite: each term is an expression without the index."""

from collections.abc import Iterator
from fractions import Fraction

from fsdpo_data.answers.budget import Budget, NumberTooLargeError
from fsdpo_data.answers.comparison.exact_values import integer_value
from fsdpo_data.answers.comparison.symbols import DISCRETE_OPERATORS
from fsdpo_data.answers.tree import Call, Node, Num, Sym, substitute, walk

#: Largest size of all terms of a sum or product that is evaluated modulo a prime, in nodes.
MAX_EXACT_NODES = 8_000


def finite_terms(node: Call, budget: Budget) -> Iterator[Node] | None:
    """Return the terms of a sum or product between constant integers, or None.

    None also means that the terms have more than ``MAX_EXACT_NODES`` nodes together.
    """
    if node.name not in DISCRETE_OPERATORS or len(node.args) != 4:
        return None
    index, low, high, body = node.args
    if not isinstance(index, Sym):
        return None
    try:
        first = integer_value(low)
        last = integer_value(high)
    except NumberTooLargeError:
        return None
    if first is None or last is None or last < first - 1:
        return None
    n_nodes = (last - first + 1) * len(walk(body))
    if n_nodes > MAX_EXACT_NODES:
        return None
    budget.spend(n_nodes)  # for the substitution; the evaluation of the terms costs as much again
    name = index.name
    return (substitute(body, {name: Num(Fraction(value))}) for value in range(first, last + 1))
