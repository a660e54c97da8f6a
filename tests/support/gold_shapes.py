"""What gold answers look like: the shapes that `gold_keeps` and `gold_breaks` rewrite."""

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
    for decimals in range(7):
        scaled = value * 10**decimals
        if scaled.denominator == 1:
            digits = str(abs(scaled.numerator)).rjust(decimals + 1, "0")
            sign = "-" if value < 0 else ""
            return sign + (digits if not decimals else f"{digits[:-decimals]}.{digits[-decimals:]}")
    return None


def terms(gold: str) -> list[tuple[str, str]] | None:
    """Return the signed terms of a plain sum such as ``3x^2 - \\frac{1}{2}``; None otherwise."""
    body = plain(gold)
    if not re.fullmatch(r"(?:[0-9a-z+\-^{} ]|\\(?:frac|sqrt|pi))+", body) or "e" in body:
        return None
    terms: list[tuple[str, str]] = []
    depth, sign, start = 0, "+", 0
    for position, char in enumerate(body + "+"):
        depth += (char == "{") - (char == "}")
        if char in "+-" and not depth:
            term = body[start:position].strip()
            if term.endswith(("^", "_")):
                return None
            if term:
                terms.append((sign, term))
            sign, start = char, position + 1
    return terms if len(terms) > 1 else None


def join_terms(parts: list[tuple[str, str]]) -> str:
    """Write signed terms as a sum."""
    text = " ".join(f"{sign} {term}" for sign, term in parts)
    return text[2:] if text.startswith("+ ") else text


def intervals(gold: str) -> list[tuple[str, str, str, str]] | None:
    """Return (bracket, low, high, bracket) of each part of a union of intervals of numbers."""
    body = plain(gold).replace("\\left", "").replace("\\right", "").strip()
    parts = []
    for part in body.split("\\cup"):
        match = INTERVAL.fullmatch(part.strip())
        if match is None:
            return None
        parts.append(tuple(group.strip() for group in match.groups()))
    certain = len(parts) > 1 or "infty" in body or "[" in body or "]" in body
    return parts if certain else None


def as_statement(interval: tuple[str, str, str, str]) -> str:
    """Write an interval as an inequality of x."""
    opening, low, high, closing = interval
    left = "\\le" if opening == "[" else "<"
    right = "\\le" if closing == "]" else "<"
    if "-\\infty" in low:
        return f"x {right} {high}"
    if "\\infty" in high:
        return f"x \\ge {low}" if left == "\\le" else f"x > {low}"
    return f"{low} {left} x {right} {high}"
