"""Parsed forms: one short line of text that shows how the grader parsed an answer.

Equal values in different notations, such as ``1/2`` and ``0.5``, have different parsed forms.
"""

from collections.abc import Iterable
from fractions import Fraction

from fsdpo_data.answers import tree

MAX_FORM_CHARS = 500  #: Maximum length of a parsed form. A longer form is cut and ends in ``…``.
_CONNECTIVES = {"or": " or ", "and": " and ", "union": " ∪ ", "intersection": " ∩ ", "minus": " ∖ "}


def format_value(value: tree.Value) -> str:
    """Return the parsed form of a value as plain text."""
    text = _format(value)
    return text if len(text) <= MAX_FORM_CHARS else text[:MAX_FORM_CHARS] + "…"


def _format(value: tree.Value) -> str:
    match value:
        case tree.Num():
            return _format_number(value)
        case tree.Sym() | tree.Const():
            return value.name
        case tree.Add():
            return f"({_join_terms(' + ', value.terms)})"
        case tree.Mul():
            return _join_terms("*", value.factors)
        case tree.Div():
            return f"({_format(value.top)})/({_format(value.bottom)})"
        case tree.Pow():
            return f"({_format(value.base)})^({_format(value.exponent)})"
        case tree.Call():
            return f"{value.name}({_join_terms(', ', value.args)})"
        case tree.PlusMinus():
            return ("±" if value.sign > 0 else "∓") + _format(value.node)
    return _format_compound(value)


def _join_terms(sign: str, parts: Iterable[tree.Value]) -> str:
    return sign.join(map(_format, parts))


def _format_compound(value: tree.Value) -> str:
    match value:
        case tree.Quantity():
            return f"{_format(value.node)} [{value.unit.label}]"
        case tree.Ratio():
            return _join_terms(":", value.parts)
        case tree.NumberInBase():
            return f"{value.digits}_{value.base}"
        case tree.ValueList():
            return value.brackets[:1] + _join_terms(", ", value.items) + value.brackets[1:]
        case tree.Matrix():
            return "[" + "; ".join(_join_terms(", ", row) for row in value.rows) + "]"
        case tree.Relation():
            comparisons = zip(value.ops, value.parts[1:], strict=True)
            tail = "".join(f" {op} {_format(part)}" for op, part in comparisons)
            return _format(value.parts[0]) + tail
        case tree.SetMembership():
            return f"{_format(value.left)} {'∉' if value.negated else '∈'} {_format(value.right)}"
        case tree.Connective():
            return _join_terms(_CONNECTIVES[value.op], value.parts)
        case tree.SetBuilder():
            return f"{{{_format(value.head)} | {_join_terms(', ', value.conditions)}}}"
        case tree.Piecewise():
            return "; ".join(
                f"{_format(result)} if {_format(condition) if condition else 'else'}"
                for result, condition in value.branches
            )
        case tree.DateOrTime():
            return _format_date_or_time(value)
        case tree.Words():
            return "“" + " ".join(value.words) + "”"
    raise TypeError(f"{type(value).__name__} has no parsed form")


def _format_number(number: tree.Num) -> str:
    if number.decimal_places is None:
        value = number.value
        return str(value) if value.numerator.bit_length() < 2_000 else "a large number"
    return _format_decimal(number.value, number.decimal_places)


def _format_decimal(value: Fraction, decimal_places: int) -> str:
    """Format a decimal with all its digits, or with six significant digits if it is long."""
    if decimal_places < 0 and abs(value) < 10**15:
        return str(value)
    if not 0 <= decimal_places <= 30:
        # A number outside these bounds may not fit a float, so only its numerator is shown.
        digits = f"{float(value):.6g}" if 1e-300 < abs(value) < 1e300 else f"{value.numerator}"
        return digits[:40]
    scaled = str(abs(round(value * 10**decimal_places))).rjust(decimal_places + 1, "0")
    sign = "-" if value < 0 else ""
    if not decimal_places:
        return sign + scaled
    return f"{sign}{scaled[:-decimal_places]}.{scaled[-decimal_places:]}"


def _format_date_or_time(value: tree.DateOrTime) -> str:
    date_fields = (value.year, value.month, value.day)
    parts = [str(field) for field in date_fields if field is not None]
    date = "-".join(part.rjust(2, "0") for part in parts)
    if value.seconds is None:
        return date
    minutes, seconds = divmod(value.seconds, 60)
    clock = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02} {value.half_of_day}".strip()
    return f"{date} {clock}".strip()
