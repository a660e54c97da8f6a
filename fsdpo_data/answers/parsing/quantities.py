"""Quantities: the unit after a number, and numbers of several units ("5 feet 6 inches")."""

from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.units import (
    DEGREE,
    LETTER_UNITS,
    PART_DIMS,
    RANK_DIMS,
    UNIT_MARKS,
    UNIT_SIGNS,
    UNITS,
    counted_unit,
    find_unit,
    multiply_units,
    qualify_unit,
    unit_power,
)
from fsdpo_data.answers.lexicon.vocabulary import KEYWORDS, NON_NOUNS
from fsdpo_data.answers.lexicon.words import find_denominator, is_number_word
from fsdpo_data.answers.parsing.expressions import ExpressionParser, remainder
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError
from fsdpo_data.answers.parsing.names import as_node
from fsdpo_data.answers.tree import Node, Value

MAX_WORDS = 8  #: Most words that may name what was counted.
_SQUARES = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
#: Words that would change what the number before them means.
_NO_NOUN = (KEYWORDS - {"in", "of", "per", "from", "over", "by"}) | NON_NOUNS


class QuantityParser(ExpressionParser):
    """Reads an expression and the unit that may follow it."""

    def parse_quantity(self) -> Value:
        """Read a sum with its currency or unit."""
        before, self.currency = self.currency, None
        value = self.parse_sum()
        currency = self._replace_currency(before)
        if not tree.is_node(value):
            return value
        node = as_node(value)
        # A minus stands before all of "10^\circ".
        below = isinstance(node, tree.Mul) and node.factors[0] == tree.MINUS_ONE
        size = node.factors[-1] if isinstance(node, tree.Mul) and below else node
        if isinstance(size, tree.Call) and size.name == "deg" and self.peek().text in ("C", "F"):
            return tree.Quantity(
                tree.negate(size.args[0]) if below else size.args[0], self._parse_degree_unit()
            )
        unit = self._parse_unit(node)
        if currency is not None and unit is not None:
            unit = qualify_unit(currency, unit.words)
        measured = _make_quantity(node, unit or currency)
        if not isinstance(measured, tree.Quantity) or not measured.unit.dims:
            return measured
        if measured.unit is DEGREE and self.peek().kind == "num":
            return self._parse_arc(measured)
        return self._parse_compound(measured)

    def _replace_currency(self, before: tree.Unit | None) -> tree.Unit | None:
        found, self.currency = self.currency, before
        return found

    def _parse_arc(self, whole: tree.Quantity) -> tree.Quantity:
        r"""Read on: ``25^\circ 30' 36''``."""
        parts: list[Node] = [whole.node]
        for size in (60, 3600):
            start, number = self.position, self.peek().number
            if number is None:
                break
            self.position += 1
            marks = self.accept_marks() if self.accept("^") else self.accept("'") + self.accept("'")
            if marks != "'" * len(parts):
                self.position = start
                break
            parts.append(tree.multiply([number, tree.Num(Fraction(1, size))]))
        return tree.Quantity(tree.add(parts), DEGREE)

    def _parse_compound(self, first: tree.Quantity) -> tree.Quantity:
        """Read on: "5 feet 6 inches", "2 hours and 30 minutes"."""
        start, depth = self.position, self.depth
        self.accept_word("and")
        if self.peek().kind == "num":
            self.enter_level()
            try:
                second = self.parse_quantity()
            except UnparsableAnswerError:
                second = first.node
            self.depth = depth
            whole = combine_quantities((first, second))
            if whole is not None:
                return whole
        self.position = start
        return first

    def _parse_unit(self, node: Node) -> tree.Unit | None:
        """Read a unit, or the name of what was counted; None if there is none."""
        if self.is_product_end():
            return None
        start = self.position
        modulus = self._parse_modulus()
        if modulus is not None:
            return modulus
        if self.peek_sign() == "(" and self.is_bracketed_unit_next():
            self.position += 1
            unit = self._parse_named_unit()
            self.expect(")")
            return unit
        if self.accept("-") and self.peek().kind != "word":
            self.position = start
        unit = self._parse_named_unit()
        if unit is None:
            self.position = start
        return unit

    def _parse_named_unit(self) -> tree.Unit | None:
        unit = self._parse_unit_product()
        if unit is not None:
            return qualify_unit(unit, self._take_trailing_words())
        size = find_denominator(self.peek_word()) if self.peek_word().endswith("s") else None
        if size is None or not self.peek().space or self.peek(1).kind != "eof":
            return self._parse_counted_noun()
        return tree.Unit(self.take().text.lower(), PART_DIMS, Fraction(1, size))  # "5 thirds"

    def _parse_unit_product(self) -> tree.Unit | None:
        """Read ``km/h``, ``N m``, ``square feet per hour``."""
        percent = self.peek_word() == "per" and self.peek_word(1) == "cent"
        over = not percent and bool(self.accept("/") or self.accept_word("per"))
        unit = self._parse_unit_factor()
        if unit is None:
            return None
        unit = unit_power(unit, -1) if over else unit
        while True:
            start = self.position
            if self.accept("/") or self.accept_word("per", "an", "a", "each"):
                below = self._parse_unit_factor()
                if below is None:
                    return unit
                unit = multiply_units(unit, unit_power(below, -1))
                continue
            self.accept("*", "cdot", "times") or self.accept("-")
            more = self._parse_unit_factor()
            if more is None:
                self.position = start
                return unit
            unit = multiply_units(unit, more)

    def _parse_unit_factor(self) -> tree.Unit | None:
        start = self.position
        power = 1
        if self.peek_word() in ("square", "sq", "cubic", "cu"):
            power = _SQUARES[self.take().text.lower()]
            self.accept(".")
        unit = self._parse_unit_word()
        if unit is None:
            self.position = start
            return None
        if self.peek_sign() == "^":
            at = self.position
            self.position += 1
            exponent = self.parse_script()
            if not isinstance(exponent, tree.Num) or exponent.value.denominator != 1:
                self.position = at
                return unit
            power = int(exponent.value)
        elif self.peek_word() in ("squared", "cubed"):
            power = _SQUARES[self.peek_word()]
            self.position += 1
        self.accept(".")
        if power < 0 and unit == UNITS["ms"]:  # "5 ms^{-2}", metres per second squared
            return multiply_units(UNITS["m"], unit_power(UNITS["s"], power))
        return unit_power(unit, power) if power != 1 else unit

    def _parse_unit_word(self) -> tree.Unit | None:
        token = self.peek()
        if token.kind in ("op", "cmd"):
            return self._parse_unit_sign(token.text)
        if token.kind not in ("word", "let"):
            return None
        if token.text == "per" and self.peek_word(1) == "cent":
            self.position += 2
            return UNIT_SIGNS["%"]
        pair = f"{token.text.lower()} {self.peek_word(1).rstrip('s')}"
        if pair in UNITS:
            self.position += 2
            return UNITS[pair]
        if token.text == "in":
            following = self.peek(1)
            alone = following.kind == "eof" or following.text in ("^", ".", ",", ")", "*", "/")
            if alone and (self.position or self.peek_sign(1) != "^"):
                self.position += 1
                return UNITS["inch"]
            return None
        if token.kind == "let" and not self._is_letter_unit_next(token.text):
            return None
        unit = find_unit(token.text)
        if unit is not None:
            self.position += 1
            if unit.dims == DEGREE.dims and self.peek_word() in ("celsius", "fahrenheit", "c", "f"):
                word = self.peek_word()
                self.position += 1
                return UNITS["celsius" if word[0] == "c" else "fahrenheit"]
        return unit

    def _is_letter_unit_next(self, letter: str) -> bool:
        token = self.peek()
        before = self.tokens[self.position - 1] if self.position else token
        in_unit = before.text in ("/", "per", "{", "mu", "micro") or (
            before.kind == "word" and find_unit(before.text) is not None
        )
        named = in_unit or before.text == "(" or self.is_letter_unit(token)
        return letter in LETTER_UNITS and named

    def _parse_unit_sign(self, sign: str) -> tree.Unit | None:
        if sign == "circ":
            self.position += 1
            return self._parse_degree_unit()
        if sign in UNIT_MARKS:
            self.position += 1
            return UNIT_MARKS[sign]
        if sign == "frac":
            return self._parse_unit_fraction()
        if sign in ("mu", "micro"):
            self.position += 1
            inner = self._parse_unit_word()
            return inner and tree.Unit("µ" + inner.label, inner.dims, inner.factor / 10**6)
        return None

    def _parse_unit_fraction(self) -> tree.Unit | None:
        r"""Read ``\frac{km}{h}``."""
        self.position += 1
        sides: list[tree.Unit] = []
        for power in (1, -1):
            self.expect("{")
            unit = self._parse_unit_factor()
            if unit is None:
                return None
            sides.append(unit_power(unit, power))
            self.expect("}")
        return multiply_units(*sides)

    def _parse_degree_unit(self) -> tree.Unit:
        if self.peek().kind == "let" and self.peek().text in "CF":
            return UNITS["celsius" if self.take().text == "C" else "fahrenheit"]
        return DEGREE

    def _parse_modulus(self) -> tree.Unit | None:
        r"""Read ``\pmod 7`` or ``(mod 7)``."""
        start = self.position
        bracket = self.accept("(")
        if self.accept("pmod", "mod", "bmod") or self.accept_word("mod"):
            modulus = self.parse_script()
            if bracket:
                self.expect(")")
            if isinstance(modulus, tree.Num):
                label = f"mod {modulus.value}"
                return tree.Unit(label, ((label, 1),))
        self.position = start
        return None

    def _parse_counted_noun(self) -> tree.Unit | None:
        """Read the words that name what was counted: "different ways", "more inches"."""
        words: list[str] = []
        while len(words) <= MAX_WORDS and self._take_noun_word(words):
            pass
        if not words or len(words) > MAX_WORDS:
            return None
        head = words[: words.index("of")] if "of" in words else words
        for word in head[-1:]:
            unit = find_unit(word) if len(word) > 2 else None
            if unit is not None:
                square = _SQUARES.get(head[-2], 1) if len(head) > 1 else 1
                return qualify_unit(unit_power(unit, square) if square > 1 else unit, tuple(words))
        return counted_unit(" ".join(words))

    def _take_noun_word(self, words: list[str]) -> bool:
        if self.is_condition_next():
            return False
        token = self.peek()
        hyphenated = self.peek_sign(1) == "-" and self.peek(2).kind == "word"
        if token.kind == "word" or (token.kind == "let" and (words or hyphenated)):
            to_do = words and token.text == "to" and self.peek(1).kind == "word"
            if not to_do and (
                token.text.lower() in _NO_NOUN
                or is_number_word(token.text)
                or (not words and token.text.lower() == "by")
            ):
                return False
            words.append(token.text)
        elif not words or token.text not in ("-", "'", ".", "/"):
            return False
        self.position += 1
        return True

    def _take_trailing_words(self) -> tuple[str, ...]:
        """Read what says more about a unit: "of paint", "tall", "per hour"."""
        taken: list[str] = ["unit"]
        while len(taken) <= MAX_WORDS and self._take_noun_word(taken):
            pass
        return tuple(taken[1:])


