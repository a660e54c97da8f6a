r"""Parser of commands and brackets: fractions, roots, accents, functions, absolute values."""

import re
from fractions import Fraction
from math import gcd, lcm

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.units import UNIT_SIGNS
from fsdpo_data.answers.lexicon.vocabulary import (
    ACCENTS,
    CONSTANTS,
    FUNCTIONS,
    SYMBOLS,
    TRIG_FUNCTIONS,
)
from fsdpo_data.answers.parsing.lex import Token, UnparsableAnswerError, parse_integer
from fsdpo_data.answers.parsing.names import NameParser, as_node
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import Node, Value

_CORNER = re.compile(r"[A-Z](?:_?\d+|')?|.")
#: For every opening bracket, the brackets that may close it; "]0, 1[" is an open interval.
_CLOSERS = {"(": (")", "]"), "[": ("]", ")", "["), "]": ("[", "]"), "langle": ("rangle",)}
_DERIVATIVE_NUMERATOR = re.compile(r"(?:d|partial)(?:\^\{?(\d)\}?)?([A-Za-z].*)")
_DERIVATIVE_DENOMINATOR = re.compile(r"(?:d|partial)([A-Za-z]+)(?:\^\{?\d\}?)?")


class CommandParser(NameParser):
    """Parser of commands and brackets."""

    bars_close = False  #: Whether ``|`` closes the current group.
    square_closes = False  #: Whether ``[`` or ``]`` closes the current group, as in ``]0,1[``.

    def parse_command(self, name: str) -> Value:
        """Parse the text after a command; the command is already taken."""
        if name == "frac":
            return self.parse_fraction()
        if name in ("sqrt", "surd"):
            return self.parse_root()
        if name in ("cbrt", "qdrt"):
            degree = parse_integer("3" if name == "cbrt" else "4")
            return tree.Call("root", (as_node(self.parse_primary()), degree))
        if name in FUNCTIONS:
            return self.parse_function(FUNCTIONS[name])
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in UNIT_SIGNS and name != "%":
            self.currency = UNIT_SIGNS[name]
            return self.parse_factor()
        if name == "binom":
            return tree.Call("binom", (self._parse_argument(), self._parse_argument()))
        if name in ("lfloor", "lceil"):
            return tree.Call(name[1:], self.parse_arguments(f"r{name[1:]}"))
        if name in ACCENTS:
            return self._parse_accent(name)
        if name == "mathbb":
            return self._parse_number_set(self.take_group_text() * 2)
        if name == "emptyset":
            return tree.ValueList("{}", ())
        if name in ("langle", "lset", "|"):
            return self.parse_bracket(name)
        if name == "pm" or name == "mp":
            return tree.PlusMinus(1 if name == "pm" else -1, as_node(self.parse_power()))
        if name in ("angle", "triangle"):
            return self._parse_figure(name)
        if name in ("sum", "prod", "int", "lim"):
            return self._parse_big_operator(name)
        if name in ("neg", "lnot"):
            return tree.Call("not", (as_node(self.parse_factor()),))
        if name == "partial":
            return self._parse_partial_derivative()
        if name in SYMBOLS:
            symbol = tree.Sym(name)
            return self.parse_application(symbol) if self.peek_sign() == "(" else symbol
        raise UnparsableAnswerError(f"the command {name} is not supported")

    def _parse_number_set(self, name: str) -> Value:
        r"""Parse the script of a number set, such as ``\mathbb{R}^+`` or ``\mathbb{Z}_{>0}``."""
        if self.peek_sign() not in ("^", "_") or self.peek_sign(1) not in ("{", "+", "-", "*"):
            return tree.Sym(name)
        self.position += 1
        sign = self.take_group_text()
        if name in ("ZZ", "NN") and sign in ("+", "*", ">0", "ge1"):
            return tree.Sym("ZZ" if (name, sign) == ("ZZ", "*") else "NN+")
        if name != "RR":
            raise UnparsableAnswerError(f"the script {sign} of a number set is not supported")
        if sign == "+":
            return tree.ValueList("()", (tree.Num(Fraction(0)), tree.Const("inf")))
        if sign == "-":
            return tree.ValueList("()", (tree.negate(tree.Const("inf")), tree.Num(Fraction(0))))
        raise UnparsableAnswerError(f"the script {sign} of the real numbers is not supported")

    def _parse_figure(self, name: str) -> Node:
        r"""Parse ``\angle ABC`` as one name, which is the same from either end.

        The corners of a triangle have no order, except in a congruence or similarity.
        """
        if self.peek_sign() == "{":
            corners = _CORNER.findall(self.take_group_text())
        else:
            corners = []
            while self.peek().kind in ("let", "word") and self.peek().text.isupper():
                corners += self.take().text
                if self.accept("_"):
                    corners[-1] += f"_{self.take_group_text()}"
        if name == "triangle":
            has_order = any(token.text in ("cong", "sim") for token in self.tokens)
            return tree.Sym(f"triangle {''.join(corners if has_order else sorted(corners))}")
        return tree.Sym(f"angle {''.join(min(corners, corners[::-1]))}")

    def _parse_big_operator(self, name: str) -> Node:
        r"""Parse ``\sum_{k=1}^{n} k^2``; the index variable gets a canonical name."""
        parts: list[Node] = []
        while self.peek_sign() in ("_", "^"):
            self.position += 1
            bound = self.parse_value() if self.accept("{") else self.parse_primary()
            if self.tokens[self.position - 1].text != "}" and self.peek_sign() == "}":
                self.position += 1
            sides = bound.parts if isinstance(bound, tree.Relation) else (bound,)
            parts.extend(as_node(side) for side in sides)
        return build_bound_operator(name, parts, as_node(self.parse_product()))

    def _parse_partial_derivative(self) -> Node:
        r"""Parse ``\partial f/\partial x``."""
        function = self.take_group_text()
        if self.peek_sign() == "/" and self.peek_sign(1) == "partial":
            self.position += 2
            return tree.Sym(f"{function}'{self.take_group_text()}")
        raise UnparsableAnswerError("the partial derivative has no denominator")

    def _parse_argument(self) -> Node:
        r"""Parse the argument of a command: a braced group or one token (``\frac12``)."""
        if self.peek_sign() == "{":
            return as_node(self.parse_primary())
        token = self.peek()
        if token.kind == "num" and len(token.text) > 1 and token.text.isdigit():
            self.tokens[self.position : self.position + 1] = [
                Token("num", digits, number=parse_integer(digits))
                for digits in (token.text[0], token.text[1:])
            ]
        if token.text.lower() not in FUNCTIONS:  # "√sin x"
            self.split_word()
        return as_node(self.parse_primary())

    def parse_fraction(self) -> Node:
        """Parse the two arguments of a fraction, or a derivative."""
        start = self.position
        derivative = self._parse_derivative()
        if derivative is not None:
            return derivative
        self.position = start
        top = self._parse_argument()
        bottom = self._parse_argument()
        if (
            isinstance(top, tree.Num)
            and top.decimal_places is not None
            and isinstance(bottom, tree.Num)
        ):
            return tree.Div(top, bottom)
        return tree.divide(top, bottom)

    def _parse_derivative(self) -> Node | None:
        r"""Parse ``\frac{d^2 x}{dt^2}`` as the variable ``x''``; None for other fractions."""
        if self.peek_sign() != "{" or self.peek(1).text[:1] not in ("d", "p"):
            return None
        numerator = _DERIVATIVE_NUMERATOR.fullmatch(self.take_group_text())
        if numerator is None or self.peek_sign() != "{":
            return None
        denominator = _DERIVATIVE_DENOMINATOR.fullmatch(self.take_group_text())
        if denominator is None:
            return None
        primes = "'" * int(numerator[1] or 1)
        variable = denominator[1] if "partial" in denominator[0] else ""
        return tree.Sym(numerator[2] + primes + variable)

    def parse_root(self) -> Node:
        r"""Parse the degree and the argument of a root; ``\sqrt13`` is the root of 13."""
        degree: Node | None = None
        if self.accept("["):
            degree = as_node(self.parse_value())
            self.expect("]")
        number = self.take().number if self.peek().kind == "num" else None
        radicand = self._parse_argument() if number is None else number
        return tree.Call("root", (radicand, degree or parse_integer("2")))

    def _parse_accent(self, name: str) -> Value:
        r"""Parse a variable with an accent: ``\dot{x}``, ``\vec{v}``, ``\overline{AB}``."""
        text = self.take_group_text()
        if name in ("dot", "ddot"):
            symbol = tree.Sym(text + ("'" if name == "dot" else "''"))
            return self.parse_application(symbol) if self.peek_sign() == "(" else symbol
        if name == "overline" and len(text) == 2 and text.isupper():
            return tree.multiply([tree.Sym(letter) for letter in text])
        if name in ("vec", "overrightarrow"):
            return tree.Sym(text if len(text) == 1 else f"vec({text})")
        return tree.Sym(f"{name}({text})")

    def parse_function(self, name: str) -> Value:
        r"""Parse the arguments of a function: ``\sin^2 x``, ``\log_2 8``, ``\arctan(y/x)``."""
        if name in ("max", "min") and self.peek_word() == "at":
            raise UnparsableAnswerError("the position of a maximum or minimum is not a value")
        base: Node | None = None
        exponent: Node | None = None
        while self.peek_sign() in ("_", "^"):
            if self.take().text == "_":
                base = self.parse_script()
            elif self.accept_marks() == "circ":
                raise UnparsableAnswerError("a function has a degree sign instead of an exponent")
            else:
                exponent = self.parse_script()
        args = self._parse_function_arguments()
        if exponent == tree.Num(Fraction(-1)) and name in TRIG_FUNCTIONS:
            name = "a" + name
            exponent = None
        node: Node
        if name in ("gcd", "lcm"):
            node = gcd_or_lcm(name, args)
        elif name == "exp":
            node = tree.Pow(tree.Const("e"), args[0])
        elif name == "cis":
            imaginary_part = tree.Mul((tree.Const("i"), tree.Call("sin", args)))
            node = tree.Add((tree.Call("cos", args), imaginary_part))
        else:
            node = tree.Call(name, args if base is None else (*args, base))
        return node if exponent is None else tree.Pow(node, exponent)

    def _parse_function_arguments(self) -> tuple[Node, ...]:
        """Parse arguments in brackets, or the product after the name of a function."""
        if opener := self.accept("(", "["):
            return self.parse_arguments(")" if opener == "(" else "]")
        factors = [as_node(self.parse_factor())]
        while self.is_factor_next() and not (
            self.peek().kind in ("cmd", "word") and self.peek().text in FUNCTIONS
        ):
            if self.peek_sign() == "(" and not isinstance(factors[-1], tree.Num):
                break  # "\\sin x (y + 1)" is a product
            factors.append(as_node(self.parse_power()))
        argument = tree.multiply(factors)
        if self.peek_sign() == "/" and self.peek(1).kind == "num" and tree.Const("pi") in factors:
            self.position += 1
            argument = tree.divide(argument, as_node(self.parse_power()))
        return (argument,)

    def parse_bracket(self, opener: str) -> Value:
        """Parse the content and the end of a bracket; the opening bracket is already taken."""
        if opener == "|":
            operand = as_node(self.parse_inside(bars_close=True))
            self.expect("|")
            return tree.Call("abs", (operand,))
        if opener == "{":
            if self.peek_sign() == "}":
                raise UnparsableAnswerError("a group is empty")
            group = self.parse_inside(bars_close=False)
            self.expect("}")
            unbracketed = isinstance(group, tree.ValueList) and not group.brackets
            return tree.ValueList("{}", tree.list_values(group)) if unbracketed else group
        if opener == "_":
            return self._parse_choose()
        if opener not in _CLOSERS:
            raise UnparsableAnswerError(f"the sign {opener} does not open a bracket")
        outer_square_closes = self.square_closes
        self.square_closes = opener in "[]"
        content = self.parse_inside(bars_close=False)
        self.square_closes = outer_square_closes
        closer = self.expect(*_CLOSERS[opener])
        return build_bracketed_value(opener, content, closer)

    def _parse_choose(self) -> Node:
        """Parse the binomial coefficient ``_{10}C_3``."""
        total = self.parse_script()
        self.currency = None
        if self.peek_word() != "c" or self.peek_sign(1) != "_":
            raise UnparsableAnswerError("the subscript has no variable")
        self.position += 2
        return tree.Call("binom", (total, self.parse_script()))

    def parse_inside(self, bars_close: bool) -> Value:
        """Parse the content of a bracket; ``bars_close`` says whether ``|`` ends it."""
        outer_bars_close = self.bars_close
        self.bars_close = bars_close
        value = self.parse_value()
        self.bars_close = outer_bars_close
        return value


