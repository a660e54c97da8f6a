r"""Cut an answer into tokens: numbers, letters, words, commands and signs, in one linear pass.

Styling leaves no token: ``\left``, ``\displaystyle``, spacing commands. ``\text{...}`` and
``\mathrm{...}`` are opened up; their letters are marked as upright.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from fsdpo_data.answers.lexicon.numbers import MAX_DIGITS, make_decimal, make_repeating_decimal
from fsdpo_data.answers.lexicon.vocabulary import word_set
from fsdpo_data.answers.tree import Num
from fsdpo_data.core.toml_tables import read_toml

MAX_TOKENS = 1_500  #: More tokens than this is not an answer.


class UnparsableAnswerError(ValueError):
    """The text is not an answer this grammar knows."""


@dataclass(slots=True)
class Token:
    r"""One token."""

    #: ``num``, ``let`` (a letter), ``word`` (several), ``cmd`` (a backslash command), ``op`` (a
    #: sign), ``begin``, ``end`` (of an environment) or ``eof``.
    kind: str
    text: str  #: The letters, the command without its backslash, or the sign.
    space: int = 0  #: 0 right after the last token, 1 after white space, 2 after a spacing command.
    upright: bool = False  #: In ``\text`` or ``\mathrm``.
    number: Num | None = None  #: The value of a ``num``.
    sign: str = ""  #: Its text if it is a sign or a command.


EOF = Token("eof", "")
_SIGNS = frozenset(("op", "cmd"))

_GROUPED = r"\d{1,3}(?:(?:,\s?\\!\s?|\{,\}\s?|\\[,;:! ]\s?|,)\d{3})+(?![\d]|\{,\})"
_SPACED = r"\d{1,3}(?: \d{3})+(?!\d)"
_REPEAT = r"(?:\\(?:overline|bar|dot)\s*(?:\{\s*(?P<cycle>\d+)\s*\}|(?P<cycle1>\d)))"
_TOKEN = re.compile(
    rf"(?P<space>[\s~]+)"
    rf"|(?P<thin>\\[,;: !>]|\\(?:q?quad|thinspace|enspace|enskip|negthinspace)(?![A-Za-z]))"
    rf"|(?P<num>(?P<whole>{_GROUPED}|{_SPACED}|\d+)?(?:\.(?P<places>\d*)|(?<=\d)){_REPEAT}"
    rf"|(?P<whole2>{_GROUPED}|{_SPACED}|\d+)(?:(?P<point>\.)(?P<places2>\d*))?"
    rf"(?P<power>[eE][-+]?\d{{1,6}}(?![\d.A-Za-z\\]))?(?P<dots>\s?\\[lc]?dots(?![A-Za-z])|\.\.+)?"
    rf"|\.(?P<places3>\d+)(?P<power3>[eE][-+]?\d{{1,6}})?(?P<dots3>\s?\\[lc]?dots|\.\.+)?)"
    rf"|\\begin\s*\{{(?P<begin>\w+)\*?\}}(?:\s*\{{[lcr|\s@]*\}})?|\\end\s*\{{(?P<end>\w+)\*?\}}"
    rf"|\\(?P<cmd>[A-Za-z]+|[\s\S])"
    rf"|(?P<word>[A-Za-z]+)"
    rf"|(?P<dots4>\.\.+)"
    rf"|(?P<op><=|>=|!=|==|<>|\*\*|->|[\s\S])"
)
_GROUPED_PLAIN = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)")
_SPACED_COMMA = re.compile(r"(?<!\\),(?:\s|\\[,;: ]|~)*\s")
_SEPARATORS = re.compile(r"[,{}\\!;: ]")

_TABLE = read_toml(__file__)
_STYLE = word_set(_TABLE["style"])  #: Commands that only style what follows.
#: Commands whose argument is opened up; True where letters in it stand upright.
_WRAPPERS = dict.fromkeys(word_set(_TABLE["upright"]), True) | dict.fromkeys(
    word_set(_TABLE["slanted"]), False
)
_SAME: dict[str, str] = _TABLE["same"]  #: Spellings of one sign.
_DROPPED_ARGUMENT = re.compile(r"\s*\{[^{}]{0,40}\}")


def tokenize(text: str) -> list[Token]:
    """Cut cleaned ``text`` into tokens.

    Raises:
        Unreadable: Too many tokens, a number beyond bounds, or unbalanced braces of a wrapper.
    """
    return _Lexer(text).run()


def token_texts(text: str) -> tuple[str, ...]:
    """Return the tokens of ``text`` as written, without spaces and braces around single tokens.

    Raises:
        Unreadable: See ``tokenize``.
    """
    tokens = [token.text for token in tokenize(text)]
    spelled: list[str] = []
    for index, token in enumerate(tokens):
        opens = token == "{" and tokens[index + 2 : index + 3] == ["}"]
        closes = token == "}" and index > 1 and tokens[index - 2] == "{"
        if not opens and not closes:
            spelled.append(token)
    return tuple(spelled)


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[Token] = []
        self.space = 0
        self.braces: list[tuple[bool, bool]] = []  # (emitted, upright) of every open brace
        self.wrap: bool | None = None  # a wrapper waits for its brace; its letters are upright
        self.depth = 0  # of brackets other than braces
        self.spaced_commas = _SPACED_COMMA.search(text) is not None

    def run(self) -> list[Token]:
        at, text = 0, self.text
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or len(self.tokens) > MAX_TOKENS:
                raise UnparsableAnswerError("too long")
            at = self._take(match)
        return self.tokens

    def _take(self, match: re.Match[str]) -> int:
        kind = match.lastgroup or ""  # of groups in one another, the outermost
        if kind == "op":
            self._sign(match.group())
        elif kind == "num":
            return self._number(match)
        elif kind == "cmd":
            return self._command(match)
        elif kind == "space":
            self.space = max(self.space, 1)
        elif kind == "word":
            word = match.group()
            self._emit("let" if len(word) == 1 else "word", word)
        elif kind == "thin":
            if match.group() != "\\!":
                self.space = 2
        elif kind == "dots4":
            self._emit("cmd", "ldots")
        else:
            self._emit(kind, match[kind])
        return match.end()

    def _emit(self, kind: str, text: str, number: Num | None = None) -> None:
        upright = bool(self.braces) and self.braces[-1][1]
        sign = text if kind in _SIGNS else ""
        self.tokens.append(Token(kind, text, self.space, upright, number, sign))
        self.space, self.wrap = 0, None

    def _sign(self, sign: str) -> None:
        if sign == "{":
            upright = bool(self.braces) and self.braces[-1][1]
            wrapper, self.wrap = self.wrap, None
            self.braces.append((wrapper is None, upright if wrapper is None else wrapper))
            if wrapper is None:
                self._emit("op", "{")
            else:
                self.space = max(self.space, int(wrapper))
            return
        if sign == "}" and self.braces:
            emitted, upright = self.braces[-1]
            if emitted:
                self._emit("op", "}")
            elif upright:
                self.space = max(self.space, 1)
            self.braces.pop()
            return
        if sign in "([":
            self.depth += 1
        elif sign in ")]":
            self.depth = max(self.depth - 1, 0)
        self._emit("op", _SAME.get(sign, sign))

    def _command(self, match: re.Match[str]) -> int:
        name, end = match["cmd"], match.end()
        if name in _WRAPPERS:
            if name == "textcolor":
                end = _skip_argument(self.text, end)
            self.wrap = _WRAPPERS[name]
            self.space = max(self.space, int(self.wrap))
        elif name in ("color", "hspace", "vspace", "phantom", "label", "tag"):
            end = _skip_argument(self.text, end)
        elif name in _STYLE:
            if name in ("left", "right") and self.text[end : end + 1] == ".":
                end += 1
        elif name in "()[]\n":
            self.space = max(self.space, 1)
        elif name in ("{", "lbrace"):
            self.depth += 1
            self._emit("cmd", "lset")
        elif name in ("}", "rbrace"):
            self.depth = max(self.depth - 1, 0)
            self._emit("cmd", "rset")
        elif name == "%":
            self._emit("op", "%")
        elif name in ("lbrack", "rbrack"):
            self._sign("[" if name == "lbrack" else "]")
        else:
            self._emit("cmd", _SAME.get(name, name))
        return end

    def _number(self, match: re.Match[str]) -> int:
        whole = match["whole"] or match["whole2"] or ""
        beside = self.text[max(match.start() - 1, 0) : match.start()] == ","
        if "," in whole and self.depth and (beside or not self.spaced_commas):
            plain = _GROUPED_PLAIN.match(whole)
            if plain:  # "(12,102)" holds two numbers
                first = whole.split(",", 1)[0]
                self._emit("num", first, parse_integer(first))
                return match.start() + len(first)
        if " " in whole and "," not in whole and self.tokens and self.tokens[-1].text in "_^":
            first = whole.split(" ", 1)[0]  # "\log_2 256" is not the logarithm to base 2256
            self._emit("num", first, parse_integer(first))
            return match.start() + len(first)
        places = match["places"] or match["places2"] or match["places3"] or ""
        power = match["power"] or match["power3"]
        cycle = match["cycle"] or match["cycle1"]
        digits = _SEPARATORS.sub("", whole)
        if len(digits) + len(places) + len(cycle or "") > MAX_DIGITS:
            raise UnparsableAnswerError("number too long")
        if cycle is not None:
            number = make_repeating_decimal(digits, places, cycle)
        elif match["dots"] or match["dots3"]:
            if not places:  # "1, 2, 3, \ldots": the dots are not part of the number
                number, dots = parse_integer(digits), match["dots"] or match["dots3"]
                self._emit("num", digits, number)
                self._emit("cmd", "ldots")
                return match.start() + match.group().index(dots) + len(dots)
            number = _parse_repeating_decimal(digits, places)
        elif places or power:
            number = _check_size(make_decimal(digits, places, int(power[1:]) if power else 0))
        else:
            number = parse_integer(digits)
        self._emit("num", match.group(), number)
        return match.end()


def _skip_argument(text: str, at: int) -> int:
    match = _DROPPED_ARGUMENT.match(text, at)
    return match.end() if match else at


def parse_integer(digits: str) -> Num:
    """Return the integer ``digits``."""
    if len(digits) > MAX_DIGITS:
        raise UnparsableAnswerError("number too long")
    return Num(Fraction(int(digits)))


def _parse_repeating_decimal(whole: str, places: str) -> Num:
    """Read ``0.1666...``: if its digits end in a cycle seen twice, that goes on for ever."""
    for length in range(1, len(places) // 2 + 1):
        cycle = places[-length:]
        seen = 1
        while places[: len(places) - seen * length].endswith(cycle):
            seen += 1
        if seen >= 2:
            return make_repeating_decimal(whole, places[: len(places) - seen * length], cycle)
    return _check_size(make_decimal(whole, places))


def _check_size(number: Num | None) -> Num:
    if number is None:
        raise UnparsableAnswerError("exponent too large")
    return number
