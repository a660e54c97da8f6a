r"""Ways to write a gold again: some keep its meaning (`KEEPS`), some change it (`BREAKS`).

A rewrite takes a gold and yields other texts for it; it yields nothing for golds it does not apply
to. Guards are narrow on purpose: a rewrite must be certain, not frequent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction

Rewrite = Callable[[str], Iterator[str]]

INTEGER = re.compile(r"-?\d+")
DECIMAL = re.compile(r"-?\d*\.\d+|-?\d+")
FRACTION = re.compile(r"(-?)\\[dt]?frac\{(\d+)\}\{(\d+)\}")
E_NOTATION = re.compile(r"(-?\d+(?:\.\d+)?)e(-?\d+)")
LETTERS = re.compile(r"(?<![A-Za-z\\])[a-z](?![A-Za-z])")
LATEX_WORDS = re.compile(r"\\[A-Za-z]+")
CHOICE = re.compile(r"(?:\\text\{)?\(?(?:\\text\{)?\(?([A-K])\)?\}?\)?")
INTERVAL = re.compile(r"([\[(])([^\[\](),]+),([^\[\](),]+)([\])])")
NUMBERS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen", "twenty",
]  # fmt: skip


def plain(gold: str) -> str:
    """Return the gold without dollar signs around it and space at its ends."""
    gold = gold.strip()
    if gold.startswith("$") and gold.endswith("$") and gold.count("$") == 2:
        gold = gold[1:-1].strip()
    return gold


def number(gold: str) -> Fraction | None:
    """Return the value of a gold that is a plain decimal or integer."""
    text = plain(gold).replace(",\\!", "").replace("{,}", "")
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+", text):
        text = text.replace(",", "")
    return Fraction(text) if DECIMAL.fullmatch(text) else None


def is_maths(gold: str) -> bool:
    """Say whether the gold can stand between dollar signs as it is."""
    return "$" not in gold and not re.search(r"(?<![\\A-Za-z{])[A-Za-z]{2,}", without_text(gold))


def without_text(gold: str) -> str:
    return re.sub(r"\\(?:text|mbox|mathrm|textbf|begin|end)\s*\{[^{}]*\}", "", gold)


def elements(gold: str) -> list[str] | None:
    """Return the elements of a bare list such as ``3, \\frac{1}{2}``; None for anything else."""
    gold = plain(gold)
    if re.search(r"[()\[\]<>=]|\\text|\\\{|\\ldots|\\le|\\ge|\\in|\\!|\{,\}|[a-z]{2}\s*:", gold):
        return None
    if re.search(r"\d,\d{3}(?!\d)", gold) or "$" in gold or "\\cup" in gold or ";" in gold:
        return None
    parts = [part.strip() for part in gold.split(",")]
    return parts if len(parts) > 1 and all(parts) else None


def tuple_parts(gold: str) -> list[str] | None:
    """Return the parts of a tuple with round brackets."""
    gold = plain(gold).replace("\\left(", "(").replace("\\right)", ")")
    if not (gold.startswith("(") and gold.endswith(")")) or re.search(r"[()\\]", gold[1:-1]):
        return None
    parts = [part.strip() for part in gold[1:-1].split(",")]
    return parts if len(parts) > 1 and all(parts) else None


def decimal_text(value: Fraction) -> str | None:
    """Write a value that has a short decimal expansion as one."""
    for places in range(7):
        scaled = value * 10**places
        if scaled.denominator == 1:
            digits = str(abs(scaled.numerator)).rjust(places + 1, "0")
            sign = "-" if value < 0 else ""
            return sign + (digits if not places else f"{digits[:-places]}.{digits[-places:]}")
    return None


# --- rewrites that keep the meaning -------------------------------------------------------------


def spaced_out(gold: str) -> Iterator[str]:
    yield f"  {gold}\n"
    if is_maths(gold):
        yield f"\\, {gold} \\;"


def delimiters(gold: str) -> Iterator[str]:
    if is_maths(gold):
        yield from (f"${gold}$", f"\\({gold}\\)", f"\\[{gold}\\]", f"$$ {gold} $$", f"${gold}$.")


def full_stop(gold: str) -> Iterator[str]:
    if not gold.rstrip().endswith((".", "!")):
        yield gold.rstrip() + "."


def boxed(gold: str) -> Iterator[str]:
    if is_maths(gold):
        yield f"\\boxed{{{gold}}}"


def bold(gold: str) -> Iterator[str]:
    if number(gold) is not None:
        yield from (f"**{gold}**", f"\\mathbf{{{plain(gold)}}}", f"\\textbf{{{plain(gold)}}}")


def fractions_restyled(gold: str) -> Iterator[str]:
    if "frac" in gold:
        yield re.sub(r"\\[dt]?frac", r"\\dfrac", gold)
        yield re.sub(r"\\[dt]?frac", r"\\tfrac", gold)
        yield re.sub(r"\\[dt]?frac\{(\d)\}\{(\d)\}", r"\\frac\1\2", gold)
        yield re.sub(r"\\[dt]?frac\{(\d)\}", r"\\frac \1", gold)


def fraction_forms(gold: str) -> Iterator[str]:
    match = FRACTION.fullmatch(plain(gold))
    if match:
        sign, top, bottom = match.group(1), int(match.group(2)), int(match.group(3))
        yield f"{sign}{top}/{bottom}"
        yield f"{sign}\\frac{{{3 * top}}}{{{3 * bottom}}}"
        yield f"\\frac{{{sign}{top}}}{{{bottom}}}"
        if top > bottom and top % bottom:
            whole, rest = divmod(top, bottom)
            yield f"{sign}{whole}\\frac{{{rest}}}{{{bottom}}}"
        decimal = decimal_text(Fraction(top, bottom))
        if decimal is not None:
            yield sign + decimal


def left_right(gold: str) -> Iterator[str]:
    if "\\left" in gold:
        yield gold.replace("\\left", "").replace("\\right", "")
    elif (
        gold.count("(") == gold.count(")") > 0
        and is_maths(gold)
        and not re.search(r"\[|\d \(", gold)
    ):
        yield gold.replace("(", "\\left(").replace(")", "\\right)")


def thousands(gold: str) -> Iterator[str]:
    value = number(gold)
    if value is not None and value.denominator == 1 and abs(value) >= 1000:
        grouped = f"{int(value):,}"
        yield from (grouped, str(int(value)), grouped.replace(",", "{,}"))
        yield from (grouped.replace(",", "\\,"), grouped.replace(",", ",\\!"))


def zeros(gold: str) -> Iterator[str]:
    value = number(gold)
    if value is not None and value.denominator == 1:
        yield from (f"{int(value)}.0", f"{int(value)}.00", f"{int(value)}")
    elif value is not None and "." in gold:
        yield plain(gold) + "0"


def named(gold: str) -> Iterator[str]:
    if number(gold) is not None or FRACTION.fullmatch(plain(gold)):
        yield from (f"x = {plain(gold)}", f"n={plain(gold)}", f"f(3) = {plain(gold)}")


def unicode_minus(gold: str) -> Iterator[str]:
    if re.search(r"(?<!e)-", gold) and is_maths(gold):
        yield gold.replace("-", "−")


def with_unit(gold: str) -> Iterator[str]:
    if number(gold) is not None:
        value = plain(gold)
        yield from (f"{value} \\text{{ cm}}", f"{value} apples", f"{value}\\ \\mathrm{{km/h}}")
        yield from (f"{value} square feet", f"{value}\\text{{ people}}")


def with_money(gold: str) -> Iterator[str]:
    value = number(gold)
    if value is not None and value >= 0:
        yield from (f"\\${plain(gold)}", f"{plain(gold)} dollars")


def in_words(gold: str) -> Iterator[str]:
    value = number(gold)
    if value is not None and value.denominator == 1 and 0 <= value <= 20:
        word = NUMBERS[int(value)]
        yield from (word, word.capitalize(), f"\\text{{{word}}}")


def reordered(gold: str) -> Iterator[str]:
    parts = elements(gold)
    if parts and "\\pm" not in gold:
        yield ", ".join(reversed(parts))
        yield "\\{" + ", ".join(parts) + "\\}"
        yield ", ".join([*parts, parts[0]])
        yield ", ".join(parts[:-1]) + " \\text{ and } " + parts[-1]
        yield " , ".join(f"${part}$" for part in parts)


def unions_reordered(gold: str) -> Iterator[str]:
    body = plain(gold)
    if "\\cup" in body and not re.search(r"\\in(?!f)|[=<>$]|\\[lg]e", body):
        yield " \\cup ".join(reversed(body.split("\\cup")))
        yield body.replace("\\cup", " ∪ ").replace("\\infty", "∞")


def as_inequality(gold: str) -> Iterator[str]:
    match = INTERVAL.fullmatch(plain(gold).replace("\\left", "").replace("\\right", ""))
    whole_line = gold.count("\\infty") > 1
    if match and not whole_line and ("[" in gold or "]" in gold or "\\infty" in gold):
        opening, low, high, closing = (part.strip() for part in match.groups())
        left = "\\le" if opening == "[" else "<"
        right = "\\le" if closing == "]" else "<"
        yield f"x \\in {plain(gold)}"
        if "-\\infty" in low:
            yield f"x {right} {high}"
        elif "\\infty" in high:
            flipped = "\\ge" if left == "\\le" else ">"
            yield from (f"x {flipped} {low}", f"{low} {left} x")
        else:
            yield f"{low} {left} x {right} {high}"
            yield f"\\{{ x \\mid {low} {left} x {right} {high} \\}}"


def matrices(gold: str) -> Iterator[str]:
    if "pmatrix" in gold:
        yield gold.replace("pmatrix", "bmatrix")
        yield re.sub(r"\s*(&|\\\\)\s*", r"\1", gold)


def letters_case(gold: str) -> Iterator[str]:
    word = re.fullmatch(r"(?:\\text\{|\\mbox\{)([a-z ]{3,})\}|([A-Z][A-Za-z ]{2,})", gold.strip())
    if word and not gold.isupper():
        text = (word.group(1) or word.group(2)).strip()
        yield from (text, text.lower(), text.upper(), f"\\text{{{text}}}", f"**{text}**")
        yield f"\\textbf{{{text}}}"


def choices(gold: str) -> Iterator[str]:
    match = CHOICE.fullmatch(plain(gold))
    if match:
        letter = match.group(1)
        yield from (letter, f"({letter})", f"\\text{{({letter})}}", f"({letter}).", f"{letter}.")
        yield from (f"\\textbf{{({letter})}}", f"option {letter}", f"\\mathrm{{{letter}}}")


def times_ten(gold: str) -> Iterator[str]:
    match = E_NOTATION.fullmatch(gold.strip())
    if match:
        mantissa, power = match.groups()
        yield f"{mantissa}\\times 10^{{{power}}}"
        yield f"{mantissa} \\cdot 10^{{{power}}}"
        yield f"{mantissa} x 10^{power}"
        yield f"{mantissa} × 10^{{{power}}}"
        yield f"{mantissa}E{power}"
        yield f"${mantissa} \\times 10^{{{power}}}$"


def degrees(gold: str) -> Iterator[str]:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*\^\{?\\circ\}?", plain(gold))
    if match:
        value = match.group(1)
        yield from (value, f"{value}°", f"{value} degrees", f"{value}^{{\\circ}}")


def percent(gold: str) -> Iterator[str]:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*\\%", plain(gold))
    if match:
        yield from (match.group(1), f"{match.group(1)}%", f"{match.group(1)} percent")


def counted_things(gold: str) -> Iterator[str]:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) \(([A-Za-z ]+)\)", gold.strip())
    if match:
        value, thing = match.groups()
        yield from (value, f"{value} {thing}", f"{value} \\text{{ {thing}}}", f"{value} ({thing})")


def ratios(gold: str) -> Iterator[str]:
    match = re.fullmatch(r"(\d+):(\d)", gold.strip())
    if match:
        left, right = match.groups()
        yield from (f"{left} : {right}", f"{left} to {right}", f"{left}/{right}")
        yield f"\\frac{{{left}}}{{{right}}}"


def expanded_by_one(gold: str) -> Iterator[str]:
    """Multiply by one and add nothing: only a reader of algebra keeps the value."""
    body = plain(gold)
    polynomial = re.fullmatch(r"[0-9a-z+\-^{}() ]+", body) and LETTERS.search(body)
    if polynomial and not E_NOTATION.fullmatch(body) and not re.search(r"\d \(", body):
        yield f"({body}) + 3 - 3"
        yield f"\\frac{{2({body})}}{{2}}"


# --- rewrites that change the meaning -----------------------------------------------------------


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


def scaled(gold: str) -> Iterator[str]:
    value = number(gold)
    if value:
        for factor in (100, Fraction(1, 100), 10, Fraction(1, 10), 1000):
            text = decimal_text(value * factor)
            if text is not None:
                yield text
        text = decimal_text(value * 100)
        yield f"{text}\\%"


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


def transposed(gold: str) -> Iterator[str]:
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


def denied(gold: str) -> Iterator[str]:
    word = re.fullmatch(r"(?:\\text\{)?([A-Za-z]{3,})\}?", gold.strip())
    if word:
        yield from (f"not {word.group(1)}", word.group(1) + " or Zanzibar", "Zanzibar")


def other_relation(gold: str) -> Iterator[str]:
    if re.search(r"\\le(?![a-z])|\\ge(?![a-z])", gold):
        yield re.sub(r"\\le(?![a-z])", "<", re.sub(r"\\ge(?![a-z])", ">", gold))
    elif gold.count("=") == 1 and "\\" not in gold:
        yield plain(gold).replace("=", "<")
        yield plain(gold) + " + 1"


KEEPS: list[Rewrite] = [
    spaced_out, delimiters, full_stop, boxed, bold, fractions_restyled, fraction_forms, left_right,
    thousands, zeros, named, unicode_minus, with_unit, with_money, in_words, reordered,
    unions_reordered, as_inequality, matrices, letters_case, choices, times_ten, degrees, percent,
    counted_things, ratios, expanded_by_one,
]  # fmt: skip
BREAKS: list[Rewrite] = [
    other_digit, other_sign, scaled, next_integer, other_bracket, other_letter, missing_or_extra,
    tuple_swapped, union_broken, candidates, more_than_the_number, upside_down, transposed,
    other_half_of_the_day, other_base, denied, other_relation,
]  # fmt: skip
