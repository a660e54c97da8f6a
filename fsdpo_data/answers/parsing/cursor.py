"""A position in a list of tokens, with limits on nesting and length that bound the parse time."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fsdpo_data.answers.parsing.lex import EOF, Token, UnparsableAnswerError
from fsdpo_data.answers.tree import Node, Value

#: Maximum nesting depth of an answer. One level can need seventeen stack frames.
MAX_DEPTH = 40
MAX_OPERANDS = 2_000  #: Maximum number of operands in one answer.
_COMPARISON_SIGNS = frozenset(("<", ">", "le", "ge", "=", "ne", "in"))
_PRODUCT_END_SIGNS = frozenset(("+", ",", ";", ")", "=", "}", "<", ">", "le", "ge"))


class Cursor:
    """A position in a list of tokens; the base class of the parser.

    The methods have the usual names of recursive-descent parsers. ``peek`` methods look at a token,
    ``accept`` methods step over an optional token, and ``expect`` methods step over a required one.

    Attributes:
        tokens: The tokens of the answer. The parser may split a token in place.
        letter_units: Whether a letter after a number is a unit: ``5m`` is five metres.
        position: Index of the next token.
        depth: Current nesting depth.
        operand_count: Number of operands read so far.
    """

    def __init__(self, tokens: list[Token], letter_units: bool = False) -> None:
        self.tokens = tokens
        self.letter_units = letter_units
        self.position = 0
        self.depth = 0
        self.operand_count = 0

    if TYPE_CHECKING:  # Grammar rules are recursive, so base classes call methods of subclasses.
        parse_value: Callable[[], Value]
        parse_product: Callable[[], Value]
        parse_factor: Callable[[], Value]
        parse_power: Callable[[], Value]
        parse_primary: Callable[[], Value]
        parse_postfix: Callable[[Value], Value]
        parse_script: Callable[[], Node]
        parse_fraction: Callable[[], Node]
        parse_root: Callable[[], Node]
        parse_function: Callable[[str], Value]
        accept_marks: Callable[[], str]
        is_factor_next: Callable[[], bool]

    def peek(self, ahead: int = 0) -> Token:
        """Return the token that is ``ahead`` tokens after the next one, or ``EOF``."""
        index = self.position + ahead
        return self.tokens[index] if 0 <= index < len(self.tokens) else EOF

    def take(self) -> Token:
        """Return the next token and step over it."""
        token = self.peek()
        self.position += 1
        return token

    def peek_sign(self, ahead: int = 0) -> str:
        """Return the next sign or command, or "" if the next token is neither."""
        # This is the most frequent call of the parser, so it does not call ``peek``.
        index = self.position + ahead
        return self.tokens[index].sign if 0 <= index < len(self.tokens) else ""

    def accept(self, *signs: str) -> str:
        """Step over the next token if it is one of ``signs``; return the sign or ""."""
        sign = self.tokens[self.position].sign if self.position < len(self.tokens) else ""
        if sign not in signs:
            return ""
        self.position += 1
        return sign

    def expect(self, *signs: str) -> str:
        """Step over one of ``signs`` and return it.

        Raises:
            UnparsableAnswerError: Another token follows.
        """
        sign = self.accept(*signs)
        if not sign:
            raise UnparsableAnswerError(f"the sign {signs[0]} is missing")
        return sign

    def peek_word(self, ahead: int = 0) -> str:
        """Return the next word or letter in lower case, or "" if the next token is neither."""
        token = self.peek(ahead)
        return token.text.lower() if token.kind in ("word", "let") else ""

    def accept_word(self, *words: str) -> str:
        """Step over the next token if it is one of ``words``; return the word or ""."""
        word = self.peek_word()
        if word not in words:
            return ""
        self.position += 1
        return word

    def is_at_end(self) -> bool:
        """Whether all tokens are read."""
        return self.position >= len(self.tokens)

    def is_product_end(self) -> bool:
        """Whether the tokens end here, or a sign follows that ends a product and its unit."""
        return self.is_at_end() or self.peek_sign() in _PRODUCT_END_SIGNS

    def is_condition_next(self) -> bool:
        """Whether "otherwise" follows, or "if" with a comparison."""
        word = self.peek_word()
        return word in ("otherwise", "else") or (
            word in ("if", "for", "when", "where")
            and any(self.peek_sign(ahead) in _COMPARISON_SIGNS for ahead in range(2, 5))
        )

    def count_operand(self) -> None:
        """Count one operand.

        Raises:
            UnparsableAnswerError: The answer has more than ``MAX_OPERANDS`` operands.
        """
        self.operand_count += 1
        if self.operand_count > MAX_OPERANDS:
            raise UnparsableAnswerError(f"the answer has more than {MAX_OPERANDS} operands")

    def enter_level(self) -> None:
        """Enter one level of nesting.

        Raises:
            UnparsableAnswerError: The answer nests deeper than ``MAX_DEPTH`` levels.
        """
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnparsableAnswerError(f"the answer nests deeper than {MAX_DEPTH} levels")

    def leave_level(self) -> None:
        """Leave one level of nesting."""
        self.depth -= 1
