"""Read an answer: lists, sets, intervals, relations, ratios, times, words. All of it or nothing."""

from __future__ import annotations

import re
from fractions import Fraction

from fsdpo_data.answers.clean import MAX_LENGTH, clean
from fsdpo_data.answers.lex import Unreadable, tokenize
from fsdpo_data.answers.measure import QuantityParser, compound
from fsdpo_data.answers.memory import remember
from fsdpo_data.answers.names import as_node
from fsdpo_data.answers.prose import (
    phrase,
    plain_text,
    plain_words,
    reals_except,
    spell_relations,
)
from fsdpo_data.answers.tree import (
    Based,
    Builder,
    Items,
    Join,
    Matrix,
    Member,
    Num,
    Ratio,
    Relation,
    Sym,
    Text,
    Value,
    is_node,
)
from fsdpo_data.answers.vocabulary import names
from fsdpo_data.answers.words import read_moment

_RELATIONS = {
    "=": "=", "<": "<", ">": ">", "le": "<=", "ge": ">=", "ne": "!=", "approx": "~",
    "equiv": "==", "cong": "==", "sim": "~",
}  # fmt: skip
_SET_OPS = {"cup": "union", "cap": "intersection", "setminus": "minus"}
_SET_WORDS = {"union": "union", "intersection": "intersection", "intersect": "intersection",
              "except": "minus"}  # fmt: skip
_SETS = frozenset(("RR", "ZZ", "QQ", "NN", "CC"))
_BASE_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
               "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "sixteen": 16}  # fmt: skip
_BASED = re.compile(
    r"\(?(?P<sign>-?)\(?(?P<digits>[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)\)?"
    r"(?:_\(?(?:base)?|\(?(?:in)?base-?)(?P<base>\d{1,2}|[a-z]+)\)?\)?"
)
#: Longest answer that is read; the longest gold of any benchmark has 250 characters.
MAX_READ = 2_500
#: Longest answer whose label is looked for.
MAX_LABELLED = 300
_LIST = re.compile(r"\d{1,3}(?:,[1-9]\d{2})+")
_NUMERALS = re.compile(r"[\d.]+").fullmatch
#: What names a value in words: "Area = 5", "The answer is 5".
_LABEL = re.compile(
    r"[^\d=:<>\\_^]{1,80}?[A-Za-z]{2,}[^\d=:<>\\_^]{0,20}?(?:=|:|\bis\b|\bare\b)(.+)", re.S
)
_LEADING = sorted(names("both either the approximately about around roughly nearly exactly only"))
_MATRICES = frozenset(["pmatrix", "bmatrix", "matrix", "Bmatrix", "smallmatrix", "array"])


