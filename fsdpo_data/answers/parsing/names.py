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

MAX_NUMBER_WORDS = 20  #: Maximum number of words in one number.
#: Signs in the argument of P that make it an event: P is then a probability.
_EVENT_SIGNS = frozenset(("|", "=", "<", ">", "le", "ge", "cap", "cup", "overline", "bar"))


class NameParser(Cursor):
    """Parser of numbers, letters and words."""

    #: Currency of a sign before the current number, None without a sign.
    currency: tree.Unit | None = None

    def is_unit_ahead(self, ahead: int) -> bool:
        """Whether the token that is ``ahead`` tokens after the next one is the name of a unit."""
        token = self.peek(ahead)
        if token.kind == "let":
            return (token.upright or self.letter_units) and token.text in LETTER_UNITS
        return token.kind == "word" and find_unit(token.text) is not None

    def split_word(self) -> None:
        """Split the next word after its first letter, unless the word is one name."""
        token = self.peek()
        if token.kind == "word" and not token.upright and token.text not in SUBSCRIPT_WORDS:
            remainder = token.text[1:]
            self.tokens[self.position : self.position + 1] = [
                Token("let", token.text[0]),
                Token("let" if len(remainder) == 1 else "word", remainder),
            ]

    def take_group_text(self) -> str:
        """Step over a braced group or one token; return its text without spaces and braces."""
        if not self.accept("{"):
            self.split_word()  # "m_pc" is m_p times c; "v_max" is one name
            return self.take().text
        depth = 1
        texts: list[str] = []
        while depth:
            token = self.take()
            if token.kind == "eof":
                raise UnparsableAnswerError("a closing brace is missing")
            depth += (token.text == "{") - (token.text == "}") if token.kind == "op" else 0
            texts.append("" if token.text in "{}" else token.text)
        return "".join(texts)

    def parse_number(self, number: tree.Num) -> Value:
        """Parse the text after a number: "6th", "5 squared", mixed numbers and "2.5 million"."""
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
            is_exact = number.decimal_places is None or scale == 12
            decimal_places = (
                None if is_exact else (number.decimal_places or 0) - len(str(scale)) + 1
            )
            return tree.Num(number.value * scale, decimal_places, number.significant_digits)
        if number.decimal_places is None and number.value.denominator == 1:
            fraction = self._parse_fraction_part()
            if fraction is not None:
                return tree.Num(number.value + fraction)
        return number

    def _parse_based_number(self, digits: str) -> Value:
        """Parse the subscript of a number, which is its base: ``25_6``."""
        self.position += 1
        base = self.take_group_text()
        if not base.isdigit() or not digits.replace(".", "").isdigit() or int(base[:3]) < 2:
            raise UnparsableAnswerError("the subscript of a number is not a base")
        return tree.NumberInBase(digits, int(base[:3]))

    def _parse_fraction_part(self) -> Fraction | None:
        r"""Parse the ``\frac35`` of ``12\frac35`` or the ``1/3`` of ``8 1/3``."""
        start = self.position
        if self.peek(1).kind == "num" and self.peek_sign(2) == "/":
            self.accept_word("and")
        if self.peek_sign() == "frac" and not (self.peek_sign(1) == "{" and self.is_unit_ahead(2)):
            self.position += 1
            fraction = self.parse_fraction()
            if (
                isinstance(fraction, tree.Num)
                and 0 < fraction.value < 1
                and fraction.decimal_places is None
            ):
                return fraction.value
        elif self.peek().kind == "num" and self.peek().space and self.peek_sign(1) == "/":
            top = self.take().number
            bottom = self.peek(1).number
            self.position += 2
            if top is not None and bottom is not None and bottom.value > top.value > 0:
                quotient = top.value / bottom.value
                if top.decimal_places is None and bottom.decimal_places is None:
                    return quotient
        self.position = start
        return None

    def parse_letter(self, token: Token) -> Value:
        """Parse an expression that starts with a letter; the letter is already taken."""
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
        if self.peek_sign() == "(" and not self.peek().space:
            return self.parse_application(symbol)
        return symbol

    def _parse_event(self) -> tree.Sym | None:
        r"""Parse the probability of an event, ``P(A \mid B)`` or ``P(X \ge 2)``, as one name."""
        ahead = 1
        depth = 1
        while depth and self.peek(ahead).kind != "eof":
            depth += (self.peek_sign(ahead) == "(") - (self.peek_sign(ahead) == ")")
            ahead += 1
        event_tokens = self.tokens[self.position + 1 : self.position + ahead - 1]
        texts = [token.text for token in event_tokens]
        if depth or not _EVENT_SIGNS & set(texts):
            return None
        self.position += ahead
        return tree.Sym(f"P({' '.join(texts)})")

    def parse_application(self, symbol: tree.Sym) -> Value:
        """Parse the argument of a function; the cursor is at the opening bracket.

        The letters f, g and h take any argument. Other names take a single letter or number, so
        ``x(x+1)`` stays a product.
        """
        is_closed = self.peek_sign(2) == ")"
        has_single_token = is_closed and self.peek(1).kind in ("num", "let")
        if (
            symbol.name.rstrip("'") in FUNCTION_LETTERS
            or has_single_token
            or symbol.name.endswith("'")
        ):
            self.position += 1
            return tree.Call(symbol.name, self.parse_arguments(")"))
        return symbol

    def parse_arguments(self, closer: str) -> tuple[Node, ...]:
        """Parse the arguments of a function, and its closing bracket."""
        arguments = self.parse_value()
        self.expect(closer)
        return tuple(map(as_node, tree.list_values(arguments)))

    def parse_subscript(self, symbol: tree.Sym) -> Value:
        r"""Parse the subscript of ``x_1``; ``C_n^k`` is a binomial coefficient."""
        name = self.take_group_text()
        if symbol.name == "C" and name in ("n", "m", "N") and self.accept("^"):
            return tree.Call("binom", (tree.Sym(name), self.parse_script()))
        if symbol.name in ("C", "P", "A") and name.isdigit() and self.peek_sign() == "^":
            start = self.position
            self.position += 1
            total = int(name)
            chosen = self.parse_script()
            if isinstance(chosen, tree.Num) and 1 <= chosen.value <= total:
                function = "binom" if symbol.name == "C" else "perm"
                return tree.Call(function, (parse_integer(name), chosen))
            self.position = start
        stem = symbol.name.rstrip("'")
        primes = symbol.name[len(stem) :]
        symbol = tree.Sym(f"{stem}_{name}{primes}")
        return self.parse_application(symbol) if self.peek_sign() == "(" else symbol

    def parse_word(self, token: Token) -> Value:
        """Parse an expression that starts with a word; the word is already taken."""
        word = token.text
        lower = word.lower()
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
        self._check_letter_product(token)
        return self._parse_letters(word)

    def _check_letter_product(self, token: Token) -> None:
        """Raise ``UnparsableAnswerError`` if a word cannot be a product of letters."""
        word = token.text
        starts_sentence = word.istitle() and len(word) > 1 and self.peek().kind == "word"
        if (
            token.upright
            or starts_sentence  # "It will be"
            or word.lower() in KEYWORDS
            or is_language_word(word)
        ):
            raise UnparsableAnswerError(f"the word {word} is not part of an expression")
        if find_unit(word) is not None and word.lower() == word and len(word) > 2:
            raise UnparsableAnswerError(f"the unit {word} has no number")

    def _parse_letters(self, word: str) -> Value:
        """Multiply the letters of ``word``; an exponent belongs to the last letter."""
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
        r"""Whether the previous word is a line segment in a product: ``AB \cdot CD``."""
        signs = ("cdot", "times", "*")
        left_pair = self.tokens[max(self.position - 3, 0) : self.position - 1]
        right_pair = self.tokens[self.position :][:2]
        return any(
            len(pair) == 2
            and pair[sign_index].text in signs
            and len(pair[1 - sign_index].text) == 2
            and pair[1 - sign_index].text.isupper()
            for pair, sign_index in ((left_pair, 1), (right_pair, 0))
        )

    def _parse_decimal_words(self, integer_part: int) -> Value:
        """Parse the decimals of "one point five"; the cursor is at "point"."""
        self.position += 1
        decimals = ""
        while SMALL_NUMBERS.get(self.peek_word(), 10) < 10:
            decimals += str(SMALL_NUMBERS[self.peek_word()])
            self.position += 1
        return make_decimal(str(integer_part), decimals) or tree.Num(Fraction(integer_part))

    def _parse_number_words(self) -> Value:
        """Parse a number in words; its first word is already taken."""
        self.position -= 1
        words: list[str] = []
        end_positions: list[int] = []  # For every word, the position after it.
        index = self.position
        while len(words) < MAX_NUMBER_WORDS and index < len(self.tokens):
            token = self.tokens[index]
            index += 1
            if token.kind in ("word", "let"):
                words.append(token.text.lower())
                end_positions.append(index)
            elif token.text == "," and words and words[-1] in ("thousand", "million", "billion"):
                continue
            elif token.text != "-" or token.space:
                break
        number_words = read_number_words(words)
        if number_words is None:
            raise UnparsableAnswerError(f"the word {words[0] if words else ''} is not a number")
        number, word_count, is_ordinal = number_words
        self.position = end_positions[word_count - 1]
        if is_ordinal:
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
    """Whether ``value`` is the name of a number set such as the reals or the integers."""
    return isinstance(value, tree.Sym) and value.name in ("RR", "ZZ", "QQ", "NN", "CC")


def as_node(value: Value) -> Node:
    """Return ``value`` as an expression.

    Raises:
        UnparsableAnswerError: The value is not an expression, for example a list.
    """
    if isinstance(value, tree.Quantity) and value.unit == DEGREE:
        return tree.Call("deg", (value.node,))
    if not tree.is_node(value):
        raise UnparsableAnswerError("a value in the expression is not an expression")
    return value
