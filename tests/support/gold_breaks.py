r"""Ways to change a gold answer so that it becomes wrong; see `gold_keeps`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from gold_shapes import (
    CHOICE,
    FRACTION,
    INTERVAL,
    LATEX_WORDS,
    LETTERS,
    Rewrite,
    decimal_text,
    elements,
    intervals,
    join_terms,
    number,
    plain,
    terms,
    tuple_parts,
    without_text,
)


def other_digit(gold: str) -> Iterator[str]:
    body = re.sub(r"(?<=\d)\.0+$", "", gold.strip())
    for match in list(re.finditer(r"\d", body))[:3]:
        if body[match.start() - 1 : match.start()] in ("_", "[") or "_{" in body:
            continue
        digit = str((int(match.group()) + 1) % 10)
        changed = body[: match.start()] + digit + body[match.end() :]
        yield changed


def other_sign(gold: str) -> Iterator[str]:
    value = number(gold)
    match = FRACTION.fullmatch(plain(gold))
    if value or match:
        body = plain(gold)
        yield body[1:] if body.startswith("-") else f"-{body}"


def scale(gold: str) -> Iterator[str]:
    value = number(gold)
    if value:
        for factor in (100, Fraction(1, 100), 10, Fraction(1, 10), 1000):
            text = decimal_text(value * factor)
            if text is not None:
                yield text
        # A percent is its value, so 75 % is no break of 0.75, but 0.75 % is.
        yield f"{decimal_text(value if abs(value) < 1 else value * 10_000)}\\%"


def next_integer(gold: str) -> Iterator[str]:
    value = number(gold)
    if value is not None and value.denominator == 1:
        yield from (str(int(value) + 1), str(int(value) - 1), f"{int(value)}.5")


def other_bracket(gold: str) -> Iterator[str]:
    body = plain(gold).replace("\\left", "").replace("\\right", "")
    if INTERVAL.fullmatch(body) and ("[" in body or "]" in body or "\\infty" in body):
        if "\\infty" not in body[: body.index(",")]:
            yield ("(" if body[0] == "[" else "[") + body[1:]
        if "\\infty" not in body[body.index(",") :]:
            yield body[:-1] + (")" if body[-1] == "]" else "]")


def other_letter(gold: str) -> Iterator[str]:
    body = plain(gold)
    bare = LATEX_WORDS.sub("", without_text(body))
    names = set(LETTERS.findall(bare)) - {"e", "i"}
    calls_or_words = re.search(r"[A-Za-z]\(|[A-Za-z]{2}|\(|=.*=", bare) or re.search(
        r"\\in |\\mid|\\{", body
    )
    if len(names) == 1 and not calls_or_words and not re.fullmatch(r"[a-z]\s*=[^a-z]*", bare):
        (name,) = names
        other = "w" if name != "w" else "q"
        yield re.sub(rf"(?<![A-Za-z\\]){name}(?![A-Za-z])", other, body)


def missing_or_extra(gold: str) -> Iterator[str]:
    parts = elements(gold)
    if parts and len({part.replace(" ", "") for part in parts}) == len(parts):
        yield from (", ".join(parts[1:]), ", ".join(parts[:-1]), ", ".join([*parts, "98765"]))
    parts = tuple_parts(gold)
    if parts:
        yield "(" + ", ".join([*parts, "98765"]) + ")"
        if len(parts) > 2:
            yield "(" + ", ".join(parts[1:]) + ")"


def tuple_swapped(gold: str) -> Iterator[str]:
    parts = tuple_parts(gold)
    if parts and len(set(parts)) == len(parts) and "infty" not in gold:
        yield "(" + ", ".join(reversed(parts)) + ")"


def union_broken(gold: str) -> Iterator[str]:
    if "\\cup" in gold:
        parts = gold.split("\\cup")
        yield gold.replace("\\cup", "\\cap")
        yield " \\cup ".join(parts[1:])
        yield " \\cup ".join(parts[:-1])


def candidates(gold: str) -> Iterator[str]:
    body = plain(gold)
    if number(gold) is not None:
        yield from (f"{body} or 98765", f"98765, {body}", f"either {body} or 98765")
        yield f"{body}, 98764, 98765"
    match = CHOICE.fullmatch(body)
    if match:
        letters = "ABCDEFGHIJK"
        other = letters[(letters.index(match.group(1)) + 1) % len(letters)]
        yield from (other, f"{match.group(1)} or {other}", f"{other}, {match.group(1)}")
        yield "A, B, C, D, E"


def more_than_the_number(gold: str) -> Iterator[str]:
    value = number(gold)
    if value not in (None, 0, 1):
        body = plain(gold)
        yield from (f"{body}x", f"{body}\\pi", f"{body} + 1", f"\\sqrt{{{abs(value)}}}")
        if value != -1:
            yield f"({body})^2"
            yield f"\\frac{{1}}{{{body}}}"


def upside_down(gold: str) -> Iterator[str]:
    match = FRACTION.fullmatch(plain(gold))
    if match and match.group(2) not in ("0", match.group(3)):
        yield f"{match.group(1)}\\frac{{{match.group(3)}}}{{{match.group(2)}}}"


def transpose(gold: str) -> Iterator[str]:
    match = re.fullmatch(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", plain(gold), re.S)
    if match:
        rows = [[c.strip() for c in row.split("&")] for row in match.group(1).split("\\\\")]
        if rows != rows[::-1]:
            yield _matrix(rows[::-1])
        columns = [list(column) for column in zip(*rows, strict=True)]
        if columns != rows and len(rows) == len(columns):
            yield _matrix(columns)
        yield _matrix([*rows, ["98765"] * len(rows[0])])


def _matrix(rows: list[list[str]]) -> str:
    body = " \\\\ ".join(" & ".join(row) for row in rows)
    return f"\\begin{{pmatrix}} {body} \\end{{pmatrix}}"


def other_half_of_the_day(gold: str) -> Iterator[str]:
    if re.search(r"\d\s*(?:a|p)\.?m", gold, re.I):
        yield re.sub(r"([ap])(\.?m)", lambda m: "pa"["ap".index(m[1].lower())] + m[2], gold)


def other_base(gold: str) -> Iterator[str]:
    match = re.fullmatch(r"(\d+)_\{?(\d)\}?", plain(gold))
    if match:
        yield f"{match.group(1)}_{{{int(match.group(2)) + 1}}}"


def negate_words(gold: str) -> Iterator[str]:
    word = re.fullmatch(r"(?:\\text\{)?([A-Za-z]{3,})\}?", gold.strip())
    if word:
        yield from (f"not {word.group(1)}", word.group(1) + " or Zanzibar", "Zanzibar")


def other_relation(gold: str) -> Iterator[str]:
    if re.search(r"\\le(?![a-z])|\\ge(?![a-z])", gold):
        yield re.sub(r"\\le(?![a-z])", "<", re.sub(r"\\ge(?![a-z])", ">", gold))
    elif gold.count("=") == 1 and "\\" not in gold:
        yield plain(gold).replace("=", "<")
        yield plain(gold) + " + 1"


def term_changed(gold: str) -> Iterator[str]:
    parts = terms(gold)
    if parts and len(set(parts)) == len(parts):
        sign, term = parts[-1]
        yield join_terms(parts[:-1])
        yield join_terms(parts[1:])
        yield join_terms([*parts[:-1], ("-" if sign == "+" else "+", term)])
        yield join_terms([*parts, ("+", "98765")])
        yield join_terms(
            [
                (sign, f"2 ({term})") if position == 0 else (sign, term)
                for position, (sign, term) in enumerate(parts)
            ]
        )


def other_unit(gold: str) -> Iterator[str]:
    match = re.search(
        r"\d.*\b(inches|feet|dollars|cents|minutes|hours|pounds|meters|miles|days|cm|hours)\b", gold
    )
    if match and "(" not in gold[: match.start(1) - 1]:
        other_units = {"inches": "feet", "feet": "inches", "dollars": "cents", "cents": "dollars",
                  "minutes": "hours", "hours": "minutes", "pounds": "ounces", "meters": "km",
                  "miles": "feet", "days": "weeks", "cm": "m"}  # fmt: skip
        text = gold[: match.start(1)] + other_units[match.group(1)] + gold[match.end(1) :]
        yield text.replace("(", "").replace(")", "")


def other_root(gold: str) -> Iterator[str]:
    if re.search(r"\\sqrt\{[^{}]+\}", gold) and "cup" not in gold:
        yield re.sub(r"\\sqrt\{", r"\\sqrt[3]{", gold)
        yield re.sub(r"\\sqrt\{([^{}]+)\}", r"(\1)", gold)


def pi_dropped(gold: str) -> Iterator[str]:
    body = plain(gold)
    if re.fullmatch(r"(?:[0-9 {}]|\\(?:frac|pi))+", body) and re.search(r"\d *\\pi", body):
        yield body.replace("\\pi", "")
        yield body.replace("\\pi", "\\pi^2")
        yield body.replace("\\pi", "e")


def imaginary_dropped(gold: str) -> Iterator[str]:
    if re.fullmatch(r"-?\d+ *[+-] *\d+ *i", plain(gold)):
        yield plain(gold).replace("i", "")
        body = plain(gold)
        swap = {"+": "-", "-": "+"}
        position = max(body.rfind("+"), body.rfind("-"))
        yield body[:position] + swap[body[position]] + body[position + 1 :]


def complement(gold: str) -> Iterator[str]:
    parts = intervals(gold)
    if parts and len(parts) == 1 and "infty" not in gold:
        _, low, high, _ = parts[0]
        yield f"(-\\infty, {low}) \\cup ({high}, \\infty)"
        yield f"x < {low} \\text{{ or }} x > {high}"
        yield f"x \\ge {low}"


def wrong_decimals(gold: str) -> Iterator[str]:
    match = FRACTION.fullmatch(plain(gold))
    if match:
        value = Fraction(int(match.group(2)), int(match.group(3)))
        yield f"{match.group(1)}{float(value) + 3e-8:.10f}"
        yield f"{match.group(1)}{float(value) * 1.01:.10f}"
        yield f"{match.group(1)}{float(value) * 100:.8f}"


def swapped_text(gold: str) -> Iterator[str]:
    """Turn the letters of a word around: no reader of products may call that equal."""
    word = re.fullmatch(r"(?:\\text\{)?([A-Za-z]{3,})\}?", gold.strip())
    if word and "\\text" in gold and not word.group(1).isupper():
        yield f"\\text{{{word.group(1)[::-1]}}}"


BREAKS: list[Rewrite] = [
    other_digit, other_sign, scale, next_integer, other_bracket, other_letter, missing_or_extra,
    tuple_swapped, union_broken, candidates, more_than_the_number, upside_down, transpose,
    other_half_of_the_day, other_base, negate_words, other_relation, term_changed, other_unit,
    other_root, pi_dropped, imaginary_dropped, complement, wrong_decimals, swapped_text,
]  # fmt: skip