class AnswerParser(QuantityParser):
    """Reads a whole answer."""

    def answer(self) -> Value:
        """Read all tokens.

        Raises:
            Unreadable: Something is left, or makes no sense.
        """
        value = self.value()
        self.accept(".")
        if not self.at_end():
            raise Unreadable(f"left over: {self.peek().text}")
        return value

    def value(self) -> Value:
        """Read alternatives: ``a or b``, each a list."""
        parts = [self._list()]
        while self.accept_word("or") or self.accept("vee"):
            parts.append(self._list())
        if len(parts) == 1:
            return parts[0]
        if all(map(_is_statement, parts)):
            return Join("or", tuple(parts))
        return Items("", tuple(item for part in parts for item in _spread(part)))

    def _list(self) -> Value:
        items = [self._item()]
        joined = True
        while self._separator():
            following = self._item()
            items.append(following)
            joined = joined and self._last_separator == "and"
        if len(items) == 1:
            return items[0]
        if joined and all(map(_is_statement, items)):
            return Join("and", tuple(items))
        return Items("", tuple(items))

    _last_separator = ""

    def _separator(self) -> bool:
        start = self.at
        if self.accept(",", ";"):
            self._last_separator = ","
            if self.word() == "or":
                self.at = start
                self._skip_comma_before_or()
                return False
            self.accept_word("and")
            self.accept("&")
            if self.at_end():
                raise Unreadable("a list that ends in a comma")
            return True
        if self.accept_word("and") or self.accept("wedge"):
            self._last_separator = "and"
            return True
        return False

    def _skip_comma_before_or(self) -> None:
        self.at += 1

    def _item(self) -> Value:
        """Read one value or a chain of relations."""
        while self.accept_word(*_LEADING):
            pass
        parts = [self._operand()]
        ops: list[str] = []
        while (sign := self.sign()) in _RELATIONS:
            self.at += 1
            ops.append(_RELATIONS[sign])
            parts.append(self._operand())
        if ops:
            return Relation(tuple(parts), tuple(ops))
        if self.accept("in") or self._in_set():
            return Member(parts[0], self._operand())
        if self.accept("notin"):
            return Member(parts[0], self._operand(), negated=True)
        return parts[0]

    def _in_set(self) -> bool:
        if self.word() == "in" and self.sign(1) in ("(", "[", "lset", "mathbb", "]"):
            self.at += 1
            return True
        return False

    def _operand(self) -> Value:
        """Read sets joined by union, intersection and difference."""
        if self.sign() in ("approx", "sim", "=", "to"):  # "≈ 3.14", "= 5"
            self.at += 1
        value, joined = self._measured(), 0
        while True:
            op = _SET_OPS.get(self.sign()) or _SET_WORDS.get(self.word())
            if self.word() == "u" and self.sign(1) in ("(", "[", "lset") and not is_node(value):
                op = "union"
            if op is None and self.sign() == "-" and _is_set(value):
                op = "minus"
            if op is None:
                self.depth -= joined
                return value
            self.at += 1
            self.enter()
            value = Join(op, (value, self._measured()))
            joined += 1

    def _measured(self) -> Value:
        """Read a quantity or a ratio of two or more."""
        first = self.quantity()
        if not is_node(first):
            return first
        parts = [as_node(first)]
        while (self.sign() == ":" and not self.bars_close) or self._ratio_word():
            self.at += 1
            parts.append(as_node(self.sum()))
        return Ratio(tuple(parts)) if len(parts) > 1 else first

    def _ratio_word(self) -> bool:
        return self.word() == "to" and self.peek().kind == "word"

    def bracket(self, opener: str) -> Value:
        """Read what stands in brackets; set braces hold a list or a set-builder."""
        if opener == "lset":
            return self._set()
        return super().bracket(opener)

    def _braced(self) -> Value:
        if self.sign() == "}":
            raise Unreadable("an empty group")
        if self.peek().kind == "let" and self.sign(1) in ("|", ":"):
            return self._set()  # "{x | x > 2}" without backslashes
        return super()._braced()

    def _set(self) -> Value:
        """Read ``{1, 2}`` or ``{x | x > 2}``."""
        if self.accept("rset", "}"):
            return Items("{}", ())
        head = self.inside(bars_close=True)
        if self.accept("|", ":", ";"):
            conditions = self.inside(bars_close=False)
            self.expect("rset", "}")
            return Builder(head, tuple(_spread(conditions)))
        self.expect("rset", "}")
        return Items("{}", tuple(_spread(head)))

    def primary(self) -> Value:
        """Read a matrix or what an expression begins with."""
        if self.peek().kind == "begin":
            return self._matrix()
        return super().primary()

    def _matrix(self) -> Value:
        name = self.take().text
        if name not in _MATRICES:
            raise Unreadable(f"the environment {name}")
        rows: list[tuple[Value, ...]] = []
        row: list[Value] = []
        while True:
            if self.peek().kind == "end":
                break
            row.append(self.quantity())
            if self.accept("&"):
                continue
            rows.append(tuple(row))
            row = []
            if not self.accept("\\"):
                break
        if self.take().kind != "end" or len({len(row) for row in rows}) != 1:
            raise Unreadable("an uneven matrix")
        return Matrix(tuple(rows))


