"""Letters and words in expressions: variables with subscripts, named functions, number words."""

import re
from fractions import Fraction

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.numbers import make_decimal
from fsdpo_data.answers.lexicon.units import CURRENCIES, DEGREE, LETTER_UNITS, find_unit
from fsdpo_data.answers.lexicon.vocabulary import (
    CONSTANTS,
    FIGURE_WORDS,
    FUNCTION_LETTERS,
    FUNCTIONS,
    GREEK_LETTERS,
    KEYWORDS,
    ORDINAL_MARKS,
    PART_WORDS,
    SUBSCRIPT_WORDS,
    is_language_word,
)
from fsdpo_data.answers.lexicon.words import (
    ORDINALS,
    SCALES,
    SMALL_NUMBERS,
    is_number_word,
    read_number_words,
)
from fsdpo_data.answers.parsing.cursor import Cursor
from fsdpo_data.answers.parsing.lex import Token, UnparsableAnswerError, parse_integer
from fsdpo_data.answers.tree import Node, Value

#: Signs that make what P is taken of an event, not a number or a point.
_EVENT = frozenset(("|", "=", "<", ">", "le", "ge", "cap", "cup", "overline", "bar"))


class NameParser(Cursor):
    """Reads numbers, letters and words."""

    #: The currency whose sign was met.
    currency: tree.Unit | None = None

    def is_unit_ahead(self, ahead: int) -> bool:
        """Whether the token ``ahead`` is the name of a unit."""
        token = self.peek(ahead)
        if token.kind == "let":
            return (token.upright or self.letter_units) and token.text in LETTER_UNITS
        return token.kind == "word" and find_unit(token.text) is not None

    def split_word(self) -> None:
        """Cut the next word after its first letter, unless it is one name."""
        token = self.peek()
        if token.kind == "word" and not token.upright and token.text not in SUBSCRIPT_WORDS:
            rest = token.text[1:]
            self.tokens[self.position : self.position + 1] = [
                Token("let", token.text[0]),
                Token("let" if len(rest) == 1 else "word", rest),
            ]

    def take_group_text(self) -> str:
        """Return the letters of a subscript, without spaces and braces."""
        if not self.accept("{"):
            self.split_word()  # "m_pc" is m_p times c, "v_max" one name
            return self.take().text
        depth, parts = 1, []
        while depth:
            token = self.take()
            if token.kind == "eof":
                raise UnparsableAnswerError("unbalanced braces")
            depth += (token.text == "{") - (token.text == "}") if token.kind == "op" else 0
            parts.append("" if token.text in "{}" else token.text)
        return "".join(parts)

    def parse_number(self, number: tree.Num) -> Value:
        """Read on after a number: "6th", "5 squared", mixed fractions and "2.5 million"."""
        if self.is_at_end():
            return number
        if self.peek_sign() == "_":
            return self._parse_based_number(self.tokens[self.position - 1].text)
        if self.peek_word() in ORDINAL_MARKS and not self.peek().space:
            self.position += 1
            return tree.Call("ordinal", (number,))
        if (
            self.peek_sign() == "("
            and SMALL_NUMBERS.get(self.peek_word(1)) == number.value
            and self.peek_sign(2) == ")"
        ):
            self.position += 3  # "3 (three)"
            return number
        if self.peek_sign() == "%" and self.peek_sign(1) in ("cdot", "times", "*"):
            self.position += 1  # "100% · s"
            return tree.Num(number.value / 100)
        word = self.peek_word()
        if word in ("squared", "cubed"):
            self.position += 1
            return tree.Pow(number, parse_integer("2" if word == "squared" else "3"))
        if word == "factorial":
            self.position += 1
            return tree.Call("factorial", (number,))
        scale = SCALES.get(word)
        if scale is not None and self.peek().kind == "word":
            self.position += 1
            counted = number.decimal_places is None or scale == 12
            places = None if counted else (number.decimal_places or 0) - len(str(scale)) + 1
            return tree.Num(number.value * scale, places, number.significant_digits)
        if number.decimal_places is None and number.value.denominator == 1:
            part = self._parse_fraction_part()
            if part is not None:
                return tree.Num(number.value + part)
        return number

    def _parse_based_number(self, digits: str) -> Value:
        """Read on after digits with a subscript: a number in a base."""
        self.position += 1
        base = self.take_group_text()
        if not base.isdigit() or not digits.replace(".", "").isdigit() or int(base[:3]) < 2:
            raise UnparsableAnswerError("a subscript of a number")
        return tree.NumberInBase(digits, int(base[:3]))

    def _parse_fraction_part(self) -> Fraction | None:
        r"""Read the ``\frac35`` of ``12\frac35`` or the ``1/3`` of ``8 1/3``."""
        start = self.position
        self.accept_word("and") if self.peek(1).kind == "num" and self.peek_sign(2) == "/" else None
        if self.peek_sign() == "frac" and not (self.peek_sign(1) == "{" and self.is_unit_ahead(2)):
            self.position += 1
            part = self.parse_fraction()
            if isinstance(part, tree.Num) and 0 < part.value < 1 and part.decimal_places is None:
                return part.value
        elif self.peek().kind == "num" and self.peek().space and self.peek_sign(1) == "/":
            top, bottom = self.take().number, self.peek(1).number
            self.position += 2
            if top is not None and bottom is not None and bottom.value > top.value > 0:
                part_value = top.value / bottom.value
                if top.decimal_places is None and bottom.decimal_places is None:
                    return part_value
        self.position = start
        return None

    def parse_letter(self, token: Token) -> Value:
        """Read on after a letter."""
        if token.text in ("e", "i") and self.peek_sign() != "_":
            return CONSTANTS[token.text]
        symbol = tree.Sym(token.text)
        if token.text in ("a", "A") and (
            self.peek_word() in SCALES or self.peek_word() in PART_WORDS
        ):
            return self._parse_number_words()
        if token.text == "P" and self.peek_sign() == "(":
            event = self._parse_event()
            if event is not None:
                return event
        if token.text == "C" and self.peek_sign() == "(" and self.peek_sign(2) == ",":
            self.position += 1
            return tree.Call("binom", self.parse_arguments(")"))
        return (
            self.parse_application(symbol)
            if self.peek_sign() == "(" and not self.peek().space
            else symbol
        )

    def _parse_event(self) -> tree.Sym | None:
        r"""Read the probability of an event, ``P(A \mid B)`` or ``P(X \ge 2)``, as one name."""
        ahead, depth = 1, 1
        while depth and self.peek(ahead).kind != "eof":
            depth += (self.peek_sign(ahead) == "(") - (self.peek_sign(ahead) == ")")
            ahead += 1
        inside = [
            token.text for token in self.tokens[self.position + 1 : self.position + ahead - 1]
        ]
        if depth or not _EVENT & set(inside):
            return None
        self.position += ahead
        return tree.Sym(f"P({' '.join(inside)})")

    def parse_application(self, symbol: tree.Sym) -> Value:
        """Read ``f(x)``: any argument of f, g, h; a letter or number of any other name."""
        closing = self.peek_sign(2) == ")"
        bare = closing and self.peek(1).kind in ("num", "let")
        if symbol.name.rstrip("'") in FUNCTION_LETTERS or bare or symbol.name.endswith("'"):
            self.position += 1
            return tree.Call(symbol.name, self.parse_arguments(")"))
        return symbol

    def parse_arguments(self, closer: str) -> tuple[Node, ...]:
        """Read arguments up to ``closer``."""
        inner = self.parse_value()
        self.expect(closer)
        return tuple(map(as_node, tree.list_values(inner)))

    def parse_subscript(self, symbol: tree.Sym) -> Value:
        r"""Read ``x_1``; ``C_n^k`` is a binomial coefficient."""
        name = self.take_group_text()
        if symbol.name == "C" and name in ("n", "m", "N") and self.accept("^"):
            return tree.Call("binom", (tree.Sym(name), self.parse_script()))
        if symbol.name in ("C", "P", "A") and name.isdigit() and self.peek_sign() == "^":
            at = self.position
            self.position += 1
            top, chosen = int(name), self.parse_script()
            if isinstance(chosen, tree.Num) and 1 <= chosen.value <= top:
                kind = "binom" if symbol.name == "C" else "perm"
                return tree.Call(kind, (parse_integer(name), chosen))
            self.position = at
        stem = symbol.name.rstrip("'")
        primes = symbol.name[len(stem) :]
        result = tree.Sym(f"{stem}_{name}{primes}")
        return self.parse_application(result) if self.peek_sign() == "(" else result

    def parse_word(self, token: Token) -> Value:
        """Read on after a word."""
        word, lower = token.text, token.text.lower()
        if lower in CONSTANTS:
            return CONSTANTS[lower]
        if word in ("sqrt", "Sqrt"):
            return self.parse_root()
        if lower in FUNCTIONS and not (token.upright and lower in ("max", "min")):
            return self.parse_function(FUNCTIONS[lower])
        if word in ("np", "math") and self.accept("."):
            return self.parse_primary()
        if lower in GREEK_LETTERS:
            return tree.Sym(word if word in GREEK_LETTERS else lower)
        if is_number_word(word) or lower in ORDINALS or lower in ("a", "an"):
            return self._parse_number_words()
        if lower in ("negative", "minus"):
            return tree.negate(as_node(self.parse_power()))
        if (
            re.fullmatch("d[a-z]", word)
            and self.peek_sign() == "/"
            and self.peek_word(1)[:1] == "d"
        ):
            self.position += 2
            return tree.Sym(word[1:] + "'")
        if lower in FIGURE_WORDS and self.peek().text.isupper():
            return self.parse_primary()
        if (
            lower in CURRENCIES
            and word != "RS"
            and self.peek(int(self.peek_sign() == ".")).kind in ("num", "cmd")
        ):
            self.accept(".")
            self.currency = CURRENCIES[lower]
            return self.parse_primary()
        if token.upright and word.isupper() and len(self.tokens) > 1:
            return self._parse_letters(word)
        sentence = word.istitle() and len(word) > 1 and self.peek().kind == "word"  # "It will be"
        if token.upright or sentence or lower in KEYWORDS or is_language_word(word):
            raise UnparsableAnswerError(f"the word {word}")
        if find_unit(word) is not None and word.lower() == word and len(word) > 2:
            raise UnparsableAnswerError(f"the unit {word}")
        return self._parse_letters(word)

    def _parse_letters(self, word: str) -> Value:
        """Multiply the letters of ``word``; an exponent belongs to the last one."""
        if len(word) == 2 and word.isupper() and self._is_segment_product():
            return tree.Sym(f"segment {''.join(sorted(word))}")
        letters: list[Node] = [
            CONSTANTS.get(c, tree.Sym(c)) if c in "ei" else tree.Sym(c) for c in word
        ]
        if self.peek_sign() in ("^", "_", "!", "'"):
            letters[-1] = as_node(self.parse_postfix(letters[-1]))
        elif self.peek_sign() == "(" and isinstance(letters[-1], tree.Sym):
            letters[-1] = as_node(self.parse_application(letters[-1]))
        return tree.multiply(letters)

    def _is_segment_product(self) -> bool:
        r"""Whether the word just read is a segment times another: ``AB \cdot CD``."""
        signs = ("cdot", "times", "*")
        before, after = (
            self.tokens[max(self.position - 3, 0) : self.position - 1],
            self.tokens[self.position :][:2],
        )
        return any(
            len(pair) == 2
            and pair[sign].text in signs
            and len(pair[1 - sign].text) == 2
            and pair[1 - sign].text.isupper()
            for pair, sign in ((before, 1), (after, 0))
        )

    def _parse_decimal_words(self, whole: int) -> Value:
        """Read on after "one point"."""
        self.position += 1
        places = ""
        while SMALL_NUMBERS.get(self.peek_word(), 10) < 10:
            places += str(SMALL_NUMBERS[self.peek_word()])
            self.position += 1
        return make_decimal(str(whole), places) or tree.Num(Fraction(whole))

    def _parse_number_words(self) -> Value:
        """Read a number in words from the word just taken."""
        self.position -= 1
        words: list[str] = []
        ends: list[int] = []
        index = self.position
        while len(words) < 20 and index < len(self.tokens):
            token = self.tokens[index]
            index += 1
            if token.kind in ("word", "let"):
                words.append(token.text.lower())
                ends.append(index)
            elif token.text == "," and words and words[-1] in ("thousand", "million", "billion"):
                continue
            elif token.text != "-" or token.space:
                break
        found = read_number_words(words)
        if found is None:
            raise UnparsableAnswerError(f"the word {words[0] if words else ''}")
        number, used, ordinal = found
        self.position = ends[used - 1]
        if ordinal:
            return tree.Call("ordinal", (tree.Num(number),))
        if self.peek_word() == "point":
            return self._parse_decimal_words(int(number))
        if (
            self.peek_sign() == "("
            and self.peek(1).number == tree.Num(number)
            and self.peek_sign(2) == ")"
        ):
            self.position += 3  # "three (3)"
        return tree.Num(number)


def is_number_set(value: Value) -> bool:
    """Whether ``value`` is the set of all reals or integers, a name that is no number."""
    return isinstance(value, tree.Sym) and value.name in ("RR", "ZZ", "QQ", "NN", "CC")


def as_node(value: Value) -> Node:
    """Return ``value`` as an expression; Unreadable for one that cannot be calculated with."""
    if isinstance(value, tree.Quantity) and value.unit == DEGREE:
        return tree.Call("deg", (value.node,))
    if not tree.is_node(value):
        raise UnparsableAnswerError("not an expression")
    return value
