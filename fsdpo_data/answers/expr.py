r"""Expressions: sums, products, powers, roots, functions, in LaTeX or plain text.

Recursive descent over the tokens of ``lex``. Juxtaposition multiplies, ``12\frac35`` and
``8 1/3`` are mixed numbers, ``\sin 2x`` takes the whole product.
"""

from __future__ import annotations

import re
from fractions import Fraction

from fsdpo_data.answers.cursor import Cursor
from fsdpo_data.answers.lex import Token, Unreadable, exact
from fsdpo_data.answers.tree import (
    Call,
    Const,
    Div,
    Items,
    Node,
    Num,
    PlusMinus,
    Pow,
    Quantity,
    Sym,
    Unit,
    Value,
    add,
    divide,
    is_node,
    multiply,
    negate,
)
from fsdpo_data.answers.units import DEGREE, DOLLAR, SIGNS, is_letter_unit, unit_named
from fsdpo_data.answers.words import ORDINALS, SCALES, SMALL, is_number_word, read_number_words

_TRIG = ["sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth"]
#: Functions by every name they go by.
FUNCTIONS = {name: name for name in [*_TRIG, "ln", "log", "lg", "exp", "abs", "floor", "ceil",
                                     "max", "min", "gcd", "lcm", "sgn", "det"]}  # fmt: skip
FUNCTIONS |= {"arc" + name: "a" + name for name in _TRIG} | {
    "a" + name: "a" + name for name in _TRIG} | {
    "ar" + name: "a" + name for name in _TRIG if name.endswith("h")}  # fmt: skip
FUNCTIONS |= {"cosec": "csc", "tg": "tan", "ctg": "cot", "arctg": "atan", "cbrt": "cbrt",
              "qdrt": "qdrt", "ceiling": "ceil"}  # fmt: skip
_CONSTANTS = {"pi": Const("pi"), "infty": Const("inf"), "infinity": Const("inf"),
              "inf": Const("inf"), "oo": Const("inf"), "e": Const("e"), "i": Const("i"),
              "imath": Const("i")}  # fmt: skip
GREEK = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "rho",
        "sigma",
        "tau",
        "upsilon",
        "phi",
        "chi",
        "psi",
        "omega",
        "Gamma",
        "Delta",
        "Theta",
        "Lambda",
        "Xi",
        "Pi",
        "Sigma",
        "Upsilon",
        "Phi",
        "Psi",
        "Omega",
    ]
)
_SYMBOLS = GREEK | frozenset(
    [
        "hbar",
        "ell",
        "odot",
        "partial",
        "nabla",
        "ldots",
        "triangle",
        "square",
        "circ",
        "star",
        "dagger",
        "emptyset",
        "Re",
        "Im",
        "aleph",
        "oplus",
        "prime",
        "jmath",
        "bullet",
        "angle",
        "perp",
        "parallel",
    ]
)
_ACCENTS = frozenset(
    ["dot", "ddot", "hat", "bar", "tilde", "overline", "widehat", "widetilde", "check"]
)
#: Letters that stand for functions when a bracket follows.
_FUNCTION_LETTERS = frozenset("fghFGH")
#: Words that join or compare; never letters to multiply.
KEYWORDS = frozenset(
    (
        "and",
        "or",
        "to",
        "in",
        "is",
        "from",
        "union",
        "intersection",
        "intersect",
        "except",
        "per",
        "where",
        "if",
        "not",
        "no",
        "only",
        "by",
        "of",
        "over",
        "respectively",
        "between",
    )
)
_CLOSERS = {"(": (")", "]"), "[": ("]", ")", "["), "]": ("[", "]"), "langle": ("rangle",)}
_DERIVATIVE_TOP = re.compile(r"(?:d|partial)(?:\^\{?(\d)\}?)?([A-Za-z].*)")
_DERIVATIVE_BOTTOM = re.compile(r"(?:d|partial)([A-Za-z]+)(?:\^\{?\d\}?)?")


