"""Parser of operands: the handlers of their first tokens, with exponents and other marks.

An operand is a number, a name, a command or a bracket. Each kind of operand has a handler, which is
registered by the token that starts the operand. A bracket contains a complete list, so its handler
imports the parsers of lists, and those import this module.
"""

from collections import defaultdict
from collections.abc import Callable

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.vocabulary import MAX_PRODUCT_LETTERS, ORDINAL_MARKS, is_known_name
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.tree import Node, Value

#: A function that parses an operand. Its first token is already taken: it is ``cursor.peek(-1)``.
OperandHandler = Callable[[TokenCursor], Value]
#: A function that parses a mark after a value, such as a factorial; the sign is already taken.
MarkHandler = Callable[[TokenCursor, Value], Value]
#: A function that parses a mark after a variable, such as a subscript.
NameMarkHandler = Callable[[TokenCursor, tree.Sym], Value]

MAX_POSTFIX = 20  #: Maximum number of exponents, factorials and primes after one operand.
_ANY_TEXT = ""  #: Key of the handler of all other tokens of a kind.
_OPERANDS: dict[str, dict[str, OperandHandler]] = defaultdict(dict)
_MARKS: dict[str, MarkHandler] = {}
_NAME_MARKS: dict[str, NameMarkHandler] = {}


def operand(kind: str, *texts: str) -> Callable[[OperandHandler], OperandHandler]:
    """Return a decorator that registers the handler of operands.

    Args:
        kind: Kind of the first token; see ``Token``.
        texts: Texts of the first token. Without texts, the handler parses all tokens of the kind
            that have no handler of their own.
    """

    def register(handler: OperandHandler) -> OperandHandler:
        _OPERANDS[kind].update(dict.fromkeys(texts or (_ANY_TEXT,), handler))
        return handler

    return register


def mark(sign: str) -> Callable[[MarkHandler], MarkHandler]:
    """Return a decorator that registers the handler of a mark after an operand."""

    def register(handler: MarkHandler) -> MarkHandler:
        _MARKS[sign] = handler
        return handler

    return register


def name_mark(sign: str) -> Callable[[NameMarkHandler], NameMarkHandler]:
    """Return a decorator that registers the handler of a mark after a variable."""

    def register(handler: NameMarkHandler) -> NameMarkHandler:
        _NAME_MARKS[sign] = handler
        return handler

    return register


def parse_primary(cursor: TokenCursor) -> Value:
    """Parse a number, a letter, a word, a command or a bracket."""
    cursor.enter_level()
    token = cursor.take()
    handlers = _OPERANDS.get(token.kind, {})
    handler = handlers.get(token.text) or handlers.get(_ANY_TEXT)
    if handler is None:
        raise UnparsableAnswerError(f"the operand before {token.text or 'the end'} is missing")
    value = handler(cursor)
    cursor.leave_level()
    return value


def parse_power(cursor: TokenCursor) -> Value:
    """Parse an operand with its exponents, subscripts, factorials and primes."""
    cursor.count_operand()
    value = parse_primary(cursor)
    return parse_postfix(cursor, value) if tree.is_node(value) else _parse_transpose(cursor, value)


def _parse_transpose(cursor: TokenCursor, value: Value) -> Value:
    r"""Return the transpose of a vector or matrix if ``^T`` follows, else ``value``."""
    braced = int(cursor.peek_sign(1) == "{")
    if cursor.peek_sign() != "^" or cursor.peek(1 + braced).text not in (
        "T",
        "top",
        "intercal",
    ):
        return value
    rows = value.rows if isinstance(value, tree.Matrix) else None
    if isinstance(value, tree.ValueList) and value.brackets in ("()", "[]"):
        rows = (value.items,)
    if rows is None or (braced and cursor.peek_sign(3) != "}"):
        raise UnparsableAnswerError("a transposed value is not a matrix")
    cursor.skip(2 + 2 * braced)
    return tree.Matrix(tuple(zip(*rows, strict=True)))


def parse_postfix(cursor: TokenCursor, value: Value) -> Value:
    """Parse exponents, subscripts, factorials and primes after ``value``."""
    for _ in range(MAX_POSTFIX):
        sign = cursor.peek_sign()
        if sign in _MARKS:
            cursor.skip()
            value = _MARKS[sign](cursor, value)
        elif sign in _NAME_MARKS and isinstance(value, tree.Sym):
            cursor.skip()
            value = _NAME_MARKS[sign](cursor, value)
        else:
            return value
    raise UnparsableAnswerError(f"an operand has more than {MAX_POSTFIX} exponents and other marks")


def parse_exponent(cursor: TokenCursor, base: Node) -> Node:
    """Parse the text after ``^``: an exponent, degrees, primes or an ordinal mark."""
    primes = cursor.accept_degree_or_primes()
    if primes == "circ":
        return tree.Call("deg", (base,))
    if primes:
        if not isinstance(base, tree.Sym):
            raise UnparsableAnswerError("a prime follows an expression that is not a variable")
        return tree.Sym(base.name + "'" * primes.count("'"))
    if isinstance(base, tree.Num) and _accept_ordinal_mark(cursor):
        return tree.Call("ordinal", (base,))
    return tree.Pow(base, parse_script(cursor))


def _accept_ordinal_mark(cursor: TokenCursor) -> bool:
    """Step over the ordinal mark of ``6^{th}``."""
    braced = int(cursor.peek_sign() == "{")
    if cursor.peek_word(braced) not in ORDINAL_MARKS:
        return False
    cursor.skip(1 + braced)
    if braced:
        cursor.expect("}")
    return True


def parse_script(cursor: TokenCursor) -> Node:
    """Parse an exponent or a subscript: a braced group, or one operand with its sign."""
    cursor.enter_level()
    cursor.count_operand()
    if cursor.accept("-"):
        node = tree.negate(parse_script(cursor))
    else:
        cursor.accept("+")
        word = cursor.peek_word()
        if 1 < len(word) <= MAX_PRODUCT_LETTERS and not is_known_name(word):
            cursor.split_word()  # an exponent without braces is one letter
        number = cursor.take().number if cursor.peek().kind == "num" else None
        node = as_node(parse_primary(cursor)) if number is None else number
        if cursor.accept("^"):
            node = parse_exponent(cursor, node)
        elif cursor.peek_sign() == "!":
            node = as_node(parse_postfix(cursor, node))
    cursor.leave_level()
    return node
