"""Normal forms: one short line that says how an answer was read."""

from __future__ import annotations

from fractions import Fraction

from fsdpo_data.answers.tree import (
    Add,
    Based,
    Builder,
    Call,
    Cases,
    Const,
    Div,
    Items,
    Join,
    Matrix,
    Member,
    Moment,
    Mul,
    Num,
    PlusMinus,
    Pow,
    Quantity,
    Ratio,
    Relation,
    Sym,
    Text,
    Value,
)

#: Longest normal form that is shown.
MAX_FORM = 500
_JOINS = {"or": " or ", "and": " and ", "union": " ∪ ", "intersection": " ∩ ", "minus": " ∖ "}


def show(value: Value) -> str:
    """Write ``value`` as plain text."""
    text = _show(value)
    return text if len(text) <= MAX_FORM else text[:MAX_FORM] + "…"


def _show(value: Value) -> str:
    match value:
        case Num():
            return _number(value)
        case Sym() | Const():
            return value.name
        case Add():
            return "(" + " + ".join(map(_show, value.terms)) + ")"
        case Mul():
            return "*".join(map(_show, value.factors))
        case Div():
            return f"({_show(value.top)})/({_show(value.bottom)})"
        case Pow():
            return f"({_show(value.base)})^({_show(value.exponent)})"
        case Call():
            return f"{value.name}({', '.join(map(_show, value.args))})"
        case PlusMinus():
            return ("±" if value.sign > 0 else "∓") + _show(value.node)
        case _:
            return _compound(value)


def _compound(value: Value) -> str:
    match value:
        case Quantity():
            return f"{_show(value.node)} [{value.unit.label}]"
        case Ratio():
            return ":".join(map(_show, value.parts))
        case Based():
            return f"{value.digits}_{value.base}"
        case Items():
            return value.brackets[:1] + ", ".join(map(_show, value.items)) + value.brackets[1:]
        case Matrix():
            return "[" + "; ".join(", ".join(map(_show, row)) for row in value.rows) + "]"
        case Relation():
            rest = (f" {op} {_show(part)}" for op, part in zip(value.ops, value.parts[1:],
                                                               strict=True))  # fmt: skip
            return _show(value.parts[0]) + "".join(rest)
        case Member():
            return f"{_show(value.left)} {'∉' if value.negated else '∈'} {_show(value.right)}"
        case Join():
            return _JOINS[value.op].join(map(_show, value.parts))
        case Builder():
            return f"{{{_show(value.head)} | {', '.join(map(_show, value.conditions))}}}"
        case Cases():
            return "; ".join(
                f"{_show(one)} if {_show(said) if said else 'else'}" for one, said in value.branches
            )
        case Moment():
            return _moment(value)
        case Text():
            return "“" + " ".join(value.words) + "”"
        case _:
            raise TypeError(f"{type(value).__name__} has no normal form")


def _number(number: Num) -> str:
    if number.places is None:
        value = number.value
        return str(value) if value.numerator.bit_length() < 2_000 else "a large number"
    return _decimal(number.value, number.places)


def _decimal(value: Fraction, places: int) -> str:
    if places < 0 and abs(value) < 10**15:
        return str(value)
    if not 0 <= places <= 30:
        digits = f"{float(value):.6g}" if 1e-300 < abs(value) < 1e300 else f"{value.numerator}"
        return digits[:40]
    scaled = str(abs(round(value * 10**places))).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{scaled[:-places]}.{scaled[-places:]}" if places else sign + scaled


def _moment(moment: Moment) -> str:
    parts = [str(part) for part in (moment.year, moment.month, moment.day) if part is not None]
    date = "-".join(part.rjust(2, "0") for part in parts)
    if moment.seconds is None:
        return date
    minutes, seconds = divmod(moment.seconds, 60)
    clock = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02} {moment.half}".strip()
    return f"{date} {clock}".strip()