class ExpressionParser(Cursor):
    """Reads expressions; brackets are read by ``value``, which a subclass widens.

    Args:
        tokens: What to read.
        letter_units: Whether a letter such as ``m`` after a number is a unit.
    """

    def __init__(self, tokens: list[Token], letter_units: bool = False) -> None:
        super().__init__(tokens)
        self.letter_units = letter_units
        self.currency: Unit | None = None
        self.bars_close = False

    def value(self) -> Value:
        """Read what stands in brackets."""
        return self.sum()

    def sum(self) -> Value:
        """Read ``a + b - c``; a value that is no expression is returned as it is."""
        first = self._term(self.accept("+", "-", "pm", "mp"))
        if not _is_number_like(first):
            return first
        terms = [as_node(first)]
        while sign := self.accept("+", "-", "pm", "mp"):
            terms.append(as_node(self._term(sign)))
        if self.accept("over"):
            return divide(add(terms), as_node(self.sum()))
        if self.accept("choose"):
            return Call("binom", (add(terms), as_node(self.sum())))
        return add(terms)

    def _term(self, sign: str) -> Value:
        value = self.product()
        if sign in ("", "+"):
            return value
        node = as_node(value)
        if sign == "-":
            return negate(node)
        return PlusMinus(1 if sign == "pm" else -1, node)

    def product(self) -> Value:
        """Read ``a * b / c`` and juxtaposition."""
        first = self.factor()
        if not is_node(first):
            return first
        factors = [as_node(first)]
        while True:
            if self.accept("*", "times", "cdot") or self._accept_cross():
                factors.append(as_node(self.factor()))
            elif (
                self.sign() in ("/", "div")
                and self.word(1) not in ("", "x")
                and self._unit_ahead(1)
            ):
                break
            elif self.accept("/", "div"):
                factors = [divide(multiply(factors), as_node(self.factor()))]
            elif self._juxtaposed():
                following = self.power()
                factors.append(as_node(following))
            else:
                return multiply(factors)
        return multiply(factors)

    def _accept_cross(self) -> bool:
        """Step over the x of "3.8 x 10^5"."""
        if self.word() == "x" and self.peek(1).kind == "num" and self.at:
            before = self.tokens[self.at - 1]
            if before.kind == "num":
                self.at += 1
                return True
        return False

    def _unit_ahead(self, ahead: int) -> bool:
        token = self.peek(ahead)
        return token.kind == "word" and unit_named(token.text) is not None

    def _juxtaposed(self) -> bool:
        """Whether the next token begins a further factor."""
        token = self.peek()
        if token.kind == "num":
            return self.tokens[self.at - 1].kind not in ("num", "word")
        if token.kind == "let":
            return not self._letter_is_unit(token)
        if token.kind == "word":
            if token.text in ("min", "max") and self.sign(1) not in ("(", "{"):
                return False
            return not token.upright and not self._is_noun(token) and self._multiplies(token.text)
        if token.kind == "op":
            if token.text == "(":
                return not self._unit_in_brackets()
            return token.text in "[{" or (token.text == "|" and not self.bars_close)
        if token.text == "frac" and self.sign(1) == "{" and self._unit_ahead(2):
            return False
        return token.kind == "cmd" and self._begins_factor(token.text)

    def _begins_factor(self, name: str) -> bool:
        if name == "|":
            return not self.bars_close
        return (
            name in _SYMBOLS - {"circ", "emptyset"}
            or name in FUNCTIONS
            or name in _CONSTANTS
            or name in _ACCENTS
            or name in ("frac", "sqrt", "surd", "binom", "lfloor", "lceil", "mathbb")
        )

    def _letter_is_unit(self, token: Token) -> bool:
        if not is_letter_unit(token.text):
            return False
        if self.letter_units or token.upright:
            return True
        if token.space == 2:
            return self.peek(1).kind == "eof" or (
                self.sign(1) == "^" and self.at + 5 >= len(self.tokens)
            )
        # "5 m": a number and a letter in plain text.
        return token.space == 1 and len(self.tokens) == 2 and self.tokens[0].kind == "num"

    def _is_noun(self, token: Token) -> bool:
        """Whether a word after a number names what was counted: "32 CDs"."""
        if self.letter_units:
            return not is_known(token.text)
        return token.space == 1 and token.text.lower() in _SHORT_NOUNS

    def _multiplies(self, word: str) -> bool:
        """Whether ``word`` is a function, a constant, or letters to multiply."""
        if is_known(word):
            return True
        return word.lower() not in KEYWORDS and unit_named(word) is None and not is_texty(word)

    def _unit_in_brackets(self) -> bool:
        """Whether "(apples)" follows: words in brackets at the end, after a number."""
        ahead = 1
        words = 0
        while self.peek(ahead).kind in ("word", "let") or self.sign(ahead) in ("-", ".", "'"):
            words += self.peek(ahead).kind == "word"
            ahead += 1
        closed = self.sign(ahead) == ")" and (
            self.peek(ahead + 1).kind == "eof" or self.sign(ahead + 1) in (",", ";")
        )
        if not closed or ahead == 1:
            return False
        if words == 0:
            return ahead == 2 and len(self.tokens) == 4 and self.peek().space > 0
        return self.at == 1 or any(
            is_texty(self.peek(k).text) or self._unit_ahead(k) for k in range(1, ahead)
        )

    def factor(self) -> Value:
        """Read a power with signs before it."""
        if self.accept("-"):
            return negate(as_node(self.factor()))
        if self.accept("+"):
            return self.factor()
        return self.power()

    def power(self) -> Value:
        """Read a primary with its exponents, subscripts, factorials and primes."""
        self.count()
        value = self.primary()
        return self._postfix(value) if is_node(value) else value

    def _postfix(self, value: Value) -> Value:
        while True:
            sign = self.sign()
            if sign == "^":
                self.at += 1
                value = self._raised(as_node(value))
            elif sign == "_" and isinstance(value, Sym):
                self.at += 1
                value = self._subscripted(value)
            elif sign == "!":
                self.at += 1
                value = Call("factorial", (as_node(value),))
            elif sign == "'" and isinstance(value, Sym):
                self.at += 1
                value = Sym(value.name + "'")
                if self.sign() == "(":
                    value = self._applied(value)
            else:
                return value

    def _raised(self, base: Node) -> Node:
        """Read what follows ``^``."""
        primes = self._marks()
        if primes == "circ":
            return Call("deg", (base,))
        if primes:
            if not isinstance(base, Sym):
                raise Unreadable("prime of an expression")
            return Sym(base.name + "'" * primes.count("'"))
        if isinstance(base, Num) and self._ordinal_mark():
            return Call("ordinal", (base,))
        return Pow(base, self._script())

    def _ordinal_mark(self) -> bool:
        """Step over the th of ``6^{th}``."""
        braced = int(self.sign() == "{")
        if self.word(braced) not in _ORDINAL_MARKS:
            return False
        self.at += 1 + braced
        if braced:
            self.expect("}")
        return True

    def _marks(self) -> str:
        r"""Step over ``\circ``, ``{\circ}``, ``\prime``, ``{\prime\prime}``."""
        braced = self.sign() == "{"
        ahead = int(braced)
        if self.sign(ahead) == "circ":
            marks, ahead = "circ", ahead + 1
        else:
            start = ahead
            while self.sign(ahead) in ("prime", "'"):
                ahead += 1
            marks = "'" * (ahead - start)
        if not marks or (braced and self.sign(ahead) != "}"):
            return ""
        self.at += ahead + int(braced)
        return marks

    def _script(self) -> Node:
        """Read an exponent: a braced group or one signed primary."""
        if self.accept("-"):
            return negate(self._script())
        self.accept("+")
        self.count()
        node = as_node(self.primary())
        if self.sign() == "^":
            self.at += 1
            return self._raised(node)
        if self.sign() == "!":
            return as_node(self._postfix(node))
        return node

    def _subscripted(self, symbol: Sym) -> Value:
        r"""Read ``x_1``; ``C_n^k`` is a binomial coefficient."""
        name = self.raw_group()
        if symbol.name == "C" and name in ("n", "m", "N") and self.accept("^"):
            return Call("binom", (Sym(name), self._script()))
        if symbol.name in ("C", "P", "A") and name.isdigit() and self.sign() == "^":
            at = self.at
            self.at += 1
            top, chosen = int(name), self._script()
            if isinstance(chosen, Num) and 1 <= chosen.value <= top:
                kind = "binom" if symbol.name == "C" else "perm"
                return Call(kind, (exact(name), chosen))
            self.at = at
        stem = symbol.name.rstrip("'")
        primes = symbol.name[len(stem) :]
        result = Sym(f"{stem}_{name}{primes}")
        return self._applied(result) if self.sign() == "(" else result

    def raw_group(self) -> str:
        """Return the letters of a subscript, without spaces and braces."""
        if not self.accept("{"):
            return self.take().text
        depth, parts = 1, []
        while depth:
            token = self.take()
            if token.kind == "eof":
                raise Unreadable("unbalanced braces")
            depth += (token.text == "{") - (token.text == "}") if token.kind == "op" else 0
            parts.append("" if token.text in "{}" else token.text)
        return "".join(parts)

    def primary(self) -> Value:
        """Read a number, a letter, a word, a command or a bracket."""
        token = self.take()
        if token.kind == "num" and token.number is not None:
            return self._number(token.number)
        if token.kind == "let":
            return self._letter(token)
        if token.kind == "word":
            return self._word(token)
        if token.kind == "cmd":
            return self._command(token.text)
        if token.kind == "op":
            return self._bracket(token.text)
        raise Unreadable(f"unexpected {token.text or 'end'}")

    def _number(self, number: Num) -> Value:
        """Read on after a number: "6th", mixed fractions and "2.5 million"."""
        if self.word() in _ORDINAL_MARKS and not self.peek().space:
            self.at += 1
            return Call("ordinal", (number,))
        if self.sign() == "(" and SMALL.get(self.word(1)) == number.value and self.sign(2) == ")":
            self.at += 3  # "3 (three)"
            return number
        scale = SCALES.get(self.word())
        if scale is not None and self.peek().kind == "word":
            self.at += 1
            places = None if number.places is None else number.places - len(str(scale)) + 1
            if scale == 12:
                places = None
            return Num(number.value * scale, places, number.digits)
        if number.places is None and number.value.denominator == 1:
            part = self._fraction_part()
            if part is not None:
                return Num(number.value + part)
        return number

    def _fraction_part(self) -> Fraction | None:
        r"""Read the ``\frac35`` of ``12\frac35`` or the ``1/3`` of ``8 1/3``."""
        start = self.at
        self.accept_word("and") if self.peek(1).kind == "num" and self.sign(2) == "/" else None
        if self.sign() == "frac" and not (self.sign(1) == "{" and self._unit_ahead(2)):
            self.at += 1
            part = self._fraction()
            if isinstance(part, Num) and 0 < part.value < 1 and part.places is None:
                return part.value
        elif self.peek().kind == "num" and self.peek().space and self.sign(1) == "/":
            top, bottom = self.take().number, self.peek(1).number
            self.at += 2
            if top is not None and bottom is not None and bottom.value > top.value > 0:
                part_value = top.value / bottom.value
                if top.places is None and bottom.places is None:
                    return part_value
        self.at = start
        return None

    def _letter(self, token: Token) -> Value:
        if token.text in ("e", "i"):
            return _CONSTANTS[token.text]
        symbol = Sym(token.text)
        if token.text in ("a", "A") and (self.word() in SCALES or self.word() in _PART_WORDS):
            return self._number_words()
        if token.text == "C" and self.sign() == "(" and self.sign(2) == ",":
            self.at += 1
            return Call("binom", self._arguments(")"))
        return self._applied(symbol) if self.sign() == "(" and not self.peek().space else symbol

    def _applied(self, symbol: Sym) -> Value:
        """Read ``f(x)``: any argument of f, g, h; a letter or number of any other name."""
        closing = self.sign(2) == ")"
        bare = closing and self.peek(1).kind in ("num", "let")
        if symbol.name.rstrip("'") in _FUNCTION_LETTERS or bare or symbol.name.endswith("'"):
            self.at += 1
            return Call(symbol.name, self._arguments(")"))
        return symbol

    def _arguments(self, closer: str) -> tuple[Node, ...]:
        with self.nested():
            inner = self.value()
        self.expect(closer)
        values = inner.items if isinstance(inner, Items) and not inner.brackets else (inner,)
        return tuple(as_node(value) for value in values)

    def _word(self, token: Token) -> Value:
        word, lower = token.text, token.text.lower()
        if lower in _CONSTANTS:
            return _CONSTANTS[lower]
        if word in ("sqrt", "Sqrt"):
            return self._root()
        if lower in FUNCTIONS and not (token.upright and lower in ("max", "min")):
            return self._function(FUNCTIONS[lower])
        if word in ("np", "math") and self.accept("."):
            return self.primary()
        if lower in GREEK:
            return Sym(word if word in GREEK else lower)
        if is_number_word(word) or lower in ORDINALS or lower in ("a", "an"):
            return self._number_words()
        if lower in ("negative", "minus"):
            return negate(as_node(self.power()))
        if re.fullmatch("d[a-z]", word) and self.sign() == "/" and self.word(1)[:1] == "d":
            self.at += 2
            return Sym(word[1:] + "'")
        if lower in _FIGURES and self.peek().text.isupper():
            return self.primary()
        if lower in ("usd", "us") and self.peek().kind in ("num", "cmd"):
            self.currency = DOLLAR
            return self.primary()
        if token.upright and word.isupper() and len(self.tokens) > 1:
            return self._letters(word)
        if token.upright or lower in KEYWORDS or is_texty(word):
            raise Unreadable(f"the word {word}")
        if unit_named(word) is not None and word.lower() == word and len(word) > 2:
            raise Unreadable(f"the unit {word}")
        return self._letters(word)

    def _letters(self, word: str) -> Value:
        """Multiply the letters of ``word``; an exponent belongs to the last one."""
        letters: list[Node] = [_CONSTANTS.get(c, Sym(c)) if c in "ei" else Sym(c) for c in word]
        if self.sign() in ("^", "_", "!", "'"):
            letters[-1] = as_node(self._postfix(letters[-1]))
        elif self.sign() == "(" and isinstance(letters[-1], Sym):
            letters[-1] = as_node(self._applied(letters[-1]))
        return multiply(letters)

    def _number_words(self) -> Value:
        """Read a number in words from the word just taken."""
        self.at -= 1
        words: list[str] = []
        ends: list[int] = []
        index = self.at
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
            raise Unreadable(f"the word {words[0] if words else ''}")
        number, used, ordinal = found
        self.at = ends[used - 1]
        if ordinal:
            return Call("ordinal", (Num(number),))
        if self.sign() == "(" and self.peek(1).number == Num(number) and self.sign(2) == ")":
            self.at += 3  # "three (3)"
        return Num(number)

    def _command(self, name: str) -> Value:
        if name == "frac":
            return self._fraction()
        if name in ("sqrt", "surd"):
            return self._root()
        if name in ("cbrt", "qdrt"):
            return Call("root", (as_node(self.primary()), exact("3" if name == "cbrt" else "4")))
        if name in FUNCTIONS:
            return self._function(FUNCTIONS[name])
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name in SIGNS and name != "%":
            self.currency = SIGNS[name]
            return self.power()
        if name == "binom":
            return Call("binom", (self._argument(), self._argument()))
        if name in ("lfloor", "lceil"):
            argument = self._arguments("rfloor" if name == "lfloor" else "rceil")
            return Call("floor" if name == "lfloor" else "ceil", argument)
        if name in _ACCENTS:
            return self._accented(name)
        if name == "mathbb":
            return Sym(self.raw_group() * 2)
        if name == "emptyset":
            return Items("{}", ())
        if name in ("langle", "lset", "|"):
            return self._bracket(name)
        if name == "pm" or name == "mp":
            return PlusMinus(1 if name == "pm" else -1, as_node(self.power()))
        if name in _SYMBOLS:
            symbol = Sym(name)
            return self._applied(symbol) if self.sign() == "(" else symbol
        raise Unreadable(f"the command {name}")

    def _argument(self) -> Node:
        r"""Read the argument of a command: a braced group or one token (``\frac12``)."""
        if self.sign() == "{":
            return as_node(self.primary())
        token = self.peek()
        if token.kind == "num" and len(token.text) > 1 and token.text.isdigit():
            self.tokens[self.at] = Token("num", token.text[1:], number=exact(token.text[1:]))
            return exact(token.text[0])
        if token.kind == "word" and not token.upright and len(token.text) > 1:
            self.tokens[self.at] = Token("let" if len(token.text) == 2 else "word", token.text[1:])
            return Sym(token.text[0])
        return as_node(self.primary())

    def _fraction(self) -> Node:
        start = self.at
        derivative = self._derivative()
        if derivative is not None:
            return derivative
        self.at = start
        top = self._argument()
        bottom = self._argument()
        if isinstance(top, Num) and top.places is not None and isinstance(bottom, Num):
            return Div(top, bottom)
        return divide(top, bottom)

    def _derivative(self) -> Node | None:
        r"""Read ``\frac{d^2 x}{dt^2}``."""
        if self.sign() != "{" or self.peek(1).text[:1] not in ("d", "p"):
            return None
        top = _DERIVATIVE_TOP.fullmatch(self.raw_group())
        if top is None or self.sign() != "{":
            return None
        if _DERIVATIVE_BOTTOM.fullmatch(self.raw_group()) is None:
            return None
        return Sym(top[2] + "'" * int(top[1] or 1))

    def _root(self) -> Node:
        degree: Node | None = None
        if self.accept("["):
            degree = as_node(self.value())
            self.expect("]")
        if self.sign() == "{" or self.peek().kind == "cmd" or self.sign() == "(":
            inner = as_node(self.primary())
        elif self.peek().kind == "num":
            inner = self.take().number or exact("0")
        else:
            inner = self._argument()
        return Call("root", (inner, degree or exact("2")))

    def _accented(self, name: str) -> Value:
        text = self.raw_group()
        if name in ("dot", "ddot"):
            symbol = Sym(text + ("'" if name == "dot" else "''"))
            return self._applied(symbol) if self.sign() == "(" else symbol
        if name == "overline" and len(text) == 2 and text.isupper():
            return multiply([Sym(letter) for letter in text])
        return Sym(f"{name}({text})")

    def _function(self, name: str) -> Value:
        r"""Read ``\sin^2 x``, ``\log_2 8``, ``\arctan(y/x)``."""
        base: Node | None = None
        exponent: Node | None = None
        while self.sign() in ("_", "^"):
            if self.take().text == "_":
                base = self._script()
            elif self._marks() == "circ":
                raise Unreadable("degrees of a function")
            else:
                exponent = self._script()
        args = self._function_arguments()
        if exponent == Num(Fraction(-1)) and name in _TRIG:
            name, exponent = "a" + name, None
        node: Node
        if name == "cbrt":
            node = Call("root", (args[0], exact("3")))
        elif name == "exp":
            node = Pow(Const("e"), args[0])
        else:
            node = Call(name, args if base is None else (*args, base))
        return node if exponent is None else Pow(node, exponent)

    def _function_arguments(self) -> tuple[Node, ...]:
        if self.accept("("):
            return self._arguments(")")
        if self.accept("["):
            return self._arguments("]")
        factors = [as_node(self.factor())]
        while self._juxtaposed() and not self._function_ahead():
            factors.append(as_node(self.power()))
        argument = multiply(factors)
        if self.sign() == "/" and self.peek(1).kind == "num" and Const("pi") in factors:
            self.at += 1
            argument = divide(argument, as_node(self.power()))
        return (argument,)

    def _function_ahead(self) -> bool:
        token = self.peek()
        return token.kind in ("cmd", "word") and token.text in FUNCTIONS

    def _bracket(self, opener: str) -> Value:
        if opener == "|":
            with self._bars(True):
                inner = as_node(self.value())
            self.expect("|")
            return Call("abs", (inner,))
        if opener == "{":
            return self._braced()
        if opener == "_":
            return self._choose()
        if opener not in _CLOSERS:
            raise Unreadable(f"unexpected {opener}")
        with self._bars(False):
            inner_value = self.value()
        closer = self.expect(*_CLOSERS[opener])
        return bracketed(opener, inner_value, closer)

    def _choose(self) -> Node:
        """Read ``_{10}C_3``."""
        top = self._script()
        self.currency = None
        if self.word() != "c" or self.sign(1) != "_":
            raise Unreadable("a subscript of nothing")
        self.at += 2
        return Call("binom", (top, self._script()))

    def _braced(self) -> Value:
        with self._bars(False):
            inner = self.value()
        self.expect("}")
        if isinstance(inner, Items) and not inner.brackets:
            return Items("{}", inner.items)
        return inner

    def _bars(self, close: bool) -> _Bars:
        return _Bars(self, close)


