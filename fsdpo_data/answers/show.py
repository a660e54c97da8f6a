"""Normal forms: one short line that says how an answer was read."""

from collections.abc import Iterable
from fractions import Fraction

from fsdpo_data.answers import tree

MAX_FORM_CHARS = 500  #: Longest normal form that is shown.
_JOINS = {"or": " or ", "and": " and ", "union": " ∪ ", "intersection": " ∩ ", "minus": " ∖ "}


def format_value(value: tree.Value) -> str:
    """Write ``value`` as plain text."""
    text = _show(value)
    return text if len(text) <= MAX_FORM_CHARS else text[:MAX_FORM_CHARS] + "…"


def _show(value: tree.Value) -> str:
    match value:
        case tree.Num():
            return _number(value)
        case tree.Sym() | tree.Const():
            return value.name
        case tree.Add():
            return f"({_join_terms(' + ', value.terms)})"
        case tree.Mul():
            return _join_terms("*", value.factors)
        case tree.Div():
            return f"({_show(value.top)})/({_show(value.bottom)})"
        case tree.Pow():
            return f"({_show(value.base)})^({_show(value.exponent)})"
        case tree.Call():
            return f"{value.name}({_join_terms(', ', value.args)})"
        case tree.PlusMinus():
            return ("±" if value.sign > 0 else "∓") + _show(value.node)
    return _compound(value)


def _join_terms(sign: str, parts: Iterable[tree.Value]) -> str:
    return sign.join(map(_show, parts))


def _compound(value: tree.Value) -> str:
    match value:
        case tree.Quantity():
            return f"{_show(value.node)} [{value.unit.label}]"
        case tree.Ratio():
            return _join_terms(":", value.parts)
        case tree.NumberInBase():
            return f"{value.digits}_{value.base}"
        case tree.ValueList():
            return value.brackets[:1] + _join_terms(", ", value.items) + value.brackets[1:]
        case tree.Matrix():
            return "[" + "; ".join(_join_terms(", ", row) for row in value.rows) + "]"
        case tree.Relation():
            rest = zip(value.ops, value.parts[1:], strict=True)
            return _show(value.parts[0]) + "".join(f" {op} {_show(part)}" for op, part in rest)
        case tree.SetMembership():
            return f"{_show(value.left)} {'∉' if value.negated else '∈'} {_show(value.right)}"
        case tree.Connective():
            return _join_terms(_JOINS[value.op], value.parts)
        case tree.SetBuilder():
            return f"{{{_show(value.head)} | {_join_terms(', ', value.conditions)}}}"
        case tree.Piecewise():
            return "; ".join(
                f"{_show(one)} if {_show(said) if said else 'else'}" for one, said in value.branches
            )
        case tree.DateOrTime():
            return _moment(value)
        case tree.Words():
            return "“" + " ".join(value.words) + "”"
    raise TypeError(f"{type(value).__name__} has no normal form")


def _number(number: tree.Num) -> str:
    if number.decimal_places is None:
        value = number.value
        return str(value) if value.numerator.bit_length() < 2_000 else "a large number"
    return _decimal(number.value, number.decimal_places)


def _decimal(value: Fraction, places: int) -> str:
    if places < 0 and abs(value) < 10**15:
        return str(value)
    if not 0 <= places <= 30:
        digits = f"{float(value):.6g}" if 1e-300 < abs(value) < 1e300 else f"{value.numerator}"
        return digits[:40]
    scaled = str(abs(round(value * 10**places))).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{scaled[:-places]}.{scaled[-places:]}" if places else sign + scaled


def _moment(moment: tree.DateOrTime) -> str:
    parts = [str(part) for part in (moment.year, moment.month, moment.day) if part is not None]
    date = "-".join(part.rjust(2, "0") for part in parts)
    if moment.seconds is None:
        return date
    minutes, seconds = divmod(moment.seconds, 60)
    clock = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02} {moment.half_of_day}".strip()
    return f"{date} {clock}".strip()
