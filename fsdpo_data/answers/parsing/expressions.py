r"""Parser of expressions in LaTeX or plain text: sums, products, powers.

Recursive descent over the tokens of ``lex``. Neighbouring factors are multiplied. ``12\frac35`` and
``8 1/3`` are mixed numbers. The argument of ``\sin 2x`` is the product.
"""

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.units import LETTER_UNITS, find_unit
from fsdpo_data.answers.lexicon.vocabulary import (
    ACCENTS,
    CONSTANTS,
    FUNCTION_LETTERS,
    FUNCTIONS,
    KEYWORDS,
    ORDINAL_MARKS,
    SHORT_NOUNS,
    SYMBOLS,
    is_known_name,
    is_language_word,
)
from fsdpo_data.answers.parsing.commands import CommandParser
from fsdpo_data.answers.parsing.lex import Token, UnparsableAnswerError
from fsdpo_data.answers.parsing.names import as_node, is_number_set
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import Node, Value

_VECTOR_COMMANDS = ("vec", "overrightarrow")
#: Commands outside the vocabulary tables that begin a factor.
_FACTOR_COMMANDS = frozenset(
    ("frac", "sqrt", "surd", "cbrt", "qdrt", "binom", "lfloor", "lceil", "mathbb")
)
MAX_POSTFIX = 20  #: Maximum number of exponents, factorials and primes after one operand.