class _Bars:
    """One nesting level in which ``|`` closes, or not."""

    def __init__(self, parser: ExpressionParser, close: bool) -> None:
        self.parser, self.close = parser, close

    def __enter__(self) -> None:
        self.before, self.parser.bars_close = self.parser.bars_close, self.close
        self.guard = self.parser.nested()
        self.guard.__enter__()

    def __exit__(self, *error: object) -> None:
        self.parser.bars_close = self.before
        if error[0] is None:
            self.guard.__exit__(None, None, None)


def bracketed(opener: str, inner: Value, closer: str) -> Value:
    """Return what a bracket holds: a group, a tuple, an interval."""
    left = {"(": "(", "langle": "(", "[": "[", "]": "("}[opener]
    right = {")": ")", "rangle": ")", "]": "]", "[": ")"}[closer]
    if isinstance(inner, Items) and not inner.brackets:
        return Items(left + right, inner.items)
    if left + right not in ("()", "[]"):
        raise Unreadable("brackets do not match")
    return inner


def as_node(value: Value) -> Node:
    """Return ``value`` as an expression.

    Raises:
        Unreadable: It is a list, a set or another value that cannot be calculated with.
    """
    if isinstance(value, Quantity) and value.unit == DEGREE:
        return Call("deg", (value.node,))
    if not is_node(value):
        raise Unreadable("not an expression")
    return value  # type: ignore[return-value]


