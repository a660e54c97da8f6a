r"""Names of number sets such as the reals, with their signs: ``\mathbb{R}^+``."""

from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.tree import Value


def is_number_set(value: Value) -> bool:
    """Whether ``value`` is the name of a number set such as the reals or the integers."""
    return isinstance(value, tree.Sym) and value.name in ("RR", "ZZ", "QQ", "NN", "CC")


def parse_number_set(cursor: TokenCursor, name: str) -> Value:
    r"""Parse the script of a number set, such as ``\mathbb{R}^+`` or ``\mathbb{Z}_{>0}``."""
    if cursor.peek_sign() not in ("^", "_"):
        return tree.Sym(name)
    if cursor.peek_sign(1) not in ("{", "+", "-", "*") and cursor.peek(1).number is None:
        return tree.Sym(name)
    position = cursor.peek_sign()
    cursor.skip()
    sign = cursor.take_group_text()
    if sign.isdigit():
        return tree.Sym(f"{name}{position}{sign}")  # a space of vectors, or residues
    # "NN+" is the set of the positive integers. Authors write ZZ^* for the non-zero integers and
    # for the positive ones, so it is read as ZZ, which contains both.
    if name in ("ZZ", "NN") and sign in ("+", "*", ">0", "ge1"):
        return tree.Sym("ZZ" if (name, sign) == ("ZZ", "*") else "NN+")
    if name != "RR":
        raise UnparsableAnswerError(f"the script {sign} of a number set is not supported")
    if sign == "+":
        return tree.ValueList("()", (tree.Num(Fraction(0)), tree.Const("inf")))
    if sign == "-":
        return tree.ValueList("()", (tree.negate(tree.Const("inf")), tree.Num(Fraction(0))))
    raise UnparsableAnswerError(f"the script {sign} of the real numbers is not supported")
