r"""Split an answer into tokens (numbers, letters, words, commands and signs) in one linear pass.

Styling commands such as ``\left``, ``\displaystyle`` and spacing give no token. The argument of
``\text{...}`` and ``\mathrm{...}`` is split like other text, and its letters are marked as upright.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from fsdpo_data.answers.lexicon.numbers import MAX_DIGITS, make_decimal, make_repeating_decimal
from fsdpo_data.answers.lexicon.vocabulary import word_set
from fsdpo_data.answers.tables import read_module_table
from fsdpo_data.answers.tree import Num

MAX_TOKENS = 1_500  #: Maximum number of tokens in an answer.


class UnparsableAnswerError(ValueError):
    """Error for a text that is not an answer of this grammar."""


@dataclass(slots=True)
class Token:
    """The smallest unit of an answer: a number, a letter, a word, a command or a sign."""

    #: ``num`` (number), ``let`` (one letter), ``word`` (several letters), ``cmd`` (backslash
    #: command), ``op`` (sign), ``begin`` or ``end`` (of an environment) or ``eof``.
    kind: str
    #: The letters, the sign, the digits, or the command without its backslash.
    text: str
    #: 0 directly after the previous token, 1 after white space, 2 after a spacing command, 3 after
    #: ``\\quad``, which separates statements.
    space: int = 0
    #: Whether the token is part of the argument of ``\text`` or ``\mathrm``.
    upright: bool = False
    #: The value of a ``num`` token, None for other tokens.
    number: Num | None = None
    #: The same as ``text`` for signs and commands, "" for other tokens. The parser compares this
    #: field, so a letter or a word never equals a sign.
    sign: str = ""


#: The token after the last one. ``tokenize`` does not append it.
EOF = Token("eof", "")
_SIGN_KINDS = frozenset(("op", "cmd"))

_GROUPED = r"\d{1,3}(?:(?:,\s?\\!\s?|\{,\}\s?|\\[,;:! ]\s?|,)\d{3})+(?![\d]|\{,\})"
_SPACED = r"\d{1,3}(?: \d{3})+(?!\d)"
_REPEAT = (
    r"(?:\\(?:overline|bar|dot)\s*(?:\{\s*(?P<cycle>\d+)\s*\}|(?P<cycle1>\d))"
    r"|(?<=\.)\((?P<cycle2>\d+)\))"
)
# A number has one of four shapes, each with its own groups. The first has a repeating part
# (1.2\overline{3}, or 1.(3)), the second an integer part (1,234.5e6, names ending in 2), the third
# only decimals (.5, names ending in 3), and the fourth only dots (names ending in 4).
_TOKEN_PATTERN = re.compile(
    rf"(?P<space>[\s~]+)"
    rf"|(?P<thin>\\[,;: !>]|\\(?:q?quad|thinspace|enspace|enskip|negthinspace)(?![A-Za-z]))"
    rf"|(?P<num>(?P<integer>{_GROUPED}|{_SPACED}|\d+)?(?:\.(?P<decimals>\d*)|(?<=\d)){_REPEAT}"
    rf"|(?P<integer2>{_GROUPED}|{_SPACED}|\d+)(?:(?P<point>\.)(?P<decimals2>\d*))?"
    rf"(?P<power>[eE][-+]?\d{{1,6}}(?![\d.A-Za-z\\]))?(?P<dots>\s?\\[lc]?dots(?![A-Za-z])|\.\.+)?"
    rf"|\.(?P<decimals3>\d+)(?P<power3>[eE][-+]?\d{{1,6}})?(?P<dots3>\s?\\[lc]?dots|\.\.+)?)"
    rf"|\\begin\s*\{{(?P<begin>\w+)\*?\}}(?:\s*\{{[lcr|\s@]*\}})?|\\end\s*\{{(?P<end>\w+)\*?\}}"
    rf"|\\(?P<cmd>[A-Za-z]+|[\s\S])"
    rf"|(?P<word>[A-Za-z]+)"
    rf"|(?P<dots4>\.\.+)"
    rf"|(?P<op><=|>=|!=|==|<>|\*\*|->|[\s\S])"
)
_COMMA_GROUPS = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)")
_SPACED_COMMA = re.compile(r"(?<!\\),(?:\s|\\[,;: ]|~)*\s")
_SEPARATORS = re.compile(r"[,{}\\!;: ]")

_TABLE = read_module_table(__file__)
#: Commands without meaning that only style the text after them.
_STYLE_COMMANDS = word_set(_TABLE["style"])
#: Commands whose argument is part of the answer. The value says whether its letters are upright.
_WRAPPERS: dict[str, bool] = {
    **{name: True for name in word_set(_TABLE["upright"])},
    **{name: False for name in word_set(_TABLE["slanted"])},
}
#: The one spelling that the parser uses for every sign and command with several spellings.
_CANONICAL_SIGNS: dict[str, str] = _TABLE["canonical_signs"]
_DROPPED_ARGUMENT = re.compile(r"\s*\{[^{}]{0,40}\}")


def tokenize(text: str) -> list[Token]:
    """Split a text into tokens; call ``clean`` on the text first.

    Raises:
        UnparsableAnswerError: The text has too many tokens, or a number is too long.
    """
    return _Lexer(text).read_tokens()


def drop_single_braces(texts: list[str]) -> tuple[str, ...]:
    """Return the texts of tokens without braces around single tokens."""
    return tuple(
        text
        for index, text in enumerate(texts)
        if not (text == "{" and texts[index + 2 : index + 3] == ["}"])
        and not (text == "}" and index > 1 and texts[index - 2] == "{")
    )


class _Lexer:
    """The state of one pass over a text.

    Attributes:
        text: The text to split.
        tokens: The tokens read so far.
        space: The ``space`` value of the next token.
        open_braces: For every open brace: whether it is a token, and whether its content is
            upright. The braces of wrapper commands are not tokens.
        pending_wrapper: Set between a wrapper command and its brace: whether its letters are
            upright. None elsewhere.
        bracket_depth: Number of open brackets other than plain braces.
        has_spaced_commas: Whether the text has a comma with white space after it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[Token] = []
        self.space = 0
        self.open_braces: list[tuple[bool, bool]] = []
        self.pending_wrapper: bool | None = None
        self.bracket_depth = 0
        self.has_spaced_commas = _SPACED_COMMA.search(text) is not None

    def read_tokens(self) -> list[Token]:
        """Split the text."""
        position = 0
        text = self.text
        while position < len(text):
            match = _TOKEN_PATTERN.match(text, position)
            if match is None or len(self.tokens) > MAX_TOKENS:
                raise UnparsableAnswerError(
                    f"the answer is too long: it has more than {MAX_TOKENS} tokens"
                )
            position = self._read_match(match)
        return self.tokens

    def _read_match(self, match: re.Match[str]) -> int:
        """Append the tokens of one match; return the position after the text they cover."""
        kind = match.lastgroup or ""  # For nested groups, ``lastgroup`` is the outermost one.
        if kind == "op":
            self._read_sign(match.group())
        elif kind == "num":
            return self._read_number(match)
        elif kind == "cmd":
            return self._read_command(match)
        elif kind == "space":
            self.space = max(self.space, 1)
        elif kind == "word":
            word = match.group()
            self._append_token("let" if len(word) == 1 else "word", word)
        elif kind == "thin":
            if match.group() != "\\!":
                self.space = 3 if "quad" in match.group() else max(self.space, 2)
        elif kind == "dots4":
            self._append_token("cmd", "ldots")
        else:
            self._append_token(kind, match[kind])
        return match.end()

    def _append_token(self, kind: str, text: str, number: Num | None = None) -> None:
        upright = bool(self.open_braces) and self.open_braces[-1][1]
        sign = text if kind in _SIGN_KINDS else ""
        self.tokens.append(Token(kind, text, self.space, upright, number=number, sign=sign))
        self.space = 0
        self.pending_wrapper = None

    def _read_sign(self, sign: str) -> None:
        if sign == "{":
            self._open_brace()
            return
        if sign == "}" and self.open_braces:
            is_token, upright = self.open_braces[-1]
            if is_token:
                self._append_token("op", "}")
            elif upright:  # the next letter is not part of this word
                self.space = max(self.space, 1)
            self.open_braces.pop()
            return
        if sign in "([":
            self.bracket_depth += 1
        elif sign in ")]":
            self.bracket_depth = max(self.bracket_depth - 1, 0)
        self._append_token("op", _CANONICAL_SIGNS.get(sign, sign))

    def _open_brace(self) -> None:
        """Open the brace of a wrapper command, or append a token for another brace."""
        wrapper = self.pending_wrapper
        self.pending_wrapper = None
        if wrapper is None:
            upright = bool(self.open_braces) and self.open_braces[-1][1]
            self.open_braces.append((True, upright))
            self._append_token("op", "{")
        else:
            self.open_braces.append((False, wrapper))
            self.space = max(self.space, int(wrapper))

    def _read_command(self, match: re.Match[str]) -> int:
        """Read a backslash command; return the position after it and its dropped argument."""
        name = match["cmd"]
        end = match.end()
        if name in _WRAPPERS:
            if name == "textcolor":
                end = _skip_argument(self.text, end)
            self.pending_wrapper = _WRAPPERS[name]
            self.space = max(self.space, int(self.pending_wrapper))
        elif name in ("color", "hspace", "vspace", "phantom", "label", "tag"):
            end = _skip_argument(self.text, end)
        elif name in _STYLE_COMMANDS:
            if name in ("left", "right") and self.text[end : end + 1] == ".":
                end += 1
        elif name in "()[]\n":
            self.space = max(self.space, 1)
        elif name in ("{", "lbrace"):
            self.bracket_depth += 1
            self._append_token("cmd", "lset")  # a written brace, unlike the "{" of a group
        elif name in ("}", "rbrace"):
            self.bracket_depth = max(self.bracket_depth - 1, 0)
            self._append_token("cmd", "rset")
        elif name == "%":
            self._append_token("op", "%")
        elif name in ("lbrack", "rbrack"):
            self._read_sign("[" if name == "lbrack" else "]")
        else:
            self._append_token("cmd", _CANONICAL_SIGNS.get(name, name))
        return end

    def _read_number(self, match: re.Match[str]) -> int:
        """Read a number; return the position after it."""
        integer_part = match["integer"] or match["integer2"] or ""
        if integer_part and not integer_part.isdigit():
            first = self._first_of_several(integer_part, match.start())
            if first:
                self._append_token("num", first, parse_integer(first))
                return match.start() + len(first)
        decimals = match["decimals"] or match["decimals2"] or match["decimals3"] or ""
        power = match["power"] or match["power3"]
        cycle = match["cycle"] or match["cycle1"] or match["cycle2"]
        digits = _SEPARATORS.sub("", integer_part)
        if len(digits) + len(decimals) + len(cycle or "") > MAX_DIGITS:
            raise UnparsableAnswerError(f"a number has more than {MAX_DIGITS} digits")
        if cycle is not None:
            number = make_repeating_decimal(digits, decimals, cycle)
        elif match["dots"] or match["dots3"]:
            if not decimals:  # "1, 2, 3, \ldots": the dots are not part of the number
                number = parse_integer(digits)
                dots = match["dots"] or match["dots3"]
                self._append_token("num", digits, number)
                self._append_token("cmd", "ldots")
                return match.start() + match.group().index(dots) + len(dots)
            number = _parse_repeating_decimal(digits, decimals)
        elif decimals or power:
            number = _check_size(make_decimal(digits, decimals, int(power[1:]) if power else 0))
        else:
            number = parse_integer(digits)
        self._append_token("num", match.group(), number)
        return match.end()

    def _first_of_several(self, integer_part: str, start: int) -> str:
        r"""Return the first number if the matched digit groups are several numbers, else "".

        "(12,102)" has two numbers: a comma in brackets separates values, unless another comma of
        the text has a space. So does "27,54,108", where the first comma is not in a number. The
        base in "\log_2 256" is 2.
        """
        follows_comma = self.text[max(start - 1, 0) : start] == ","
        if "," in integer_part and (self.bracket_depth or follows_comma):
            is_list = follows_comma or not self.has_spaced_commas
            if is_list and _COMMA_GROUPS.match(integer_part):
                return integer_part.split(",", 1)[0]
        if " " in integer_part and "," not in integer_part:
            is_script = bool(self.tokens) and self.tokens[-1].text in "_^"
            if is_script:
                return _SEPARATORS.split(integer_part, maxsplit=1)[0]
        return ""


