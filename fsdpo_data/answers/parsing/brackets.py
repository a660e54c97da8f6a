"""Parser of brackets: groups, tuples, intervals, sets and absolute values."""

from fsdpo_data.answers import tree
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.environments import parse_system
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.parsing.operands import operand, parse_script
from fsdpo_data.answers.parsing.statements import parse_value
from fsdpo_data.answers.tree import Node, Value

#: For every opening bracket, the brackets that may close it; "]0, 1[" is an open interval.
_CLOSERS = {"(": (")", "]"), "[": ("]", ")", "["), "]": ("[", "]"), "langle": ("rangle",)}


@operand("op", *"([]")
@operand("cmd", "langle")
def parse_bracket(cursor: TokenCursor) -> Value:
    """Parse the content and the end of a bracket: a group, a tuple or an interval."""
    opener = cursor.peek(-1).text
    outer_square_closes = cursor.square_closes
    cursor.square_closes = opener in "[]"
    content = _parse_inside(cursor, bars_close=False)
    cursor.square_closes = outer_square_closes
    closer = cursor.expect(*_CLOSERS[opener])
    return _build_bracketed_value(opener, content, closer)


@operand("op", "{")
def parse_group(cursor: TokenCursor) -> Value:
    """Parse a braced group, or a set without backslashes: ``{x | x > 2}``."""
    if cursor.peek().kind == "let" and cursor.peek_sign(1) in ("|", ":"):
        return _parse_set(cursor)
    if cursor.peek_sign() == "}":
        raise UnparsableAnswerError("a group is empty")
    group = _parse_inside(cursor, bars_close=False)
    cursor.expect("}")
    is_list = isinstance(group, tree.ValueList) and not group.brackets
    return tree.ValueList("{}", tree.list_values(group)) if is_list else group


@operand("cmd", "lset")
def parse_set_or_system(cursor: TokenCursor) -> Value:
    """Parse a set, or the system of equations that a single brace opens."""
    if cursor.peek().text == "array":
        cursor.skip()
        return parse_system(cursor)
    return _parse_set(cursor)


@operand("op", "|")
@operand("cmd", "|")
def parse_absolute_value(cursor: TokenCursor) -> Node:
    """Parse ``|x|``."""
    argument = as_node(_parse_inside(cursor, bars_close=True))
    cursor.expect("|")
    return tree.Call("abs", (argument,))


@operand("op", "_")
def parse_choose(cursor: TokenCursor) -> Node:
    """Parse the binomial coefficient ``_{10}C_3``."""
    total = parse_script(cursor)
    cursor.currency = None  # the "$" before "_{10}C_3" delimits math, and is not a currency
    if cursor.peek_word() != "c" or cursor.peek_sign(1) != "_":
        raise UnparsableAnswerError("the subscript has no variable")
    cursor.skip(2)
    return tree.Call("binom", (total, parse_script(cursor)))


def _parse_set(cursor: TokenCursor) -> Value:
    """Parse ``{1, 2}`` or ``{x | x > 2}``; the opening brace is already taken."""
    if cursor.accept("rset", "}"):
        return tree.ValueList("{}", ())
    head = _parse_inside(cursor, bars_close=True)
    has_conditions = bool(cursor.accept("|", ":", ";"))
    conditions = _parse_inside(cursor, bars_close=False) if has_conditions else None
    cursor.expect("rset", "}")
    if conditions is None:
        return tree.ValueList("{}", tree.list_values(head))
    return tree.SetBuilder(head, tree.list_values(conditions))


def _parse_inside(cursor: TokenCursor, bars_close: bool) -> Value:
    """Parse the content of a bracket; ``bars_close`` says whether ``|`` ends it."""
    outer_bars_close = cursor.bars_close
    cursor.bars_close = bars_close
    value = parse_value(cursor)
    cursor.bars_close = outer_bars_close
    return value


def _build_bracketed_value(opener: str, content: Value, closer: str) -> Value:
    """Return the value of a bracket: a group, a tuple or an interval.

    Raises:
        UnparsableAnswerError: The brackets of a single value do not match.
    """
    left = {"(": "(", "langle": "(", "[": "[", "]": "("}[opener]
    right = {")": ")", "rangle": ")", "]": "]", "[": ")"}[closer]
    if isinstance(content, tree.ValueList) and not content.brackets:
        return tree.ValueList(left + right, content.items)
    if left + right not in ("()", "[]"):
        raise UnparsableAnswerError("the brackets do not match")
    return content