#: First character of the names of bound variables. Letters of an answer never start with it.
BOUND_PREFIX = "#"


def build_bound_operator(name: str, parts: list[Node], body: Node) -> Node:
    """Return a sum, product, limit or integral whose bound variable has a canonical name.

    Args:
        name: ``sum``, ``prod``, ``lim`` or ``int``.
        parts: The variable and the bounds, as far as they are written.
        body: The expression after the operator; for integrals it ends in ``dx``.
    """
    variable = parts[0] if parts and name != "int" else None
    if name == "int":
        factors = body.factors if isinstance(body, tree.Mul) else ()
        while factors and isinstance(factors[-1], tree.Mul):
            factors = (*factors[:-1], *factors[-1].factors)
        if len(factors) > 1 and factors[-2] == tree.Sym("d"):
            variable = factors[-1]
            body = tree.multiply(list(factors[:-2])) if len(factors) > 2 else parse_integer("1")
            parts = [variable, *parts]
    if not isinstance(variable, tree.Sym) and variable != tree.Const("i"):
        return tree.Call(name, (*parts, body))
    if name == "int" and len(parts) == 1:
        return tree.Call(name, (body, variable))  # an antiderivative is a function of its variable
    canonical = tree.Sym(f"{BOUND_PREFIX}{_bound_variable_depth(body)}")
    return tree.Call(
        name, (canonical, *parts[1:], _rename_variable(body, variable, canonical.name))
    )