def _is_number_like(value: Value) -> bool:
    return is_node(value) and not (isinstance(value, Sym) and value.name in ("RR", "ZZ", "QQ"))


def is_known(word: str) -> bool:
    """Whether ``word`` is a function, a constant or a Greek letter."""
    lower = word.lower()
    return (
        lower in FUNCTIONS
        or lower in _CONSTANTS
        or lower in GREEK
        or word in ("sqrt", "np")
        or is_number_word(word)
    )


def is_texty(word: str) -> bool:
    """Whether ``word`` is a word of a language, not letters to multiply."""
    if word.lower() in SMALL or word.lower() in SCALES or word.lower() in GREEK:
        return False
    if word.isupper() or (word[:-1].isupper() and word.endswith("s")):
        return False
    if word.lower() in _SHORT_WORDS:
        return True
    return len(word) > 3 or (len(word) == 3 and word[0].isupper() and word[1:].islower())


_ORDINAL_MARKS = ("st", "nd", "rd", "th")
_PART_WORDS = frozenset(["half", "third", "quarter", "fourth", "fifth", "sixth", "eighth", "tenth"])
#: Words before the letters that name a figure.
_FIGURES = frozenset(["segment", "line", "point", "angle", "triangle", "ray"])
_SHORT_WORDS = frozenset(["yes", "no", "odd", "all", "not", "the", "are", "sq", "cu"])
#: Short words that name what was counted when they follow a number.
_SHORT_NOUNS = _SHORT_WORDS | frozenset(
    [
        "old",
        "men",
        "boy",
        "car",
        "cat",
        "dog",
        "box",
        "bus",
        "hat",
        "cup",
        "pen",
        "bag",
        "egg",
        "way",
        "pie",
        "toy",
        "kid",
        "jar",
        "can",
        "cow",
        "pig",
        "hen",
        "bee",
        "ant",
        "leg",
        "eye",
        "ear",
        "top",
        "map",
        "row",
        "set",
        "lap",
        "art",
        "ice",
        "gum",
        "nut",
        "fan",
        "net",
        "ray",
        "van",
        "log",
        "key",
        "fox",
        "job",
        "pet",
    ]
)
