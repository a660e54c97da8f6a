"""Conditions of users on the columns of one row, in SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsdpo_data.core.errors import InputError, suggest_names
from fsdpo_data.core.lazy import pl

#: Functions of one row. Functions of several rows, such as ``sum``, would depend on the files.
ROW_FUNCTIONS = frozenset(
    (
        *("abs", "array_contains", "array_get", "array_length", "array_mean", "array_sum"),
        *("array_to_string", "cast", "ceil", "char_length", "coalesce", "concat", "concat_ws"),
        *("ends_with", "exp", "floor", "greatest", "if", "ifnull", "left", "length", "ln"),
        *("log10", "log2", "lower", "ltrim", "mod", "nullif", "octet_length", "pow", "power"),
        *("regexp_like", "replace", "reverse", "right", "round", "rtrim", "sign", "sqrt"),
        *("starts_with", "strpos", "substr", "trim", "try_cast", "upper"),
    )
)
#: Words that may stand before a parenthesis and are not functions.
_KEYWORDS = frozenset(
    (
        *("and", "any", "between", "case", "else", "ilike", "in", "like", "not", "or"),
        *("regexp", "rlike", "then", "when"),
    )
)
#: Functions whose results have no sign in polars, so that a difference below zero would wrap.
_UNSIGNED_FUNCTIONS = frozenset(("array_length", "char_length", "length", "octet_length", "strpos"))
_REFUSED_KEYWORDS = frozenset(("over", "select"))
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"")
_CALL = re.compile(r"(\w+)\s*\(")
_WORD = re.compile(r"\w+")
_INNERMOST = re.compile(r"\(([^()]*)\)")
_ORDER = re.compile(r"(?<![<>=!])(?:<=|>=|<|>)(?![<>=])")
_BETWEEN_COMPARISONS = re.compile(r"(?i)\b(?:and|or|not|when|then|else)\b|,")
_MIN_INT64 = -(2**63)
_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A condition that holds for a row or does not."""

    text: str  #: The condition, as the user wrote it.
    field: str  #: Field of the options with the condition, for errors.
    expr: pl.Expr  #: The condition as a polars expression.

    @property
    def names(self) -> list[str]:
        """Names of the columns in the condition, each once."""
        return list(dict.fromkeys(self.expr.meta.root_names()))

    def check_names(self, columns: Sequence[str]) -> None:
        """Refuse a condition with an unknown column.

        Raises:
            InputError: with the known columns and similar names.
        """
        for name in self.names:
            if name not in columns:
                raise self._error(
                    f"there is no column {name!r}; expected {', '.join(columns)}."
                    f"{suggest_names(name, columns)} Texts have single quotes."
                )

    def evaluate(self, rows: pl.DataFrame) -> pl.Series:
        """Return whether the condition holds, one boolean per row; null counts as false.

        Raises:
            InputError: if the condition does not fit the types of the columns, or is not a
                condition.
        """
        # Counts. Hashes of 64 bits have no signed type.
        count_types = (pl.UInt8, pl.UInt16, pl.UInt32)
        counts = [name for name in self.names if rows[name].dtype in count_types]
        try:
            rows = rows.with_columns(pl.col(counts).cast(pl.Int64))
            values = rows.select(condition=self.expr)["condition"]
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            reason = str(error).splitlines()[0]
            raise self._error(
                f"the condition does not fit the columns: {reason}. "
                "`fsdpo-data inspect` with `columns=True` lists the types."
            ) from None
        if values.dtype == pl.Null:
            values = values.cast(pl.Boolean)
        if values.dtype != pl.Boolean:
            raise self._error(
                f"expected a condition that is true or false, got {values.dtype}. Write a "
                "comparison, such as `n_tokens < 800`."
            )
        if len(values) != rows.height:  # a condition without a column, such as 1 = 1
            values = pl.repeat(values[0], rows.height, dtype=pl.Boolean, eager=True)
        return values.fill_null(value=False)

    def _error(self, message: str) -> InputError:
        return InputError(message, field=self.field, value=self.text)


