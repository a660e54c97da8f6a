"""Parser of quantities: units after a number, and compounds such as "5 feet 6 inches"."""

from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.units import (
    DEGREE,
    LETTER_UNITS,
    PART_DIMS,
    RANK_DIMS,
    UNIT_SIGNS,
    UNIT_SIGNS_AFTER_NUMBER,
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

#: Maximum number of words in a counted noun ("different ways" has two), and of words after a unit.
MAX_NOUN_WORDS = 8
#: Words for squares and cubes of a unit, with the exponent.
_POWER_WORDS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
#: Words that are not part of a counted noun, because they change the meaning of the number.
_EXCLUDED_WORDS = (KEYWORDS - {"in", "of", "per", "from", "over", "by"}) | NON_NOUNS


class QuantityParser(ExpressionParser):
    """Parser of an expression with an optional unit."""

    def parse_quantity(self) -> Value:
        """Parse a sum with its currency or unit; without one, return the sum."""
        # ``parse_sum`` sets ``self.currency`` if it finds a currency sign before a number.
        outer_currency = self._replace_currency(None)
        value = self.parse_sum()
        currency = self._replace_currency(outer_currency)
        if not tree.is_node(value):
            return value
        node = as_node(value)
        # The minus of "-10^\circ C" applies to the complete quantity. The parser of exponents has
        # read "10^\circ" as a call of ``deg``, before the letter C.
        is_negative = isinstance(node, tree.Mul) and node.factors[0] == tree.MINUS_ONE
        magnitude = node.factors[-1] if isinstance(node, tree.Mul) and is_negative else node
        if (
            isinstance(magnitude, tree.Call)
            and magnitude.name == "deg"
            and self.peek().text in ("C", "F")
        ):
            angle = magnitude.args[0]
            degrees = tree.negate(angle) if is_negative else angle
            return tree.Quantity(degrees, self._parse_degree_unit())
        unit = self._parse_unit(node)
        if currency is not None and unit is not None:
            unit = qualify_unit(currency, unit.words)  # "$5 per hour" is five dollars
        quantity = _make_quantity(node, unit or currency)
        if not isinstance(quantity, tree.Quantity) or not quantity.unit.dims:
            return quantity  # a plain number, or counted things
        if quantity.unit is DEGREE and self.peek().kind == "num":
            return self._parse_arc(quantity)
        return self._parse_compound(quantity)

    def _replace_currency(self, currency: tree.Unit | None) -> tree.Unit | None:
        """Set ``currency``; return the old value."""
        old_currency = self.currency
        self.currency = currency
        return old_currency

    def _parse_arc(self, degrees: tree.Quantity) -> tree.Quantity:
        r"""Parse minutes and seconds after degrees: ``25^\circ 30' 36''``."""
        terms: list[Node] = [degrees.node]
        for parts_per_degree in (60, 3600):
            start = self.position
            number = self.peek().number
            if number is None:
                break
            self.position += 1
            has_caret = bool(self.accept("^"))
            marks = self.accept_marks() if has_caret else self.accept("'") + self.accept("'")
            if marks != "'" * len(terms):
                self.position = start
                break
            terms.append(tree.multiply([number, tree.Num(Fraction(1, parts_per_degree))]))
        return tree.Quantity(tree.add(terms), DEGREE)

    def _parse_compound(self, first: tree.Quantity) -> tree.Quantity:
        """Parse the smaller units of "5 feet 6 inches" or "2 hours and 30 minutes"."""
        start = self.position
        depth = self.depth
        self.accept_word("and")
        if self.peek().kind == "num":
            self.enter_level()
            try:
                second = self.parse_quantity()
            except UnparsableAnswerError:
                second = first.node  # not a quantity, so the units are not combined
            self.depth = depth
            total = combine_quantities((first, second))
            if total is not None:
                return total
        self.position = start
        return first

    def _parse_unit(self, node: Node) -> tree.Unit | None:
        """Parse a unit or a counted noun; return None if neither follows."""
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
        """Parse a unit with the words after it, a fraction word, or a counted noun."""
        unit = self._parse_unit_product()
        if unit is not None:
            return qualify_unit(unit, self._take_trailing_words())
        is_plural = self.peek_word().endswith("s")
        denominator = find_denominator(self.peek_word()) if is_plural else None
        if denominator is None or not self.peek().space or self.peek(1).kind != "eof":
            return self._parse_counted_noun()
        word = self.take().text.lower()
        return tree.Unit(word, PART_DIMS, Fraction(1, denominator))  # "5 thirds"

    def _parse_unit_product(self) -> tree.Unit | None:
        """Parse products and quotients of units: ``km/h``, ``N m``, "square feet per hour"."""
        is_percent = self.peek_word() == "per" and self.peek_word(1) == "cent"
        is_inverse = not is_percent and bool(self.accept("/") or self.accept_word("per"))
        unit = self._parse_unit_factor()
        if unit is None:
            return None
        unit = unit_power(unit, -1) if is_inverse else unit
        while True:
            start = self.position
            if self.accept("/") or self.accept_word("per", "an", "a", "each"):
                divisor = self._parse_unit_factor()
                if divisor is None:
                    return unit
                unit = multiply_units(unit, unit_power(divisor, -1))
                continue
            if not self.accept("*", "cdot", "times"):
                self.accept("-")
            factor = self._parse_unit_factor()
            if factor is None:
                self.position = start
                return unit
            unit = multiply_units(unit, factor)

    def _parse_unit_factor(self) -> tree.Unit | None:
        """Parse one unit with its power: ``m^2``, "square feet", "metres squared"."""
        start = self.position
        power = 1
        if self.peek_word() in ("square", "sq", "cubic", "cu"):
            power = _POWER_WORDS[self.take().text.lower()]
            self.accept(".")
        unit = self._parse_unit_word()
        if unit is None:
            self.position = start
            return None
        if self.peek_sign() == "^":
            exponent_start = self.position
            self.position += 1
            exponent = self.parse_script()
            if not isinstance(exponent, tree.Num) or exponent.value.denominator != 1:
                self.position = exponent_start
                return unit
            power = int(exponent.value)
        elif self.peek_word() in ("squared", "cubed"):
            power = _POWER_WORDS[self.peek_word()]
            self.position += 1
        self.accept(".")
        if power < 0 and unit == UNITS["ms"]:  # "5 ms^{-2}" is in metres per second squared
            return multiply_units(UNITS["m"], unit_power(UNITS["s"], power))
        return unit_power(unit, power) if power != 1 else unit

    def _parse_unit_word(self) -> tree.Unit | None:
        """Parse the name or sign of one unit."""
        token = self.peek()
        if token.kind in ("op", "cmd"):
            return self._parse_unit_sign(token.text)
        if token.kind not in ("word", "let"):
            return None
        if token.text == "per" and self.peek_word(1) == "cent":
            self.position += 2
            return UNIT_SIGNS["%"]
        two_words = f"{token.text.lower()} {self.peek_word(1).rstrip('s')}"
        if two_words in UNITS:
            self.position += 2
            return UNITS[two_words]
        if token.text == "in":
            following = self.peek(1)
            # "in" is the unit inch at the end of a unit, and otherwise a preposition.
            ends_unit = following.kind == "eof" or following.text in ("^", ".", ",", ")", "*", "/")
            if ends_unit and (self.position or self.peek_sign(1) != "^"):
                self.position += 1
                return UNITS["inch"]
            return None
        if token.kind == "let" and not self._accepts_letter_unit(token.text):
            return None
        unit = find_unit(token.text)
        if unit is not None:
            self.position += 1
            if unit.dims == DEGREE.dims and self.peek_word() in ("celsius", "fahrenheit", "c", "f"):
                word = self.peek_word()
                self.position += 1
                return UNITS["celsius" if word[0] == "c" else "fahrenheit"]
        return unit

    def _accepts_letter_unit(self, letter: str) -> bool:
        """Whether the next token, ``letter``, is a unit.

        It is a unit after another unit or a bracket, or if ``is_letter_unit`` says so.
        """
        token = self.peek()
        previous = self.tokens[self.position - 1] if self.position else token
        is_in_unit = previous.text in ("/", "per", "{", "mu", "micro") or (
            previous.kind == "word" and find_unit(previous.text) is not None
        )
        is_unit = is_in_unit or previous.text == "(" or self.is_letter_unit(token)
        return letter in LETTER_UNITS and is_unit

    def _parse_unit_sign(self, sign: str) -> tree.Unit | None:
        r"""Parse a sign or command of a unit: degrees, percent, ``\mu`` or a fraction."""
        if sign == "circ":
            self.position += 1
            return self._parse_degree_unit()
        if sign in UNIT_SIGNS_AFTER_NUMBER:
            self.position += 1
            return UNIT_SIGNS_AFTER_NUMBER[sign]
        if sign == "frac":
            return self._parse_unit_fraction()
        if sign in ("mu", "micro"):
            self.position += 1
            unit = self._parse_unit_word()
            return unit and tree.Unit("µ" + unit.label, unit.dims, unit.factor / 10**6)
        return None

    def _parse_unit_fraction(self) -> tree.Unit | None:
        r"""Parse ``\frac{km}{h}``."""
        self.position += 1
        sides: list[tree.Unit] = []
        for power in (1, -1):
            self.expect("{")
            unit = self._parse_unit_factor()
            if unit is None:
                return None
            sides.append(unit_power(unit, power))
            self.expect("}")
        return multiply_units(sides[0], sides[1])

    def _parse_degree_unit(self) -> tree.Unit:
        """Parse the C or F after a degree sign; return the unit of angles if neither follows."""
        if self.peek().kind == "let" and self.peek().text in "CF":
            return UNITS["celsius" if self.take().text == "C" else "fahrenheit"]
        return DEGREE

    def _parse_modulus(self) -> tree.Unit | None:
        r"""Parse ``\pmod 7`` or ``(mod 7)``."""
        start = self.position
        has_bracket = bool(self.accept("("))
        if self.accept("pmod", "mod", "bmod") or self.accept_word("mod"):
            modulus = self.parse_script()
            if has_bracket:
                self.expect(")")
            if isinstance(modulus, tree.Num):
                label = f"mod {modulus.value}"
                return tree.Unit(label, ((label, 1),))
        self.position = start
        return None

    def _parse_counted_noun(self) -> tree.Unit | None:
        """Parse the words of a counted noun: "different ways", "more inches"."""
        words: list[str] = []
        while len(words) <= MAX_NOUN_WORDS and self._take_noun_word(words):
            pass
        if not words or len(words) > MAX_NOUN_WORDS:
            return None
        noun = words[: words.index("of")] if "of" in words else words
        for word in noun[-1:]:
            unit = find_unit(word) if len(word) > 2 else None
            if unit is not None:
                power = _POWER_WORDS.get(noun[-2], 1) if len(noun) > 1 else 1
                return qualify_unit(unit_power(unit, power) if power > 1 else unit, tuple(words))
        return counted_unit(" ".join(words))

    def _take_noun_word(self, words: list[str]) -> bool:
        """Append the next token to ``words`` if it is part of a counted noun."""
        if self.is_condition_next():
            return False
        token = self.peek()
        is_hyphenated = self.peek_sign(1) == "-" and self.peek(2).kind == "word"
        if token.kind == "word" or (token.kind == "let" and (words or is_hyphenated)):
            # An infinitive belongs to the noun: "ways to win".
            is_infinitive = words and token.text == "to" and self.peek(1).kind == "word"
            if not is_infinitive and (
                token.text.lower() in _EXCLUDED_WORDS
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
        """Take the words that qualify a unit: "of paint", "tall", "per hour"."""
        # The first entry represents the unit, because signs and letters only follow another word.
        words: list[str] = ["unit"]
        while len(words) <= MAX_NOUN_WORDS and self._take_noun_word(words):
            pass
        return tuple(words[1:])


def combine_quantities(parts: tuple[Value, ...]) -> tree.Quantity | None:
    """Return the sum of "2 hours, 30 minutes" as one quantity, in the unit of the first part.

    Return None if a part is not a quantity, or if the units do not become smaller.
    """
    total = parts[0]
    previous = parts[0]
    for part in parts[1:]:
        if not (isinstance(total, tree.Quantity) and isinstance(previous, tree.Quantity)):
            return None
        if not isinstance(part, tree.Quantity) or part.unit.dims != total.unit.dims:
            return None
        if not total.unit.dims or part.unit.factor >= previous.unit.factor:
            return None
        size = part.unit.factor / total.unit.factor
        total = tree.Quantity(
            tree.add([total.node, tree.multiply([part.node, tree.Num(size)])]), total.unit
        )
        previous = part
    return total if isinstance(total, tree.Quantity) and len(parts) > 1 else None


def _make_quantity(node: Node, unit: tree.Unit | None) -> Value:
    """Return a number with its unit; degrees and ordinals count as units."""
    match node:
        case tree.Call("ordinal", (rank, *_)):
            return tree.Quantity(rank, tree.Unit(unit.label if unit else "th", RANK_DIMS))
        case tree.Call("deg", (angle, *_)) if unit is None or not unit.dims:
            return tree.Quantity(angle, qualify_unit(DEGREE, unit.words if unit else ()))
    if unit is None:
        return node
    if unit.label.startswith("mod "):
        node = remainder(node, tree.Num(Fraction(unit.label[4:])))
    return tree.Quantity(node, unit)
