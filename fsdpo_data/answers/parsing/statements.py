"""Parser of lists and statements: alternatives, relations, set memberships, conditions."""

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.units import counted_unit
from fsdpo_data.answers.lexicon.vocabulary import word_set
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError, drop_single_braces
from fsdpo_data.answers.parsing.lookahead import is_condition_next
from fsdpo_data.answers.parsing.number_sets import is_number_set, parse_number_set
from fsdpo_data.answers.parsing.quantities import parse_quantity_or_ratio
from fsdpo_data.answers.tables import read_module_table
from fsdpo_data.answers.tree import Value

_TABLE = read_module_table(__file__)
_RELATIONS: dict[str, str] = _TABLE["relations"]
_SET_OPS: dict[str, str] = _TABLE["sets"]
_SET_WORDS: dict[str, str] = _TABLE["sets_in_words"]
_LEADING_WORDS = word_set(_TABLE["leading"])


def parse_value(cursor: TokenCursor) -> Value:
    """Parse alternatives: ``a or b``; each of them may be a list."""
    parts = [_parse_list(cursor)]
    has_logical_or = False
    while cursor.accept_word("or") or cursor.accept("vee"):
        has_logical_or = cursor.tokens[cursor.position - 1].text == "vee"
        parts.append(_parse_list(cursor))
    if len(parts) == 1:
        return parts[0]
    are_statements = _are_statements(parts) or _have_different_names(parts)
    if are_statements or (has_logical_or and all(map(_is_formula, parts))):
        return tree.Connective("or", tuple(parts))
    return tree.ValueList("", tuple(item for part in parts for item in tree.list_values(part)))


def _parse_list(cursor: TokenCursor) -> Value:
    """Parse a list of values or statements, or a single one."""
    items = [parse_item(cursor)]
    separators: list[str] = []
    while separator := _accept_separator(cursor):
        separators.append(separator)
        items.append(parse_item(cursor))
    cases = combine_cases(items)
    if cases is not None or len(items) == 1:
        return cases or items[0]
    is_logical = separators[-1] == "wedge" and all(map(_is_formula, items))
    if is_logical or ("," not in separators and _are_statements(items)):
        return tree.Connective("and", tuple(items))
    return tree.ValueList("", _distribute_equations(tuple(items)))


def _accept_separator(cursor: TokenCursor) -> str:
    """Step over a separator of list items; return ",", "and", "wedge", or "" without one."""
    if cursor.is_at_end():
        return ""
    if cursor.accept(",", ";"):
        if cursor.peek_word() == "or":
            return ""
        cursor.accept_word("and")
        cursor.accept("&")
        if cursor.is_at_end():
            raise UnparsableAnswerError("the list ends in a comma")
        return ","
    return cursor.accept_word("and") or cursor.accept("wedge")


def parse_item(cursor: TokenCursor) -> Value:
    """Parse a value or a chain of relations, with its condition."""
    value = _parse_statement(cursor)
    return parse_branch(cursor, value, prose=True) if is_condition_next(cursor) else value


def _parse_statement(cursor: TokenCursor) -> Value:
    """Parse a value, a chain of relations or a set membership."""
    while cursor.peek_word() in _LEADING_WORDS:
        cursor.skip()
    parts = [_parse_operand(cursor)]
    ops: list[str] = []
    while (sign := cursor.peek_sign()) in _RELATIONS:
        cursor.skip()
        ops.append(_RELATIONS[sign])
        parts.append(_parse_operand(cursor))
    if ops:
        last = parts[-1]
        if isinstance(last, tree.Quantity) and last.unit.label.startswith("mod "):
            ops[-1] = "==" if ops[-1] == "=" else ops[-1]  # "x = 2 (mod 5)"
        return tree.Relation(tuple(parts), tuple(ops))
    if cursor.is_at_end():
        return parts[0]
    is_word = cursor.peek_word() == "in" and cursor.peek_sign(1) in (
        "(",
        "[",
        "lset",
        "mathbb",
        "]",
    )
    sign = cursor.accept_word("in") if is_word else cursor.accept("in", "notin")
    if not sign:
        return parts[0]
    return tree.SetMembership(parts[0], _parse_set_operand(cursor), negated=sign == "notin")


def _parse_set_operand(cursor: TokenCursor) -> Value:
    """Parse the set of a membership; a plain letter Z is the set of integers."""
    token = cursor.peek()
    if token.kind == "let" and token.text in "ZNQRC":
        cursor.skip()
        return parse_number_set(cursor, token.text * 2)
    return _parse_operand(cursor)


def _parse_operand(cursor: TokenCursor) -> Value:
    """Parse a value, or sets joined by union, intersection and difference."""
    if cursor.peek_sign() in ("approx", "sim", "="):  # "≈ 3.14", "= 5"
        cursor.skip()
    value = parse_quantity_or_ratio(cursor)
    operation_count = 0
    while not cursor.is_at_end() and (op := _peek_set_operation(cursor, value)):
        cursor.skip()
        cursor.enter_level()
        value = tree.Connective(op, (value, parse_quantity_or_ratio(cursor)))
        operation_count += 1
    cursor.depth -= operation_count
    return value


def _peek_set_operation(cursor: TokenCursor, value: Value) -> str | None:
    """Return the set operation that follows ``value``, or None."""
    if (
        cursor.peek_word() == "u"
        and cursor.peek_sign(1) in ("(", "[", "lset")
        and not tree.is_node(value)
    ):
        return "union"
    if cursor.peek_sign() == "-":
        is_set = isinstance(value, tree.ValueList | tree.SetBuilder | tree.Connective)
        return "minus" if is_set or is_number_set(value) else None
    return _SET_OPS.get(cursor.peek_sign()) or _SET_WORDS.get(cursor.peek_word())


