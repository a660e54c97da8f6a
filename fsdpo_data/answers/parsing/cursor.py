"""A position in a list of tokens, with the bounds that keep parsing short."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fsdpo_data.answers.parsing.lex import EOF, Token, UnparsableAnswerError
from fsdpo_data.answers.tree import Node, Value

MAX_DEPTH = 40  #: Deepest nesting that is read; every level may cost seventeen stack frames.
_COMPARES = frozenset(("<", ">", "le", "ge", "=", "ne", "in"))
_ENDS = frozenset(("+", ",", ";", ")", "=", "}", "<", ">", "le", "ge"))
MAX_OPERANDS = 2_000  #: Most operands of one answer.


class Cursor:
    """Walks over tokens; with ``letter_units``, an m after a number is a unit."""

    def __init__(self, tokens: list[Token], letter_units: bool = False) -> None:
        self.tokens = tokens
        self.letter_units = letter_units
        self.position = 0
        self.depth = 0
        self.operand_count = 0

    if TYPE_CHECKING:  # a grammar goes round in circles: what the classes below this one read
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
        """Return the token ``ahead`` of the position."""
        index = self.position + ahead
        return self.tokens[index] if 0 <= index < len(self.tokens) else EOF

    def take(self) -> Token:
        """Return the next token and step over it."""
        token = self.peek()
        self.position += 1
        return token

    def peek_sign(self, ahead: int = 0) -> str:
        """Return the next sign or command, or "" if the next token is neither."""
        index = self.position + ahead  # asked most of all: without a call of peek
        return self.tokens[index].sign if 0 <= index < len(self.tokens) else ""

    def accept(self, *signs: str) -> str:
        """Step over the next token if it is one of ``signs``; return it or ""."""
        found = self.tokens[self.position].sign if self.position < len(self.tokens) else ""
        if found not in signs:
            return ""
        self.position += 1
        return found

    def expect(self, *signs: str) -> str:
        """Step over one of ``signs``; if something else follows, it is Unreadable."""
        found = self.accept(*signs)
        if not found:
            raise UnparsableAnswerError(f"expected {signs[0]}")
        return found

    def peek_word(self, ahead: int = 0) -> str:
        """Return the next word or letter, lower-case, or ""."""
        token = self.peek(ahead)
        return token.text.lower() if token.kind in ("word", "let") else ""

    def accept_word(self, *words: str) -> str:
        """Step over the next token if it is one of ``words``; return it or ""."""
        found = self.peek_word()
        if found not in words:
            return ""
        self.position += 1
        return found

    def is_at_end(self) -> bool:
        """Whether all tokens are read."""
        return self.position >= len(self.tokens)

    def is_product_end(self) -> bool:
        """Whether a sign follows that ends a product with its unit, or nothing at all."""
        return self.is_at_end() or self.peek_sign() in _ENDS

    def is_condition_next(self) -> bool:
        """Whether "otherwise" follows, or "if" with a comparison."""
        word = self.peek_word()
        return word in ("otherwise", "else") or (
            word in ("if", "for", "when", "where")
            and any(self.peek_sign(ahead) in _COMPARES for ahead in range(2, 5))
        )

    def count_operand(self) -> None:
        """Count one operand; with too many it is Unreadable."""
        self.operand_count += 1
        if self.operand_count > MAX_OPERANDS:
            raise UnparsableAnswerError("too long")

    def enter_level(self) -> None:
        """Go one level of nesting down; too deep, it is Unreadable."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnparsableAnswerError("nested too deep")

    def leave_level(self) -> None:
        """Come back up."""
        self.depth -= 1
