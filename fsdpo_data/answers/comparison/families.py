"""Families of functions: expressions up to arbitrary constants, as in ``+ C`` or ``A e^x``."""

import re
from collections.abc import Iterator

from fsdpo_data.answers import tree
from fsdpo_data.answers.budget import Budget
from fsdpo_data.answers.comparison.expressions import (
    are_equal_expressions,
    has_constant_difference,
)
from fsdpo_data.answers.comparison.spans import have_equal_spans
from fsdpo_data.answers.comparison.symbols import free_symbols
from fsdpo_data.answers.tree import Node

#: Names that may denote an arbitrary constant.
_ARBITRARY_CONSTANT = re.compile(r"[CcKkABD](?:_\w+)?")
#: Names that always denote an arbitrary constant.
_CERTAIN_CONSTANT = re.compile(r"C|[Cc]_\w+")
#: Names that may denote the constant of integration.
_ADDED_CONSTANT = re.compile(r"[CcK](?:_\w+)?")
#: Variables of functions that may contain arbitrary constants.
_VARIABLES = frozenset(("x", "t", "y", "s", "u", "theta", "r"))


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
    if len(gold_constants) != len(constants):
        return False
    if not any(map(_CERTAIN_CONSTANT.fullmatch, (*constants, *gold_constants))):
        return False
    if len(constants) > 1:
        return have_equal_spans((gold, gold_constants), (answer, constants), budget)
    renamed = tree.substitute(answer, {constants[0]: tree.Sym(gold_constants[0])})
    return are_equal_expressions(gold, renamed, budget)


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
