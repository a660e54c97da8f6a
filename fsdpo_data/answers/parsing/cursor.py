"""A position in a list of tokens, with limits on nesting and length that bound the parse time."""

from fsdpo_data.answers import tree
from fsdpo_data.answers.lexicon.vocabulary import SUBSCRIPT_WORDS
from fsdpo_data.answers.parsing.lex import EOF, Token, UnparsableAnswerError, drop_single_braces

#: Maximum nesting depth of an answer. One level can need eighteen stack frames.
MAX_DEPTH = 40
MAX_OPERANDS = 2_000  #: Maximum number of operands in one answer.
_PRODUCT_END_SIGNS = frozenset(("+", ",", ";", ")", "=", "}", "<", ">", "le", "ge"))


class TokenCursor:
    """A position in a list of tokens, with the state that all parsers of one answer share.

    The methods have the usual names of recursive-descent parsers. ``peek`` methods look at a token,
    ``accept`` methods step over an optional token, and ``expect`` methods step over a required one.

    Attributes:
        tokens: The tokens of the answer. The parser may split a token in place.
        letter_units: Whether a letter after a number is a unit: ``5m`` is five metres.
        position: Index of the next token.
        depth: Current nesting depth.
        operand_count: Number of operands read so far.
        currency: Currency of a sign before the current number, None without a sign.
        bars_close: Whether ``|`` closes the current group.
        square_closes: Whether ``[`` or ``]`` closes the current group, as in ``]0,1[``.
    """

    __slots__ = (
        "bars_close",
        "currency",
        "depth",
        "letter_units",
        "operand_count",
        "position",
        "square_closes",
        "tokens",
    )

    def __init__(self, tokens: list[Token], letter_units: bool = False) -> None:
        self.tokens = tokens
        self.letter_units = letter_units
        self.position = 0
        self.depth = 0
        self.operand_count = 0
        self.currency: tree.Unit | None = None
        self.bars_close = False
        self.square_closes = False

    def skip(self, count: int = 1) -> None:
        """Step over ``count`` tokens."""
        self.position += count

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

    def replace_currency(self, currency: tree.Unit | None) -> tree.Unit | None:
        """Set ``currency``; return the old value."""
        old_currency = self.currency
        self.currency = currency
        return old_currency

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
        """Step over a braced group or one token; return its text without its braces and spaces.

        Braces inside the group stay, except around single tokens.
        """
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
            texts.append(token.text)
        return "".join(drop_single_braces(texts[:-1]))

    def accept_degree_or_primes(self) -> str:
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