def parse_condition(text: str, field: str) -> RowCondition:
    """Parse a condition on the columns of one row.

    Args:
        text: A condition in SQL, such as ``n_tokens < 800 AND outcome = 'correct'``.
        field: Field of the options, for errors.

    Raises:
        InputError: if the text is not SQL, or has a function of several rows.
    """
    unquoted = _QUOTED.sub(lambda quoted: "'" + "_" * (len(quoted[0]) - 2) + "'", text)
    functions = {name.lower() for name in _CALL.findall(unquoted)} - _KEYWORDS
    unknown = sorted(functions - ROW_FUNCTIONS)
    unknown += sorted({word.lower() for word in _WORD.findall(unquoted)} & _REFUSED_KEYWORDS)
    if unknown:
        raise InputError(
            f"{unknown[0]!r} is not a function of one row. The functions are "
            f"{', '.join(sorted(ROW_FUNCTIONS))}.",
            field=field,
            value=text,
        )
    if _has_chain(unquoted):
        raise InputError(
            "a chain such as `a < b < c` compares the result of `a < b` with `c`. Write "
            "`b BETWEEN a AND c`, or `a < b AND b < c`.",
            field=field,
            value=text,
        )
    try:
        expr = pl.sql_expr(_add_signs(text, unquoted))
        assert isinstance(expr, pl.Expr)
        expr.meta.root_names()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, AssertionError) as error:
        reason = (str(error) or "it has several values").splitlines()[0]
        raise InputError(
            f"expected a condition in SQL, such as `n_tokens < 800 AND outcome = 'correct'` "
            f"({reason}).",
            field=field,
            value=text,
        ) from None
    return RowCondition(text, field, expr)


def _has_chain(unquoted: str) -> bool:
    """Whether a condition has a chain such as ``a < b < c``."""
    parts = []
    while innermost := _INNERMOST.search(unquoted):
        parts.append(innermost[1])
        unquoted = f"{unquoted[: innermost.start()]}x{unquoted[innermost.end() :]}"
    parts.append(unquoted)
    clauses = (clause for part in parts for clause in _BETWEEN_COMPARISONS.split(part))
    return any(len(_ORDER.findall(clause)) > 1 for clause in clauses)


def _add_signs(text: str, unquoted: str) -> str:
    """Return a condition in which the results of :data:`_UNSIGNED_FUNCTIONS` have a sign.

    Args:
        text: The condition.
        unquoted: The condition, in which quoted texts of the same length hold no parenthesis.
    """
    for call in reversed(list(_CALL.finditer(unquoted))):
        if call[1].lower() in _UNSIGNED_FUNCTIONS:
            start = call.start()
            end = _find_closing(unquoted, call.end())
            text, unquoted = (
                f"{condition[:start]}CAST({condition[start:end]} AS BIGINT){condition[end:]}"
                for condition in (text, unquoted)
            )
    return text


def _find_closing(unquoted: str, start: int) -> int:
    """Return the position after the parenthesis that closes a call; ``start`` is in the call."""
    depth = 1
    for position in range(start, len(unquoted)):
        depth += {"(": 1, ")": -1}.get(unquoted[position], 0)
        if not depth:
            return position + 1
    return len(unquoted)


def metadata_column(values: Sequence[Mapping[str, Any]], name: str) -> pl.Series:
    """Return a field of the metadata of problems as a column; null where it is missing.

    Numbers stay numbers if all values are numbers, and integers of 64 bits stay exact. All other
    values become texts.

    Args:
        values: The metadata of all problems, so that the field has one type.
        name: Name of the field.
    """
    items = [row.get(name) for row in values]
    present = [item for item in items if item is not None]
    types = {type(item) for item in present}
    if types == {bool}:
        return pl.Series(name, items, dtype=pl.Boolean)
    if types == {int} and all(_MIN_INT64 <= item <= _MAX_INT64 for item in present):
        return pl.Series(name, items, dtype=pl.Int64)
    if types and types <= {int, float}:
        return pl.Series(name, [None if item is None else float(item) for item in items])
    texts = [None if item is None else str(item) for item in items]
    return pl.Series(name, texts, dtype=pl.String)