def _bound_variable_depth(node: Node) -> int:
    """Return how deep ``node`` nests operators with a bound variable."""
    depth = max(map(_bound_variable_depth, tree.children(node)), default=0)
    if isinstance(node, tree.Call) and node.args[:1] == (tree.Sym(f"{BOUND_PREFIX}{depth}"),):
        return depth + 1
    return depth


def _rename_variable(node: Node, old: tree.Sym | tree.Const, new: str) -> Node:
    """Rename a variable, also where it is a subscript as in ``a_k``."""
    if node == old:
        return tree.Sym(new)
    if isinstance(node, tree.Sym) and node.name.endswith(f"_{old.name}"):
        return tree.Sym(node.name[: -len(old.name)] + new)
    return tree.map_children(node, lambda child: _rename_variable(child, old, new))


def gcd_or_lcm(name: str, args: tuple[Node, ...]) -> Node:
    """Return ``gcd`` or ``lcm`` of integers; for other arguments, a call with sorted arguments."""
    numbers = [
        int(arg.value) for arg in args if isinstance(arg, tree.Num) and arg.value.denominator == 1
    ]
    if len(numbers) < len(args):
        return tree.Call(name, tuple(sorted(args, key=format_value)))
    return tree.Num(Fraction(gcd(*numbers) if name == "gcd" else lcm(*numbers)))


def build_bracketed_value(opener: str, content: Value, closer: str) -> Value:
    """Return the value of a bracket: a group, a tuple or an interval.

    Raises:
        UnparsableAnswerError: The brackets of a single value do not match.
    """
    left = {"(": "(", "langle": "(", "[": "[", "]": "("}[opener]
    right = {")": ")", "rangle": ")", "]": "]", "[": ")"}[closer]
    if isinstance(content, tree.ValueList) and not content.brackets:
        return tree.ValueList(left + right, content.items)
    if left + right not in ("()", "[]"):
        raise UnparsableAnswerError("the brackets do not match")
    return content
