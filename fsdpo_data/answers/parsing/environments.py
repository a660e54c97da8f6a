r"""Parser of LaTeX environments: matrices, determinants, systems of equations, cases."""

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.vocabulary import word_set
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.parsing.operands import operand
from fsdpo_data.answers.parsing.quantities import parse_quantity
from fsdpo_data.answers.parsing.statements import combine_cases, parse_branch, parse_item
from fsdpo_data.answers.tree import Node, Value

_MATRIX_ENVIRONMENTS = word_set("vmatrix pmatrix bmatrix matrix Bmatrix smallmatrix array")
#: Environments that contain a list of equations or branches.
_SYSTEM_ENVIRONMENTS = word_set("cases aligned align gathered")
_MAX_DETERMINANT_ROWS = 4  #: Maximum number of rows of a determinant that is expanded.


@operand("begin")
def parse_environment(cursor: TokenCursor) -> Value:
    r"""Parse a matrix, a determinant or a system; its ``\begin`` is already taken."""
    name = cursor.peek(-1).text
    if name in _SYSTEM_ENVIRONMENTS:
        return parse_system(cursor)
    if name not in _MATRIX_ENVIRONMENTS:
        raise UnparsableAnswerError(f"the environment {name} is not supported")
    rows: list[tuple[Value, ...]] = []
    row: list[Value] = []
    while cursor.peek().kind != "end":
        row.append(parse_quantity(cursor))
        if cursor.accept("&"):
            continue
        rows.append(tuple(row))
        row = []
        if not cursor.accept("\\"):
            break
    if cursor.take().kind != "end" or len({len(row) for row in rows}) != 1:
        raise UnparsableAnswerError(
            "the rows of the matrix differ in length, or the matrix has no end"
        )
    if name == "vmatrix":
        return _expand_determinant([[as_node(entry) for entry in row] for row in rows])
    return tree.Matrix(tuple(rows))


def parse_system(cursor: TokenCursor) -> Value:
    r"""Parse the equations or branches of ``\begin{cases} … \end{cases}``."""
    items: list[Value] = []
    while cursor.peek().kind != "end":
        value = parse_item(cursor)
        has_comma = bool(cursor.accept(",", ";"))
        is_row_end = cursor.peek_sign() == "\\" or cursor.peek().kind == "end"
        if cursor.accept("&") or (
            has_comma and not is_row_end and not isinstance(value, tree.Relation)
        ):
            value = parse_branch(cursor, value, prose=False)
        items.append(value)
        if not cursor.accept("\\"):
            break
        cursor.accept("&")
    if cursor.take().kind != "end":
        raise UnparsableAnswerError("the environment has no end")
    return combine_cases(items) or tree.ValueList("", tuple(items))


def _expand_determinant(rows: list[list[Node]]) -> Node:
    """Expand a determinant along its first row."""
    if len(rows) != len(rows[0]) or len(rows) > _MAX_DETERMINANT_ROWS:
        raise UnparsableAnswerError(
            f"the determinant is not square, or has more than {_MAX_DETERMINANT_ROWS} rows"
        )
    if len(rows) == 1:
        return rows[0][0]
    terms: list[Node] = []
    for column, entry in enumerate(rows[0]):
        minor = _expand_determinant([[*row[:column], *row[column + 1 :]] for row in rows[1:]])
        cofactor = minor if column % 2 == 0 else tree.negate(minor)
        terms.append(tree.multiply([entry, cofactor]))
    return tree.add(terms)
