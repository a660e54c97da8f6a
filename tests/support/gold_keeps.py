r"""Ways to write a gold answer again without changing its meaning.

Each takes a gold and yields other texts for it; it yields nothing for golds it does not apply to.
Guards are narrow on purpose: a rewrite must be certain, not frequent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from gold_shapes import (
    CHOICE,
    E_NOTATION,
    FRACTION,
    LETTERS,
    NUMBERS,
    Rewrite,
    as_statement,
    decimal_text,
    elements,
    intervals,
    is_maths,
    join_terms,
    number,
    plain,
    terms,
)


def add_spaces(gold: str) -> Iterator[str]:
    yield f"  {gold}\n"
    if is_maths(gold):
        yield f"\\, {gold} \\;"


def delimiters(gold: str) -> Iterator[str]:
    if is_maths(gold):
        yield from (f"${gold}$", f"\\({gold}\\)", f"\\[{gold}\\]", f"$$ {gold} $$", f"${gold}$.")


def full_stop(gold: str) -> Iterator[str]:
    if not gold.rstrip().endswith((".", "!")):
        yield gold.rstrip() + "."


def box_gold(gold: str) -> Iterator[str]:
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
            integer_part, remainder = divmod(top, bottom)
            yield f"{sign}{integer_part}\\frac{{{remainder}}}{{{bottom}}}"
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


def name_value(gold: str) -> Iterator[str]:
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


def reorder(gold: str) -> Iterator[str]:
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
    parts = intervals(gold)
    if parts and plain(gold).count("\\infty") <= len(parts) and "\\infty,\\infty" not in gold:
        statements = [as_statement(interval) for interval in parts]
        yield " \\text{ or } ".join(statements)
        yield " or ".join(reversed(statements))
        yield "\\{ x \\mid " + " \\text{ or } ".join(statements) + " \\}"
        yield f"x \\in {plain(gold)}"


def punctured_line(gold: str) -> Iterator[str]:
    parts = intervals(gold)
    if parts and len(parts) == 2 and parts[0][2] == parts[1][1] and gold.count("infty") == 2:
        point = parts[0][2]
        if parts[0][3] == ")" and parts[1][0] == "(":
            yield from (f"x \\ne {point}", f"\\mathbb{{R}} \\setminus \\{{{point}\\}}")
            yield from (f"x ≠ {point}", f"\\{{x \\mid x \\neq {point}\\}}")
            yield f"x < {point} \\text{{ or }} x > {point}"


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


def plain_maths(gold: str) -> Iterator[str]:
    """Write LaTeX the way people type it: (1)/(2), sqrt(3), pi."""
    if re.search(r"\d\s*\\[dt]?frac|\\frac\{d", gold):
        return  # a mixed number or a derivative: more than a product
    text = plain(gold).replace("\\left", "").replace("\\right", "")
    text = re.sub(r"\\sqrt\{([^{}]+)\}", r"sqrt(\1)", text)
    text = re.sub(r"\\[dt]?frac\{([^{}]+)\}\{([^{}]+)\}", r"((\1)/(\2))", text)
    text = text.replace("\\pi", " pi ").replace("\\cdot", "*")
    if text != plain(gold) and "\\" not in text and "_" not in text and "$" not in text:
        yield text
        yield re.sub(r"\^\{([^{}]+)\}|\^(\w)", r"**(\1\2)", text)


_UNICODE = {
    "\\pi": "π", "\\infty": "∞", "\\cup": "∪", "\\le ": "≤ ", "\\ge ": "≥ ", "^\\circ": "°",
    "\\theta": "θ", "\\cdot": "·", "\\pm": "±", "\\times": "×", "-": "−", "^2": "²", "^3": "³",
    "\\frac{1}{2}": "½", "\\omega": "ω",
}  # fmt: skip


def in_unicode(gold: str) -> Iterator[str]:
    text = re.sub(r"\\sqrt\{(\d+)\}", r"√\1", plain(gold))
    if re.search(r"\d\\frac|\\text|e-|\^2\d|\^3\d", text) or "$" in text:
        return
    for latex, sign in _UNICODE.items():
        text = re.sub(re.escape(latex) + r"(?![A-Za-z])", sign, text)
    if text != plain(gold):
        yield text


def wide_digits(gold: str) -> Iterator[str]:
    if number(gold) is not None and plain(gold).isdigit():
        yield plain(gold).translate(str.maketrans("0123456789", "０１２３４５６７８９"))


def terms_reordered(gold: str) -> Iterator[str]:
    parts = terms(gold)
    if parts:
        yield join_terms(parts[::-1])
        yield join_terms([*parts[1:], parts[0]])
        negative = [("-" if sign == "+" else "+", term) for sign, term in parts]
        yield f"-({join_terms(negative)})"


def larger_words(gold: str) -> Iterator[str]:
    value = number(gold)
    if value is not None and value.denominator == 1 and 20 < value < 10_000:
        yield spell_number(int(value))


def spell_number(value: int) -> str:
    """Write an integer below ten thousand in words."""
    tens = "x x twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
    if value >= 1000:
        remainder = f" {spell_number(value % 1000)}" if value % 1000 else ""
        return f"{spell_number(value // 1000)} thousand{remainder}"
    if value >= 100:
        remainder = f" {spell_number(value % 100)}" if value % 100 else ""
        return f"{NUMBERS[value // 100]} hundred{remainder}"
    if value <= 20:
        return NUMBERS[value]
    return tens[value // 10] + (f"-{NUMBERS[value % 10]}" if value % 10 else "")


def recurring_decimals(gold: str) -> Iterator[str]:
    match = FRACTION.fullmatch(plain(gold))
    if match:
        value = Fraction(int(match.group(2)), int(match.group(3)))
        if decimal_text(value) is None and value > Fraction(1, 1000):
            yield f"{match.group(1)}{float(value):.10f}"
            yield f"{match.group(1)}{float(value)!r}"


def array_matrices(gold: str) -> Iterator[str]:
    match = re.fullmatch(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", plain(gold), re.S)
    if match:
        columns = "c" * (match.group(1).split("\\\\")[0].count("&") + 1)
        array = f"\\begin{{array}}{{{columns}}}{match.group(1)}\\end{{array}}"
        yield from (f"\\left({array}\\right)", f"\\left[ {array} \\right]")


def as_function(gold: str) -> Iterator[str]:
    if terms(gold) and re.search(r"(?<![a-z\\])x(?![a-z])", gold) and "y" not in gold:
        yield from (f"y = {plain(gold)}", f"f(x) = {plain(gold)}", f"P(x)={plain(gold)}")


def mixed_numbers(gold: str) -> Iterator[str]:
    match = re.fullmatch(r"(\d+)\s*\\[dt]?frac\{?(\d)\}?\{?(\d)\}?", plain(gold))
    if match:
        integer_part, top, bottom = map(int, match.groups())
        yield from (f"{integer_part} {top}/{bottom}", f"{integer_part}\\frac{{{top}}}{{{bottom}}}")
        yield from (
            f"\\frac{{{integer_part * bottom + top}}}{{{bottom}}}",
            f"{integer_part} + {top}/{bottom}",
        )


def other_base_forms(gold: str) -> Iterator[str]:
    match = re.fullmatch(r"(\d+)_\{?(\d)\}?", plain(gold))
    if match:
        digits, base = match.groups()
        yield from (f"{digits}_{{{base}}}", f"({digits})_{base}", f"{digits}_{{({base})}}")
        yield from (f"{digits}_{{\\text{{{NUMBERS[int(base)]}}}}}", f"{digits} (base {base})")


def stated_money(gold: str) -> Iterator[str]:
    match = re.fullmatch(r"\\\$\s*(\d+(?:\.\d+)?)", plain(gold))
    if match:
        yield from (match.group(1), f"${match.group(1)}", f"{match.group(1)} dollars")


KEEPS: list[Rewrite] = [
    add_spaces, delimiters, full_stop, box_gold, bold, fractions_restyled, fraction_forms,
    left_right, thousands, zeros, name_value, unicode_minus, with_unit, with_money, in_words,
    reorder,
    unions_reordered, as_inequality, matrices, letters_case, choices, times_ten, degrees, percent,
    counted_things, ratios, expanded_by_one, punctured_line, plain_maths, in_unicode, wide_digits,
    terms_reordered, larger_words, recurring_decimals, array_matrices, as_function, mixed_numbers,
    other_base_forms, stated_money,
]  # fmt: skip