def _skip_argument(text: str, position: int) -> int:
    """Return the position after a braced argument, or ``position`` if there is no argument."""
    match = _DROPPED_ARGUMENT.match(text, position)
    return match.end() if match else position


def parse_integer(digits: str) -> Num:
    """Return the integer with these digits.

    Raises:
        UnparsableAnswerError: The number has more than ``MAX_DIGITS`` digits.
    """
    if len(digits) > MAX_DIGITS:
        raise UnparsableAnswerError(f"a number has more than {MAX_DIGITS} digits")
    return Num(Fraction(int(digits)))


def _parse_repeating_decimal(integer_part: str, decimals: str) -> Num:
    """Read the digits of ``0.1666...``; a cycle that occurs twice at the end repeats for ever."""
    for length in range(1, len(decimals) // 2 + 1):
        cycle = decimals[-length:]
        repetitions = 1
        while decimals[: len(decimals) - repetitions * length].endswith(cycle):
            repetitions += 1
        if repetitions >= 2:
            prefix = decimals[: len(decimals) - repetitions * length]
            return make_repeating_decimal(integer_part, prefix, cycle)
    return _check_size(make_decimal(integer_part, decimals))


def _check_size(number: Num | None) -> Num:
    """Return ``number``; None is a number out of bounds and raises an error."""
    if number is None:
        raise UnparsableAnswerError("the exponent of a number is too large")
    return number
