"""Parser of quantities: a sum with its unit, "5 feet 6 inches", and ratios of quantities."""

from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.units import DEGREE, RANK_DIMS, UNITS, qualify_unit
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.expressions import parse_sum, remainder
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.parsing.units import parse_degree_unit, parse_unit
from fsdpo_data.answers.tree import Node, Value

#: Words for the parts of a degree.
_ARC_WORDS = (("minutes", "minute", "min"), ("seconds", "second", "sec"))
_STATEMENT_NUMBER = frozenset("IVX")  #: Letters of the numbers of statements: "II and IV are true".


def parse_quantity_or_ratio(cursor: TokenCursor) -> Value:
    """Parse a quantity, or a ratio of two or more numbers."""
    first = parse_quantity(cursor)
    if not tree.is_node(first) or cursor.is_at_end():
        return first
    parts = [as_node(first)]
    while (cursor.peek_sign() == ":" and not cursor.bars_close) or (
        cursor.peek_word() == "to" and cursor.peek().kind == "word"
    ):
        cursor.skip()
        parts.append(as_node(parse_sum(cursor)))
    return tree.Ratio(tuple(parts)) if len(parts) > 1 else first


def parse_quantity(cursor: TokenCursor) -> Value:
    """Parse a sum with its currency or unit; without one, return the sum."""
    # ``parse_sum`` sets ``cursor.currency`` if it finds a currency sign before a number.
    outer_currency = cursor.replace_currency(None)
    first = cursor.peek()
    value = parse_sum(cursor)
    currency = cursor.replace_currency(outer_currency)
    if not tree.is_node(value):
        return value
    node = as_node(value)
    if _accept_percent_of(cursor):
        share = as_node(parse_sum(cursor))
        return tree.multiply([node, tree.Num(Fraction(1, 100)), share])
    # The minus of "-10^\circ C" applies to the complete quantity. The parser of exponents has
    # read "10^\circ" as a call of ``deg``, before the letter C.
    is_negative = isinstance(node, tree.Mul) and node.factors[0] == tree.MINUS_ONE
    magnitude = node.factors[-1] if isinstance(node, tree.Mul) and is_negative else node
    if (
        isinstance(magnitude, tree.Call)
        and magnitude.name == "deg"
        and cursor.peek().text in ("C", "F")
    ):
        angle = magnitude.args[0]
        degrees = tree.negate(angle) if is_negative else angle
        return tree.Quantity(degrees, parse_degree_unit(cursor))
    unit = parse_unit(cursor, node)
    is_name = first.kind == "word" and first.text.isupper() and not _has_number(node)
    is_name = is_name and not _STATEMENT_NUMBER.issuperset(first.text)
    if unit is not None and not unit.dims and is_name:
        raise UnparsableAnswerError(f"{first.text} is a part of a name, not a number of things")
    if currency is not None and unit is not None:
        # "$5 per hour" is five dollars, and not "$5 per day".
        words = unit.words or tuple(unit.label.replace("·", " ").replace("^-1", "").split())
        unit = qualify_unit(currency, words)
    quantity = _make_quantity(node, unit or currency)
    if not isinstance(quantity, tree.Quantity) or not quantity.unit.dims:
        return quantity  # a plain number, or counted things
    if quantity.unit.dims == DEGREE.dims and cursor.peek().kind == "num":
        return _parse_arc(cursor, quantity)
    return _parse_compound(cursor, quantity)


def _has_number(node: Node) -> bool:
    """Whether an expression has a number or a function, and not only letters."""
    return any(isinstance(part, tree.Num | tree.Call) for part in tree.walk(node))


def _accept_percent_of(cursor: TokenCursor) -> bool:
    """Step over "% of" before a number or a variable: "200% of s", but not "25% of people"."""
    if cursor.peek().text not in ("%", "percent") or cursor.peek_word(1) != "of":
        return False
    following = cursor.peek(2)
    is_variable = following.kind == "let" and following.text not in ("a", "A")
    if following.kind != "num" and not is_variable:
        return False
    cursor.skip(2)
    return True


def _parse_arc(cursor: TokenCursor, degrees: tree.Quantity) -> tree.Quantity:
    r"""Parse minutes and seconds after degrees: ``25^\circ 30' 36''``, "25 degrees 30 minutes"."""
    terms: list[Node] = [degrees.node]
    for parts_per_degree in (60, 3600):
        start = cursor.position
        number = cursor.peek().number
        if number is None:
            break
        cursor.skip()
        if cursor.accept_word(*_ARC_WORDS[len(terms) - 1]):
            terms.append(tree.multiply([number, tree.Num(Fraction(1, parts_per_degree))]))
            continue
        has_caret = bool(cursor.accept("^"))
        marks = (
            cursor.accept_degree_or_primes()
            if has_caret
            else cursor.accept("'") + cursor.accept("'")
        )
        if marks != "'" * len(terms):
            cursor.position = start
            break
        terms.append(tree.multiply([number, tree.Num(Fraction(1, parts_per_degree))]))
    return tree.Quantity(tree.add(terms), DEGREE)


def _parse_compound(cursor: TokenCursor, first: tree.Quantity) -> tree.Quantity:
    """Parse the smaller units of "5 feet 6 inches" or "2 hours and 30 minutes"."""
    start = cursor.position
    depth = cursor.depth
    cursor.accept_word("and")
    number = cursor.peek().number
    if number is not None and first.unit == UNITS["h"] and cursor.peek(1).text == "m":
        cursor.skip(2)
        return combine_quantities((first, tree.Quantity(number, UNITS["min"]))) or first
    if cursor.peek().kind == "num":
        cursor.enter_level()
        try:
            second = parse_quantity(cursor)
        except UnparsableAnswerError:
            second = first.node  # not a quantity, so the units are not combined
        cursor.depth = depth
        total = combine_quantities((first, second))
        if total is not None:
            return total
    cursor.position = start
    return first


def combine_quantities(parts: tuple[Value, ...]) -> tree.Quantity | None:
    """Return the sum of "2 hours, 30 minutes" as one quantity, in the unit of the first part.

    Return None if a part is not a quantity, or if the units do not become smaller.
    """
    total = parts[0]
    previous = parts[0]
    for part in parts[1:]:
        if not (isinstance(total, tree.Quantity) and isinstance(previous, tree.Quantity)):
            return None
        if not isinstance(part, tree.Quantity) or part.unit.dims != total.unit.dims:
            return None
        if not total.unit.dims or part.unit.factor >= previous.unit.factor:
            return None
        size = part.unit.factor / total.unit.factor
        total = tree.Quantity(
            tree.add([total.node, tree.multiply([part.node, tree.Num(size)])]), total.unit
        )
        previous = part
    return total if isinstance(total, tree.Quantity) and len(parts) > 1 else None


def _make_quantity(node: Node, unit: tree.Unit | None) -> Value:
    """Return a number with its unit; degrees and ordinals count as units."""
    match node:
        case tree.Call("ordinal", (rank, *_)):
            return tree.Quantity(rank, tree.Unit(unit.label if unit else "th", RANK_DIMS))
        case tree.Call("deg", (angle, *_)) if unit is None or not unit.dims:
            return tree.Quantity(angle, qualify_unit(DEGREE, unit.words if unit else ()))
    if unit is None:
        return node
    if unit.label.startswith("mod "):
        node = remainder(node, tree.Num(Fraction(unit.label[4:])))
    return tree.Quantity(node, unit)