def combine_quantities(parts: tuple[Value, ...]) -> tree.Quantity | None:
    """Return "2 hours, 30 minutes" as one quantity; None if the units do not go down."""
    whole, last = parts[0], parts[0]
    for part in parts[1:]:
        if not (isinstance(whole, tree.Quantity) and isinstance(last, tree.Quantity)):
            return None
        if not isinstance(part, tree.Quantity) or part.unit.dims != whole.unit.dims:
            return None
        if not whole.unit.dims or part.unit.factor >= last.unit.factor:
            return None
        size = part.unit.factor / whole.unit.factor
        whole = tree.Quantity(
            tree.add([whole.node, tree.multiply([part.node, tree.Num(size)])]), whole.unit
        )
        last = part
    return whole if isinstance(whole, tree.Quantity) and len(parts) > 1 else None


def _make_quantity(node: Node, unit: tree.Unit | None) -> Value:
    """Return a number with its unit; degrees and ordinals count as units."""
    match node:
        case tree.Call("ordinal", (place, *_)):
            return tree.Quantity(place, tree.Unit(unit.label if unit else "th", RANK_DIMS))
        case tree.Call("deg", (angle, *_)) if unit is None or not unit.dims:
            return tree.Quantity(angle, qualify_unit(DEGREE, unit.words if unit else ()))
    if unit is None:
        return node
    if unit.label.startswith("mod "):
        node = remainder(node, tree.Num(Fraction(unit.label[4:])))
    return tree.Quantity(node, unit)
