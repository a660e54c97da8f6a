"""A position in a list of tokens, with the bounds that keep parsing short."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fsdpo_data.answers.parsing.lex import EOF, Token, UnparsableAnswerError
from fsdpo_data.answers.tree import Node, Value

MAX_DEPTH = 40  #: Deepest nesting that is read; every level may cost seventeen stack frames.
_COMPARES = frozenset(("<", ">", "le", "ge", "=", "ne", "in"))
_ENDS = frozenset(("+", ",", ";", ")", "=", "}", "<", ">", "le", "ge"))
MAX_NODES = 2_000  #: Most operands of one answer.


class Cursor:
    """Walks over tokens; with ``letter_units``, an m after a number is a unit."""

    def __init__(self, tokens: list[Token], letter_units: bool = False) -> None:
        self.tokens = tokens
        self.letter_units = letter_units
        self.at = 0
        self.depth = 0
        self.nodes = 0

    if TYPE_CHECKING:  # a grammar goes round in circles: what the classes below this one read
        value: Callable[[], Value]
        product: Callable[[], Value]
        factor: Callable[[], Value]
        power: Callable[[], Value]
        primary: Callable[[], Value]
        postfix: Callable[[Value], Value]
        script: Callable[[], Node]
        fraction: Callable[[], Node]
        root: Callable[[], Node]
        function: Callable[[str], Value]
        marks: Callable[[], str]
        is_factor_next: Callable[[], bool]

    def peek(self, ahead: int = 0) -> Token:
        """Return the token ``ahead`` of the position."""
        index = self.at + ahead
        return self.tokens[index] if 0 <= index < len(self.tokens) else EOF

    def take(self) -> Token:
        """Return the next token and step over it."""
        token = self.peek()
        self.at += 1
        return token

    def sign(self, ahead: int = 0) -> str:
        """Return the next sign or command, or "" if the next token is neither."""
        index = self.at + ahead  # asked most of all: without a call of peek
        return self.tokens[index].sign if 0 <= index < len(self.tokens) else ""

    def accept(self, *signs: str) -> str:
        """Step over the next token if it is one of ``signs``; return it or ""."""
        found = self.tokens[self.at].sign if self.at < len(self.tokens) else ""
        if found not in signs:
            return ""
        self.at += 1
        return found

    def expect(self, *signs: str) -> str:
        """Step over one of ``signs``; if something else follows, it is Unreadable."""
        found = self.accept(*signs)
        if not found:
            raise UnparsableAnswerError(f"expected {signs[0]}")
        return found

    def word(self, ahead: int = 0) -> str:
        """Return the next word or letter, lower-case, or ""."""
        token = self.peek(ahead)
        return token.text.lower() if token.kind in ("word", "let") else ""

    def accept_word(self, *words: str) -> str:
        """Step over the next token if it is one of ``words``; return it or ""."""
        found = self.word()
        if found not in words:
            return ""
        self.at += 1
        return found

    def at_end(self) -> bool:
        """Whether all tokens are read."""
        return self.at >= len(self.tokens)

    def ends(self) -> bool:
        """Whether a sign follows that ends a product with its unit, or nothing at all."""
        return self.at_end() or self.sign() in _ENDS

    def condition_ahead(self) -> bool:
        """Whether "otherwise" follows, or "if" with a comparison."""
        word = self.word()
        return word in ("otherwise", "else") or (
            word in ("if", "for", "when", "where")
            and any(self.sign(ahead) in _COMPARES for ahead in range(2, 5))
        )

    def count(self) -> None:
        """Count one operand; with too many it is Unreadable."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise UnparsableAnswerError("too long")

    def enter(self) -> None:
        """Go one level of nesting down; too deep, it is Unreadable."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnparsableAnswerError("nested too deep")

    def leave(self) -> None:
        """Come back up."""
        self.depth -= 1
