r"""Whether a change of a gold keeps its value: an evaluator that shares no code with the grader.

It reads numbers, letters, fractions, roots, powers, functions and sums of LaTeX, and evaluates them
at random points. What it cannot read counts as another value.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

from mpmath import mp, mpc, mpf

_DIGITS = 30  #: Digits of the evaluation.
_N_POINTS = 4  #: Random points at which two texts must agree.
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|[A-Za-z]|[^\s]")
_SPACING = re.compile(r"\\(?:left|right|[,;:!]|quad|displaystyle|limits)(?![A-Za-z])|~|\$")
_SEPARATOR = re.compile(
    r"[,;]\s*(?:\\text\s*\{)?\s*(?:and\b|or\b)?\s*\}?|\\text\s*\{\s*(?:and|or)\s*\}|\band\b|\bor\b"
)
_CONSTANT_NAME = re.compile(r"[CcKkAB](?:_\w)?")
_FUNCTIONS: dict[str, Callable[[mpc], mpc]] = {
    "\\sin": mp.sin, "\\cos": mp.cos, "\\tan": mp.tan, "\\cot": mp.cot, "\\sec": mp.sec,
    "\\csc": mp.csc, "\\ln": mp.log, "\\exp": mp.exp, "\\arctan": mp.atan, "\\arcsin": mp.asin,
    "\\arccos": mp.acos, "\\cosh": mp.cosh, "\\sinh": mp.sinh, "\\log": mp.log10,
}  # fmt: skip


class _UnreadableError(ValueError):
    """The text has something that this evaluator does not read."""


class _Evaluator:
    """A recursive-descent evaluator of one expression, with a value for each name."""

    def __init__(self, text: str, values: dict[str, mpf], seed: int) -> None:
        self.tokens = _TOKEN.findall(_SPACING.sub(" ", text))
        self.position = 0
        self.values = values
        self.seed = seed

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.position += 1
        return token

    def expect(self, token: str) -> None:
        if self.take() != token:
            raise _UnreadableError(token)

    def evaluate(self) -> mpc:
        value = self.sum()
        if self.peek():
            raise _UnreadableError(self.peek())
        return value

    def sum(self) -> mpc:
        total = mpf(0)
        sign = 1
        if self.peek() in ("-", "+"):
            sign = -1 if self.take() == "-" else 1
        while True:
            total += sign * self.product()
            if self.peek() not in ("+", "-"):
                return total
            sign = -1 if self.take() == "-" else 1

    def product(self) -> mpc:
        value = self.power()
        while self.peek():
            if self.peek() in ("*", "\\cdot", "\\times"):
                self.take()
                value *= self.power()
            elif self.peek() in ("/", "\\div"):
                self.take()
                value /= self.power()
            elif self.peek() in ")]}+-|=<>,":
                break
            else:
                value *= self.power()
        return value

    def power(self) -> mpc:
        base = self.operand()
        while self.peek() in ("^", "!"):
            is_factorial = self.take() == "!"
            base = mp.factorial(base) if is_factorial else mp.power(base, self.argument())
        return base

    def argument(self) -> mpc:
        if self.peek() == "{":
            self.take()
            value = self.sum()
            self.expect("}")
            return value
        token = self.take()
        return mpf(token) if token.isdigit() else self.name(token)

    def operand(self) -> mpc:
        token = self.take()
        if token[:1].isdigit():
            return mpf(token)
        if token in ("(", "[", "{"):
            value = self.sum()
            self.expect({"(": ")", "[": "]", "{": "}"}[token])
            return value
        if token == "|":
            value = self.sum()
            self.expect("|")
            return abs(value)
        if token in ("\\frac", "\\dfrac", "\\tfrac"):
            top = self.fraction_part()
            return top / self.fraction_part()
        if token == "\\sqrt":
            return self.root()
        if token == "\\binom":
            top = self.argument()
            return mp.binomial(top, self.argument())
        if token in _FUNCTIONS:
            return self.function(token)
        if token == "-":
            return -self.power()
        return self.name(token)

    def fraction_part(self) -> mpc:
        if self.peek().isdigit() and len(self.peek()) > 1:
            digits = self.peek()
            self.tokens[self.position : self.position + 1] = list(digits)
        return self.argument()

    def root(self) -> mpc:
        degree = mpf(2)
        if self.peek() == "[":
            self.take()
            degree = self.sum()
            self.expect("]")
        return mp.power(self.argument(), 1 / degree)

    def function(self, name: str) -> mpc:
        exponent = base = None
        while self.peek() in ("^", "_"):
            if self.take() == "^":
                exponent = self.argument()
            else:
                base = self.argument()
        value = self.power() if self.peek() in ("(", "[", "{", "|") else self.product()
        result = mp.log(value, base) if base is not None else _FUNCTIONS[name](value)
        return result if exponent is None else mp.power(result, exponent)

    def name(self, token: str) -> mpc:
        if token in ("e", "i", "\\pi"):
            return {"e": mp.e, "i": mpc(0, 1), "\\pi": mp.pi}[token]
        if not re.fullmatch(r"[A-Za-z]|\\[a-z]+", token) or token in _UNREAD_COMMANDS:
            raise _UnreadableError(token)
        if self.peek() == "_":
            self.take()
            index = self.take()
            while index.startswith("{") and not index.endswith("}"):
                if not self.peek():
                    raise _UnreadableError(index)
                index += self.take()
            token += f"_{index.strip('{}')}"
        elif token == "\\operatorname" or self.peek() == "{":
            raise _UnreadableError(token)
        if token not in self.values:
            self.values[token] = mpf(random.Random(f"{token} {self.seed}").uniform(0.4, 1.9))
        return self.values[token]


_UNREAD = r"""
    \sum \prod \int \lim \cup \cap \in \le \leq \ge
    \geq \neq \ne \equiv \text \mathrm \mathbf \begin \end \infty
    \pm \mp \to \lfloor \rfloor \circ \not \notin \approx \perp
    \parallel \subset \supset \mathbb
