"""Sums and products with dots: "1 + 2 + ... + n" as a sum over an index."""

from fractions import Fraction

from fsdpo_data.answers.comparison.exact_values import rational_value
from fsdpo_data.answers.comparison.symbols import free_symbols
from fsdpo_data.answers.tree import (
    ONE,
    Add,
    Call,
    Mul,
    Node,
    Num,
    Sym,
    map_children,
    substitute,
)

_DOTS = Sym("ldots")
_INDEX = "#dots"  #: Name of the bound variable, which no answer can contain.


def expand_dots(node: Node) -> Node:
    """Return an expression with its sums and products with dots as operators over an index.

    The last term must have one symbol, the last index. For 1, 2, 3, ... this index, the last term
    gives all terms before the dots. Other expressions are unchanged.
    """
    if "ldots" not in free_symbols(node):
        return node
    node = map_children(node, expand_dots)
    match node:
        case Add(terms):
            return _expand(terms, "sum") or node
        case Mul(factors):
            return _expand(factors, "prod") or node
    return node


def _expand(items: tuple[Node, ...], operator: str) -> Node | None:
    """Return the sum or product of the items before, between and after the dots, or None."""
    items = tuple(item for item in items if item != ONE) if operator == "prod" else items
    if items.count(_DOTS) != 1:
        return None
    position = items.index(_DOTS)
    first_terms = items[:position]
    last_terms = items[position + 1 :]
    names = free_symbols(last_terms[-1]) if last_terms else frozenset[str]()
    if len(first_terms) < 2 or len(names) != 1:
        return None
    (name,) = names
    for start in (1, 0, 2):
        for shift in (0, 1, -1):
            # The last term belongs to the index n + shift, as in 1 + 2 + ... + (n - 1).
            general_term = substitute(last_terms[-1], {name: _shift(Sym(_INDEX), -shift)})
            values = [
                rational_value(substitute(general_term, {_INDEX: Num(Fraction(start + index))}))
                for index in range(len(first_terms))
            ]
            if values == [rational_value(term) for term in first_terms] and None not in values:
                bound = _shift(Sym(name), shift)
                return Call(operator, (Sym(_INDEX), Num(Fraction(start)), bound, general_term))
    return None


def _shift(node: Node, shift: int) -> Node:
    """Return ``node + shift``."""
    return Add((node, Num(Fraction(shift)))) if shift else node
