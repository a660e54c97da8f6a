r"""Parser of LaTeX environments: matrices, determinants, systems of equations, cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.vocabulary import word_set
from fsdpo_data.answers.parsing.cursor import TokenCursor
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.parsing.nodes import as_node
from fsdpo_data.answers.tree import Node, Value

if TYPE_CHECKING:
    from fsdpo_data.answers.parsing.quantities import QuantityParser
    from fsdpo_data.answers.parsing.statements import StatementParser

_MATRIX_ENVIRONMENTS = word_set("vmatrix pmatrix bmatrix matrix Bmatrix smallmatrix array")
#: Environments that contain a list of equations or branches.
_SYSTEM_ENVIRONMENTS = word_set("cases aligned align gathered")
_MAX_DETERMINANT_ROWS = 4  #: Maximum number of rows of a determinant that is expanded.


class EnvironmentParser:
    """Parser of environments."""

    __slots__ = ("_cursor", "_quantities", "_statements")

    def __init__(
        self, cursor: TokenCursor, quantities: QuantityParser, statements: StatementParser
    ) -> None:
        self._cursor = cursor
        self._quantities = quantities
        self._statements = statements

    def parse_environment(self, name: str) -> Value:
        r"""Parse a matrix, a determinant or a system; its ``\begin`` is already taken."""
        cursor = self._cursor
        if name in _SYSTEM_ENVIRONMENTS:
            return self.parse_system()
        if name not in _MATRIX_ENVIRONMENTS:
            raise UnparsableAnswerError(f"the environment {name} is not supported")
        rows: list[tuple[Value, ...]] = []
        row: list[Value] = []
        while cursor.peek().kind != "end":
            row.append(self._quantities.parse_quantity())
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

    def parse_system(self) -> Value:
        r"""Parse the equations or branches of ``\begin{cases} … \end{cases}``."""
        cursor = self._cursor
        items: list[Value] = []
        while cursor.peek().kind != "end":
            value = self._statements.parse_item()
            has_comma = bool(cursor.accept(",", ";"))
            is_row_end = cursor.peek_sign() == "\\" or cursor.peek().kind == "end"
            if cursor.accept("&") or (
                has_comma and not is_row_end and not isinstance(value, tree.Relation)
            ):
                value = self._statements.parse_branch(value, prose=False)
            items.append(value)
            if not cursor.accept("\\"):
                break
            cursor.accept("&")
        if cursor.take().kind != "end":
            raise UnparsableAnswerError("the environment has no end")
        return combine_cases(items) or tree.ValueList("", tuple(items))


def combine_cases(items: list[Value]) -> Value | None:
    """Return values with conditions as one piecewise function; None if no value has a condition.

    Raises:
        UnparsableAnswerError: Only one or only some of the values have a condition.
    """
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