def _is_statement(value: Value) -> bool:
    """Whether ``value`` says where a variable lies, not just what it is."""
    return isinstance(value, Member | Join) or (isinstance(value, Relation) and value.ops != ("=",))


def _spread(value: Value) -> tuple[Value, ...]:
    return value.items if isinstance(value, Items) and not value.brackets else (value,)


def _is_set(value: Value) -> bool:
    return (isinstance(value, Sym) and value.name in _SETS) or (
        isinstance(value, Items | Builder | Join) and not is_node(value)
    )


@remember(8_192)
def read(text: str, letter_units: bool = False) -> Value:
    """Read an answer; what no grammar fits is ``Text``.

    Args:
        text: The answer as it was written.
        letter_units: Whether a letter such as ``m`` after a number is a unit.
    """
    if len(text) > MAX_LENGTH:
        return Text((text,))
    cleaned = clean(text)
    if len(cleaned) > MAX_READ:
        return Text((cleaned,))
    value = read_special(cleaned)
    if value is not None:
        return value
    left_out = reals_except(cleaned)
    if left_out is not None:
        cleaned = f"\\mathbb{{R}} \\setminus \\{{ {left_out} \\}}"
    for part in (cleaned, _without_label(cleaned)):
        try:
            if part:
                return AnswerParser(tokenize(spell_relations(part)), letter_units).answer()
        except Unreadable:
            continue
    return Text(plain_words(cleaned))


def _without_label(text: str) -> str:
    """Return what follows the words that name a value, "" if there are none."""
    match = _LABEL.fullmatch(plain_text(text) if len(text) < MAX_LABELLED else "")
    return match[1].strip() if match else ""


def read_special(text: str) -> Value | None:
    """Read what has a grammar of its own: times, dates, number bases, set phrases."""
    if len(text) > 120:
        return None
    words = plain_words(text)
    known = phrase(words)
    if known is not None:
        return known
    if any(c.isalpha() for c in text):
        moment = read_moment(" ".join(plain_text_for_time(text).split()))
        if moment is not None:
            return moment
    if "_" in text or "base" in text:
        based = _BASED.fullmatch(re.sub(r"[\s,]|\\\\", "", plain_text(text)))
        if based is not None:
            return _based(based)
    return None


def plain_text_for_time(text: str) -> str:
    """Return ``text`` without the commands around words."""
    return re.sub(r"\\(?:text|mbox|mathrm|textbf|boxed|fbox)\s*\{|[{}]|\\[,;:! ]|~", " ", text)


def _based(match: re.Match[str]) -> Value | None:
    named = match["base"]
    base = int(named) if named.isdigit() else _BASE_WORDS.get(named, 0)
    digits = match["digits"].upper()
    if not 2 <= base <= 36 or not any(c.isdigit() for c in digits):
        return None
    if any(int(c) >= base for c in digits if c.isdigit()) or (base < 11 and not _NUMERALS(digits)):
        return None
    return Based(match["sign"] + (digits.lstrip("0") or "0"), base)


@remember(8_192)
def alternatives(text: str, value: Value) -> tuple[Value, ...]:
    """Return ``value`` and what else ``text`` may mean: "5:45" a time, "70,110" a list."""
    if isinstance(value, Ratio) and len(value.parts) in (2, 3):
        moment = read_moment(plain_text_for_time(clean(text)))
        return (value,) if moment is None else (value, moment)
    if isinstance(value, Num) and "," in text:
        match = _LIST.fullmatch(clean(text))
        if match is not None:
            numbers = (Num(Fraction(int(part))) for part in match.group().split(","))
            return (value, Items("", tuple(numbers)))
    if isinstance(value, Items) and value.brackets == "":
        whole = compound(value.items)
        return (value,) if whole is None else (value, whole)
    return (value,)