def parse_branch(cursor: TokenCursor, value: Value, prose: bool) -> Value:
    """Parse the condition of a branch; the condition "otherwise" is None.

    ``value`` is the value or equation of the branch. ``prose`` says whether the branch is part of a
    sentence, not of an environment.
    """
    condition = None if cursor.accept_word("otherwise", "else") else _parse_condition(cursor, prose)
    if not prose:
        cursor.accept(".")
    if isinstance(value, tree.Relation) and value.ops == ("=",):
        piecewise = tree.Piecewise(((value.parts[1], condition),))
        return tree.Relation((value.parts[0], piecewise), ("=",))
    return tree.Piecewise(((value, condition),))


def _parse_condition(cursor: TokenCursor, prose: bool) -> Value:
    """Parse the condition of a branch; in an environment, other text becomes ``Words``."""
    cursor.accept_word("if", "for", "when", "where")
    cursor.accept("&")
    start = cursor.position
    depth = cursor.depth
    if parity := _accept_parity(cursor):
        return parity
    try:
        condition = _parse_statement(cursor)
        if prose:
            return condition
        conditions = [condition]
        while cursor.accept(",", ";", ".") or cursor.accept_word("and"):
            if cursor.peek_sign() == "\\" or cursor.peek().kind == "end":
                break
            conditions.append(_parse_statement(cursor))
        if len(conditions) > 1:
            condition = tree.Connective("and", tuple(conditions))
        if cursor.peek_sign() == "\\" or cursor.peek().kind == "end":
            return condition
    except UnparsableAnswerError:
        if prose:
            raise
    cursor.position = start
    cursor.depth = depth
    words: list[str] = []
    while cursor.peek_sign() != "\\" and cursor.peek().kind not in ("end", "eof"):
        words.append(cursor.take().text.lower())
    words = [word for word in words if word not in ("is", ",", ".")]
    return tree.Words(drop_single_braces(words))


def _accept_parity(cursor: TokenCursor) -> Value | None:
    """Step over "n is even" before the end of a case; return None at another text."""
    name = cursor.peek()
    ahead = 2 if cursor.peek_word(1) == "is" else 1
    parity = cursor.peek_word(ahead)
    if name.kind != "let" or parity not in ("even", "odd"):
        return None
    cursor.skip(ahead + 1)
    return tree.Quantity(tree.Sym(name.text), counted_unit(parity))


def _is_statement(value: Value) -> bool:
    """Whether ``value`` is a statement other than an equation: it restricts a variable."""
    return isinstance(value, tree.SetMembership | tree.Connective) or (
        isinstance(value, tree.Relation) and value.ops != ("=",)
    )


def _are_statements(values: list[Value]) -> bool:
    """Whether all values are statements; an equation next to one is a statement, too."""
    return any(map(_is_statement, values)) and all(
        _is_statement(value) or isinstance(value, tree.Relation) for value in values
    )


def _have_different_names(values: list[Value]) -> bool:
    """Whether the values are equations for different variables, as in "x = 1 or y = 2"."""
    equations = [value.parts for value in values if isinstance(value, tree.Relation)]
    names = {
        symbol.name.partition("_")[0]
        for symbol, *_, last in equations
        if isinstance(symbol, tree.Sym) and tree.Sym not in map(type, tree.walk(last))
    }
    return len(names) == len(values)


def _is_formula(value: Value) -> bool:
    """Whether ``value`` is a logical formula: a letter, a negation, or a combination of them."""
    is_negation = isinstance(value, tree.Call) and value.name == "not"
    is_implication = isinstance(value, tree.Relation) and value.ops[0] in ("->", "<->")
    return isinstance(value, tree.Sym | tree.Connective) or is_negation or is_implication


def _distribute_equations(items: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return ``x_1, x_2 = 2, 3`` as two equations; return other items unchanged."""
    name_count = 0
    while name_count < len(items) and isinstance(items[name_count], tree.Sym):
        name_count += 1
    equation = items[name_count] if name_count < len(items) else None
    if not name_count or not isinstance(equation, tree.Relation) or equation.ops != ("=",):
        return items
    values = (equation.parts[1], *items[name_count + 1 :])
    if len(values) != name_count + 1 or not isinstance(equation.parts[0], tree.Sym):
        return items
    names = (*items[:name_count], equation.parts[0])
    return tuple(tree.Relation(pair, ("=",)) for pair in zip(names, values, strict=True))


def combine_cases(items: list[Value]) -> Value | None:
    """Return values with conditions as one piecewise function; None if no value has a condition.

    Raises:
        UnparsableAnswerError: Only one or only some of the values have a condition.
    """
    if any(isinstance(item, tree.Relation) and item.ops != ("=",) for item in items):
        return None
    heads = {item.parts[0] for item in items if isinstance(item, tree.Relation)}
    bodies = [item.parts[-1] if isinstance(item, tree.Relation) else item for item in items]
    pieces = [body for body in bodies if isinstance(body, tree.Piecewise)]
    branches = [branch for piece in pieces for branch in piece.branches]
    if not branches:
        return None
    if len(branches) == 1 or len(heads) > 1 or len(pieces) < len(bodies):
        raise UnparsableAnswerError("only some of the values have a condition")
    cases = tree.Piecewise(tuple(branches))
    return tree.Relation((heads.pop(), cases), ("=",)) if heads else cases
