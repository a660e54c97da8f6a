r"""Parser of LaTeX commands: symbols, constants, accents, figures, currencies."""

import re

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.units import UNIT_SIGNS
from fsdpo_data.answers.lexicon.vocabulary import ACCENTS, CONSTANTS, SYMBOLS
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.expressions import parse_factor
from fsdpo_data.answers.parsing.functions import parse_application
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.parsing.number_sets import parse_number_set
from fsdpo_data.answers.parsing.operands import operand, parse_power
from fsdpo_data.answers.tree import Node, Value

_CORNER = re.compile(r"[A-Z](?:_?\d+|')?|.")


@operand("cmd")
def parse_symbol(cursor: TokenCursor) -> Value:
    r"""Parse a variable such as ``\alpha``, or a function with this name.

    Raises:
        UnparsableAnswerError: No table knows the command.
    """
    name = cursor.peek(-1).text
    if name not in SYMBOLS:
        raise UnparsableAnswerError(f"the command {name} is not supported")
    return parse_application(cursor, tree.Sym(name))


@operand("cmd", *CONSTANTS)
def parse_constant(cursor: TokenCursor) -> Node:
    r"""Parse ``\pi``, ``\infty`` or another constant."""
    return CONSTANTS[cursor.peek(-1).text]


@operand("cmd", *(UNIT_SIGNS.keys() - {"%"}))
def parse_currency(cursor: TokenCursor) -> Value:
    r"""Parse an amount after its currency: ``\$5``."""
    cursor.currency = UNIT_SIGNS[cursor.peek(-1).text]
    return parse_factor(cursor)


@operand("cmd", "mathbb")
def parse_blackboard_letter(cursor: TokenCursor) -> Value:
    r"""Parse a number set, ``\mathbb{R}``."""
    return parse_number_set(cursor, cursor.take_group_text() * 2)


@operand("cmd", "emptyset")
def parse_empty_set(cursor: TokenCursor) -> Value:
    r"""Parse ``\emptyset``."""
    return tree.ValueList("{}", ())


@operand("cmd", "pm", "mp")
def parse_plus_minus(cursor: TokenCursor) -> Node:
    r"""Parse the operand of ``\pm`` or ``\mp`` inside a product."""
    sign = 1 if cursor.peek(-1).text == "pm" else -1
    return tree.PlusMinus(sign, as_node(parse_power(cursor)))


@operand("cmd", "neg", "lnot")
def parse_negation(cursor: TokenCursor) -> Node:
    r"""Parse the negation of a formula, ``\neg p``."""
    return tree.Call("not", (as_node(parse_factor(cursor)),))


@operand("cmd", "angle", "triangle")
def parse_figure(cursor: TokenCursor) -> Node:
    r"""Parse ``\angle ABC`` as one name, which is the same from either end.

    The corners of a triangle have no order, except in a congruence or similarity.
    """
    name = cursor.peek(-1).text
    if cursor.peek_sign() == "{":
        corners = _CORNER.findall(cursor.take_group_text())
    else:
        corners = []
        while cursor.peek().kind in ("let", "word") and cursor.peek().text.isupper():
            corners += cursor.take().text
            if cursor.accept("_"):
                corners[-1] += f"_{cursor.take_group_text()}"
    if name == "triangle":
        has_order = any(token.text in ("cong", "sim") for token in cursor.tokens)
        return tree.Sym(f"triangle {''.join(corners if has_order else sorted(corners))}")
    return tree.Sym(f"angle {''.join(min(corners, corners[::-1]))}")


@operand("cmd", *ACCENTS)
def parse_accent(cursor: TokenCursor) -> Value:
    r"""Parse a variable with an accent: ``\dot{x}``, ``\vec{v}``, ``\overline{AB}``."""
    name = cursor.peek(-1).text
    text = cursor.take_group_text()
    if name in ("dot", "ddot"):
        symbol = tree.Sym(text + ("'" if name == "dot" else "''"))
        return parse_application(cursor, symbol)
    # Plain "AB" is read as this product too, so both forms of a segment agree.
    if name == "overline" and len(text) == 2 and text.isupper():
        return tree.multiply([tree.Sym(letter) for letter in text])
    if name in ("vec", "overrightarrow"):
        return tree.Sym(text if len(text) == 1 else f"vec({text})")
    return tree.Sym(f"{name}({text})")
