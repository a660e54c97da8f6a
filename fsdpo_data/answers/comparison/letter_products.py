"""Products of capital letters in which the order may count: words of a list, and matrices.

The parser reads the word HT and the matrix product AB as products of letters, which are equal in
every order.
"""

from fsdpo_data.answers import tree
from fsdpo_data.answers.comparison.symbols import free_symbols
from fsdpo_data.answers.tree import Node, Value

_ROMAN_LETTERS = frozenset("IVX")
_MIN_WORD_LETTERS = 3  #: Letters of words that are not the name of a segment.
_TRANSPOSED = tree.Sym("T")  #: The exponent of a transposed matrix.
_MAX_POWER = 9  #: Largest power of a matrix that is written out.


def differ_in_order(gold: Value, answer: Value) -> bool:
    """Whether two equal values may differ, because the order of their letters may count.

    ``{HH, HT, TT}`` lacks a word of ``{HH, HT, TH, TT}``, and ``PAP^{-1}`` may not be
    ``P^{-1}AP``. The name of a segment, AB or BA, has no order.
    """
    words = [_listed_words(side) for side in (gold, answer)]
    if any(map(_are_ordered, words)) and (_lacks_order(*words) or _lacks_order(*words[::-1])):
        return True
    products = [_matrix_products(side) for side in (gold, answer)]
    is_scalar = _has_fraction_or_variable(gold) or _has_fraction_or_variable(answer)
    return products[0] != products[1] and not is_scalar


def _listed_words(value: Value) -> frozenset[str]:
    """Return the items of a list that are words of capital letters, with their order."""
    if isinstance(value, tree.Relation):
        value = value.parts[-1]
    items = value.items if isinstance(value, tree.ValueList) else ()
    nodes = [item.node if isinstance(item, tree.Quantity) else item for item in items]
    return frozenset(_word(node.factors) for node in nodes if isinstance(node, tree.Mul)) - {""}


def _word(factors: tuple[Node, ...]) -> str:
    """Return the letters of a product of capital letters as a word; "" for another product."""
    letters = [factor.name for factor in factors if isinstance(factor, tree.Sym)]
    is_word = len(letters) == len(factors) and all(map(_is_capital, letters))
    return "".join(letters) if is_word else ""


def _is_capital(name: str) -> bool:
    return len(name) == 1 and name.isupper()


def _are_ordered(words: frozenset[str]) -> bool:
    """Whether the order of letters counts in some words: HH, HHT, IV, or both of HT and TH."""
    has_both_orders = len({"".join(sorted(word)) for word in words}) < len(words)
    return has_both_orders or any(
        len(word) >= _MIN_WORD_LETTERS or len(set(word)) < len(word) or set(word) <= _ROMAN_LETTERS
        for word in words
    )


def _lacks_order(words: frozenset[str], other_words: frozenset[str]) -> bool:
    """Whether a list of words has the letters of another word only in another order."""
    letters = {"".join(sorted(word)) for word in words}
    return any("".join(sorted(word)) in letters for word in other_words - words)


def _matrix_products(value: Value) -> frozenset[tuple[Node, ...]]:
    """Return the factors of the sides that are products with an inverse or a transposed matrix."""
    sides = value.parts if isinstance(value, tree.Relation) else (value,)
    products = (_factors(side) for side in sides if tree.is_node(side))
    return frozenset(
        factors
        for factors in products
        if len(factors) > 1 and any(map(_is_inverse_or_transposed, factors))
    )


def _factors(node: Node) -> tuple[Node, ...]:
    """Return the factors of a product in their order; a power is written out."""
    match node:
        case tree.Mul():
            return tuple(part for factor in node.factors for part in _factors(factor))
        case tree.Pow(base, tree.Num(power)) if power.denominator == 1 and 1 < power <= _MAX_POWER:
            return _factors(base) * int(power)
    return (node,)


def _is_inverse_or_transposed(node: Node) -> bool:
    """Whether a factor is a power with the exponent -1 or T of capital letters."""
    is_power = isinstance(node, tree.Pow) and node.exponent in (tree.MINUS_ONE, _TRANSPOSED)
    return is_power and all(map(_is_capital, free_symbols(node)))


def _has_fraction_or_variable(value: Value) -> bool:
    """Whether a value has a fraction, a function or a small letter, and is not about matrices."""
    sides = value.parts if isinstance(value, tree.Relation) else (value,)
    parts = [part for side in sides for part in tree.walk(side)]
    return any(
        isinstance(part, tree.Div | tree.Call)
        or (isinstance(part, tree.Sym) and not _is_capital(part.name))
        for part in parts
    )