"""
_UNREAD_COMMANDS = frozenset(_UNREAD.split())


_DEGREES = re.compile(r"\^\{?\\circ\}?|°")
_BRACKETS = ("()", "[]", "[)", "(]")
_NAME = re.compile(r"\s*([a-z](?:_\{?\d\}?)?)\s*(?:=|\\approx)\s*")


def keeps_value(gold: str, text: str) -> bool:
    """Whether two texts have equal values: expressions, lists in any order, or equations."""
    mp.dps = _DIGITS
    if "\\ldots" in gold or "\\dots" in gold:
        return False
    gold, text = map(_normal, (gold, text))
    sides = [_split(gold), _split(text)]
    names = {name[1] for items in sides for item in items if (name := _NAME.match(item))}
    if len(names) == 1 and max(map(len, sides)) > 1:
        sides = [[_NAME.sub("", item, 1) for item in items] for items in sides]
    sides = [[value for item in items for value in _signs(item)] for items in sides]
    if len(sides[0]) == 1 == len(sides[1]):
        return _are_equal(sides[0][0], sides[1][0])
    return len(sides[0]) <= len(sides[1]) and all(
        any(_are_equal(item, other) for other in sides[1 - index])
        for index in (0, 1)
        for item in sides[index]
    )


def _normal(text: str) -> str:
    """Return a text without degrees, dollar signs, a full stop, and the braces of a set."""
    text = _DEGREES.sub("", text).replace("\\left", "").replace("\\right", "").strip(" .$")
    text = text.replace("$", " ").replace("\\quad", " ").strip()
    is_set = text.startswith("\\{") and text.endswith("\\}") and text.count("\\{") == 1
    return text[2:-2].strip() if is_set and "mid" not in text and "|" not in text else text


def _signs(text: str) -> list[str]:
    r"""Return both values of an item with one ``\pm``."""
    if text.count("\\pm") != 1:
        return [text]
    return [text.replace("\\pm", "+"), text.replace("\\pm", "-")]


def _split(text: str) -> list[str]:
    """Return the items of a list outside brackets."""
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+", text):
        return [text.replace(",", "")]
    items, start = [], 0
    for match in _SEPARATOR.finditer(text):
        text_before = text[: match.start()]
        if not text_before.endswith("\\") and sum(map(text_before.count, "([{")) == sum(
            map(text_before.count, ")]}")
        ):
            items.append(text[start : match.start()])
            start = match.end()
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def _are_equal(gold: str, text: str) -> bool:
    if gold[:1] + gold[-1:] in _BRACKETS and gold[:1] + gold[-1:] == text[:1] + text[-1:]:
        sides = [_split(side[1:-1]) for side in (gold, text)]
        if len(sides[0]) == len(sides[1]) > 1:
            return all(map(_are_equal, *sides))
    try:
        if gold.count("=") or text.count("="):
            return _are_equal_equations(gold.split("="), text.split("="))
        for relation in ("\\le ", "\\ge ", "<", ">"):
            if gold.count(relation) == 1 == text.count(relation):
                return all(map(_are_equal, gold.split(relation), text.split(relation)))
        pairs = zip(_values(gold), _values(text), strict=True)
        return (
            gold == text or all(_near(*pair) for pair in pairs) or _are_equal_families(gold, text)
        )
    except (_UnreadableError, ValueError, ZeroDivisionError, OverflowError, TypeError):
        return False


def _values(text: str) -> Iterator[mpc]:
    for seed in range(_N_POINTS):
        yield _Evaluator(text, {}, seed).evaluate()


def _near(left: mpc, right: mpc) -> bool:
    return abs(left - right) <= mpf(10) ** -18 * (1 + abs(left))


def _are_equal_equations(gold: list[str], text: list[str]) -> bool:
    """Compare equations: true calculations by their result, others by their differences."""
    if len(gold) != len(text):
        return False
    gold_values = [list(_values(side)) for side in gold]
    text_values = [list(_values(side)) for side in text]
    if _is_calculation(gold_values) and _is_calculation(text_values):
        return all(map(_near, gold_values[-1], text_values[-1]))
    if len(gold) > 2:
        return all(
            all(map(_near, left, right))
            for left, right in zip(gold_values, text_values, strict=True)
        )
    differences = [
        [left - right for left, right in zip(*values, strict=True)]
        for values in (gold_values, text_values)
    ]
    ratios = [left / right for left, right in zip(*differences, strict=True)]
    if all(_near(ratio, ratios[0]) for ratio in ratios):
        return True
    return gold[0].strip() == text[0].strip() and _are_equal_families(gold[1], text[1])


def _is_calculation(values: list[list[mpc]]) -> bool:
    return all(all(map(_near, side, values[0])) for side in values[1:])


def _are_equal_families(gold: str, text: str) -> bool:
    """Whether two functions, linear in their constants, span the same functions of x."""
    names = sorted({*_constants(gold), *_constants(text)})
    n_rows = 3 * len(names) + 3
    if not names or names != sorted(_constants(text)):
        return False
    matrices = [[_basis_row(side, names, seed) for seed in range(n_rows)] for side in (gold, text)]
    return _spans(matrices[0], matrices[1]) and _spans(matrices[1], matrices[0])


def _constants(text: str) -> set[str]:
    evaluator = _Evaluator(text, {}, 0)
    evaluator.evaluate()
    return {name for name in evaluator.values if _CONSTANT_NAME.fullmatch(name)}


def _basis_row(text: str, names: list[str], seed: int) -> list[mpc]:
    """Return the value without constants, and the factor of each constant."""

    def value(unit: str) -> mpc:
        constants = {name: mpf(name == unit) for name in names}
        return _Evaluator(text, constants, seed).evaluate()

    start = value("")
    return [start, *(value(name) - start for name in names)]


def _spans(basis: list[list[mpc]], rows: list[list[mpc]]) -> bool:
    """Whether each factor of ``rows`` is a combination of those of ``basis``, by least squares."""
    matrix = mp.matrix([row[1:] for row in basis])
    starts = [[row[0] - other[0]] for row, other in zip(rows, basis, strict=True)]
    columns = [[row[index]] for index in range(1, len(rows[0])) for row in rows]
    height = len(rows)
    targets = [starts, *(columns[i : i + height] for i in range(0, len(columns), height))]
    for target in targets:
        vector = mp.matrix(target)
        try:
            solution = mp.lu_solve(matrix, vector)
        except ZeroDivisionError:
            return False
        if mp.norm(matrix * solution - vector) > mpf(10) ** -12 * (1 + mp.norm(vector)):
            return False
    return True