class ExpressionParser(CommandParser):
    """Parser of expressions; ``AnswerParser`` extends ``parse_value``, the content of brackets."""

    def parse_value(self) -> Value:
        """Parse the content of brackets."""
        return self.parse_sum()

    def parse_sum(self) -> Value:
        """Parse ``a + b - c``; return a value that is not an expression unchanged."""
        first = self._parse_term(self.accept("+", "-", "pm", "mp"))
        if not tree.is_node(first) or is_number_set(first) or self.is_at_end():
            return first
        terms = [as_node(first)]
        while sign := self.accept("+", "-", "pm", "mp"):
            terms.append(as_node(self._parse_term(sign)))
        command = self.accept("over", "choose")
        if not command:
            return tree.add(terms)
        top = tree.add(terms)
        bottom = as_node(self.parse_sum())
        return tree.divide(top, bottom) if command == "over" else tree.Call("binom", (top, bottom))

    def _parse_term(self, sign: str) -> Value:
        """Parse a product and apply the sign before it."""
        value = self.parse_product()
        if sign in ("", "+"):
            return value
        node = as_node(value)
        if sign == "-":
            return tree.negate(node)
        return tree.PlusMinus(1 if sign == "pm" else -1, node)

    def parse_product(self) -> Value:
        """Parse ``a * b / c`` and products without a sign."""
        first = self.parse_factor()
        if not tree.is_node(first):
            return first
        factors = [as_node(first)]
        divisors: list[Node] = []
        while not self.is_product_end():
            sign = self.peek_sign()
            if sign == "times" and self._has_vectors():
                self.position += 1
                factors = [
                    tree.Call("cross", (tree.multiply(factors), as_node(self.parse_factor())))
                ]
            elif self.accept("*", "times", "cdot") or (not sign and self._accept_cross()):
                factors.append(as_node(self.parse_factor()))
            elif (
                sign in ("/", "div")
                and self.peek_word(1) not in ("", "x")
                and self.is_unit_ahead(1)
            ):
                break
            elif self.accept("/", "div") or (self.peek_word(1) == "of" and self.accept_word("out")):
                self.accept_word("of")
                divisors.append(as_node(self.parse_factor()))
            elif sign in ("", "bmod") and self._accept_mod():
                factors = [remainder(tree.multiply(factors), as_node(self.parse_factor()))]
            elif self.peek(int(sign in ("(", "["))).kind == "begin":
                return scale_matrix(tree.multiply(factors), self.parse_primary())
            elif self.is_factor_next():
                factors.append(as_node(self.parse_power()))
            else:
                break
        product = tree.multiply(factors)
        return tree.divide(product, tree.multiply(divisors)) if divisors else product

    def _has_vectors(self) -> bool:
        r"""Whether the answer has vectors, so that ``\times`` is the cross product."""
        return any(token.text in _VECTOR_COMMANDS for token in self.tokens)

    def _accept_mod(self) -> bool:
        """Step over the word in "5 mod 3"; in a congruence, "mod" does not mean a remainder."""
        if self.peek_sign() != "bmod" and (self.peek_word() != "mod" or self.peek(1).kind != "num"):
            return False
        if any(token.text in ("equiv", "cong") for token in self.tokens):
            return False
        self.position += 1
        return True

    def _accept_cross(self) -> bool:
        """Step over the multiplication sign x of "3.8 x 10^5"."""
        is_between_numbers = self.peek(1).kind == "num" and self.peek(-1).kind == "num"
        return is_between_numbers and bool(self.accept_word("x"))

    def is_factor_next(self) -> bool:
        """Whether the next token begins another factor of the product."""
        token = self.peek()
        if token.kind == "num":
            previous = self.tokens[self.position - 1]
            if previous.kind == "num":  # "2^6 3^5"
                return (
                    token.space > 0
                    and self.position > 1
                    and self.tokens[self.position - 2].text == "^"
                )
            return previous.kind != "word" and not (self._is_after_degrees() and token.space < 2)
        if token.kind == "let":
            if token.text in ("C", "F") and self._is_after_degrees():
                return False
            return not self.is_letter_unit(token)
        if token.kind == "word":
            return self._is_word_factor(token)
        if token.kind == "op":
            if token.text == "(":
                if self.peek_word(1) == "mod" or self.peek_sign(1) in ("mod", "bmod"):
                    return False
                return not self.is_bracketed_unit_next()
            if token.text == "[":
                return not self.square_closes
            return token.text == "{" or (token.text == "|" and not self.bars_close)
        if token.text == "frac" and self.peek_sign(1) == "{" and self.is_unit_ahead(2):
            return False
        if token.text in ("mu", "micro", "Omega") and self._is_unit_letter(token.text):
            return False
        if token.text == "|":
            return not self.bars_close
        tables = (SYMBOLS, FUNCTIONS, CONSTANTS, ACCENTS, _FACTOR_COMMANDS)
        return token.kind == "cmd" and any(token.text in table for table in tables)

    def _is_word_factor(self, token: Token) -> bool:
        """Whether the next token, a word, is a factor, not a unit or a word of a language."""
        if token.text in ("min", "max") and self.peek_sign(1) not in ("(", "{"):
            return False
        if self.is_condition_next():
            return False
        if token.upright and token.text.lower() in FUNCTIONS:
            return True
        if token.upright or (token.space == 1 and token.text.lower() in SHORT_NOUNS):
            return False  # "32 CDs"
        if self.letter_units or is_known_name(token.text):
            return is_known_name(token.text)
        is_keyword_or_unit = token.text.lower() in KEYWORDS or find_unit(token.text) is not None
        return not is_keyword_or_unit and not is_language_word(token.text)

    def _is_after_degrees(self) -> bool:
        """Whether the previous tokens are a degree sign."""
        previous = self.tokens[max(self.position - 2, 0) : self.position]
        texts = [token.text for token in previous]
        return texts[-1:] == ["circ"] or texts in (["circ", "}"], ["o", "}"])

    def _is_unit_letter(self, name: str) -> bool:
        r"""Whether a Greek letter is part of a unit: ``\mu\mathrm{m}``, or ``\Omega`` for ohms."""
        following = self.peek(1)
        if name == "Omega":
            return self.letter_units
        is_before_unit = following.text == "Omega" or find_unit(following.text) is not None
        return is_before_unit and (name == "micro" or following.upright or self.letter_units)

    def is_letter_unit(self, token: Token) -> bool:
        """Whether a letter after a number is a unit, not a variable."""
        if token.text not in LETTER_UNITS:
            return False
        if self.peek_sign(1) == "^" and token.text != "m":
            has_minus = "-" in (self.peek_sign(2), self.peek_sign(3))
            return token.upright or (self.letter_units and has_minus)  # "3s^2" is not a time
        if self.letter_units or token.upright:
            return True
        if token.space == 2:
            return self.peek(1).kind == "eof" or (
                self.peek_sign(1) == "^" and self.position + 5 >= len(self.tokens)
            )
        # "5 m" is a number and a letter in plain text.
        return token.space == 1 and len(self.tokens) == 2 and self.tokens[0].kind == "num"

    def is_bracketed_unit_next(self) -> bool:
        """Whether a noun or unit in brackets follows at the end: "(apples)" after a number."""
        ahead = 1
        word_count = 0
        while self.peek(ahead).kind in ("word", "let") or self.peek_sign(ahead) in ("-", ".", "'"):
            word_count += self.peek(ahead).kind == "word"
            ahead += 1
        is_last_bracket = self.peek_sign(ahead) == ")" and (
            self.peek(ahead + 1).kind == "eof" or self.peek_sign(ahead + 1) in (",", ";")
        )
        if not is_last_bracket or ahead == 1:
            return False
        if word_count == 0:
            return ahead == 2 and len(self.tokens) == 4 and self.peek().space > 0
        return self.position == 1 or any(
            is_language_word(self.peek(index).text) or self.is_unit_ahead(index)
            for index in range(1, ahead)
        )

    def parse_factor(self) -> Value:
        """Parse a power and the signs before it."""
        sign = self.accept("-", "+")
        if not sign:
            return self.parse_power()
        self.enter_level()
        value = self.parse_factor()
        self.leave_level()
        return tree.negate(as_node(value)) if sign == "-" else value

    def parse_power(self) -> Value:
        """Parse an operand with its exponents, subscripts, factorials and primes."""
        self.count_operand()
        value = self.parse_primary()
        return self.parse_postfix(value) if tree.is_node(value) else self._parse_transpose(value)

    def _parse_transpose(self, value: Value) -> Value:
        r"""Return the transpose of a vector or matrix if ``^T`` follows, else ``value``."""
        braced = int(self.peek_sign(1) == "{")
        if self.peek_sign() != "^" or self.peek(1 + braced).text not in ("T", "top", "intercal"):
            return value
        rows = value.rows if isinstance(value, tree.Matrix) else None
        if isinstance(value, tree.ValueList) and value.brackets in ("()", "[]"):
            rows = (value.items,)
        if rows is None or (braced and self.peek_sign(3) != "}"):
            raise UnparsableAnswerError("a transposed value is not a matrix")
        self.position += 2 + 2 * braced
        return tree.Matrix(tuple(zip(*rows, strict=True)))

    def parse_postfix(self, value: Value) -> Value:
        """Parse exponents, subscripts, factorials and primes after ``value``."""
        for _ in range(MAX_POSTFIX):
            sign = self.peek_sign()
            if sign == "^":
                self.position += 1
                power = self._parse_exponent(as_node(value))
                value = self._parse_inverse(value, power)
            elif sign == "_" and isinstance(value, tree.Sym):
                self.position += 1
                value = self.parse_subscript(value)
            elif sign == "!":
                self.position += 1
                name = "factorial2" if self.accept("!") else "factorial"
                value = tree.Call(name, (as_node(value),))
            elif sign == "'" and isinstance(value, tree.Sym):
                self.position += 1
                value = tree.Sym(value.name + "'")
                if self.peek_sign() == "(":
                    value = self.parse_application(value)
            else:
                return value
        raise UnparsableAnswerError(
            f"an operand has more than {MAX_POSTFIX} exponents and other marks"
        )

    def _parse_inverse(self, function: Value, power: Node) -> Value:
        """Parse ``f^{-1}(2)`` as a value of the inverse of f; return other powers unchanged."""
        is_function = isinstance(function, tree.Sym) and function.name in FUNCTION_LETTERS
        if not is_function or self.peek_sign() != "(" or not isinstance(power, tree.Pow):
            return power
        self.position += 1
        name = f"{format_value(function)}^{format_value(power.exponent)}"
        return tree.Call(name, self.parse_arguments(")"))

    def _parse_exponent(self, base: Node) -> Node:
        """Parse the text after ``^``: an exponent, degrees, primes or an ordinal mark."""
        primes = self.accept_marks()
        if primes == "circ":
            return tree.Call("deg", (base,))
        if primes:
            if not isinstance(base, tree.Sym):
                raise UnparsableAnswerError("a prime follows an expression that is not a variable")
            return tree.Sym(base.name + "'" * primes.count("'"))
        if isinstance(base, tree.Num) and self._accept_ordinal_mark():
            return tree.Call("ordinal", (base,))
        return tree.Pow(base, self.parse_script())

    def _accept_ordinal_mark(self) -> bool:
        """Step over the ordinal mark of ``6^{th}``."""
        braced = int(self.peek_sign() == "{")
        if self.peek_word(braced) not in ORDINAL_MARKS:
            return False
        self.position += 1 + braced
        if braced:
            self.expect("}")
        return True

    def accept_marks(self) -> str:
        r"""Step over a degree sign or primes: ``\circ``, ``{\circ}``, ``{\prime\prime}``.

        Returns:
            "circ" for degrees, one "'" per prime, and "" if neither follows.
        """
        is_braced = self.peek_sign() == "{"
        ahead = int(is_braced)
        is_letter_o = self.peek(ahead).text == "o" and self.peek(-2).kind == "num"
        if self.peek_sign(ahead) == "circ" or is_letter_o:
            marks = "circ"
            ahead += 1
        else:
            start = ahead
            while self.peek_sign(ahead) in ("prime", "'"):
                ahead += 1
            marks = "'" * (ahead - start)
        if not marks or (is_braced and self.peek_sign(ahead) != "}"):
            return ""
        self.position += ahead + int(is_braced)
        return marks

    def parse_script(self) -> Node:
        """Parse an exponent or a subscript: a braced group, or one operand with its sign."""
        self.enter_level()
        self.count_operand()
        if self.accept("-"):
            node = tree.negate(self.parse_script())
        else:
            self.accept("+")
            if self.peek().kind == "word" and self.peek_sign(1) == "^":
                self.split_word()  # "e^xe^y" is a product
            number = self.take().number if self.peek().kind == "num" else None
            node = as_node(self.parse_primary()) if number is None else number
            if self.accept("^"):
                node = self._parse_exponent(node)
            elif self.peek_sign() == "!":
                node = as_node(self.parse_postfix(node))
        self.leave_level()
        return node

    def parse_primary(self) -> Value:
        """Parse a number, a letter, a word, a command or a bracket."""
        self.enter_level()
        value = self._parse_token(self.take())
        self.leave_level()
        return value

    def _parse_token(self, token: Token) -> Value:
        """Parse an operand; its first token is already taken."""
        if token.kind == "num" and token.number is not None:
            return self.parse_number(token.number)
        if token.kind == "let":
            return self.parse_letter(token)
        if token.kind == "word":
            return self.parse_word(token)
        if token.kind == "cmd":
            return self.parse_command(token.text)
        if token.kind == "op":
            return self.parse_bracket(token.text)
        raise UnparsableAnswerError(f"the operand before {token.text or 'the end'} is missing")


def remainder(number: Node, modulus: Node) -> Node:
    """Return ``number`` modulo ``modulus``, as a number if both are numbers."""
    if isinstance(number, tree.Num) and isinstance(modulus, tree.Num) and modulus.value > 0:
        return tree.Num(number.value % modulus.value)
    return tree.Call("mod", (number, modulus))


def scale_matrix(factor: Node, matrix: Value) -> Value:
    """Return a matrix times a number.

    Raises:
        UnparsableAnswerError: The value after the factor is not a matrix.
    """
    if not isinstance(matrix, tree.Matrix):
        raise UnparsableAnswerError("the value after a factor is not a matrix")
    rows = [tuple(tree.multiply([factor, as_node(entry)]) for entry in row) for row in matrix.rows]
    return tree.Matrix(tuple(rows))
