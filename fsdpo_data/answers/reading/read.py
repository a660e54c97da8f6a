"""Read an answer: its value, and what else it may mean. What no grammar fits is words."""

import re
from fractions import Fraction

from fsdpo_data.answers.lexicon.words import MAY_BE_MOMENT, SMALL, read_moment
from fsdpo_data.answers.reading.clean import MAX_LENGTH, clean
from fsdpo_data.answers.reading.lex import Unreadable, tokenize
from fsdpo_data.answers.reading.prose import (
    phrase,
    plain_text,
    plain_words,
    reals_except,
    spell_relations,
)
from fsdpo_data.answers.reading.quantities import compound
from fsdpo_data.answers.reading.statements import AnswerParser, components
from fsdpo_data.answers.tree import Based, Items, Num, Ratio, Relation, Text, Value

#: Longest answer that is read; the longest gold of any benchmark has 250 characters.
MAX_READ = 2_500
#: Longest answer whose label is looked for.
MAX_LABELLED = 300
_LIST = re.compile(r"\d{1,3}(?:,[1-9]\d{2})+")
#: What names a value in words: "Area = 5", "The answer is 5".
_LABEL = re.compile(
    r"[^\d=:<>\\_^]{1,80}?[A-Za-z]{2,}[^\d=:<>\\_^]{0,20}?(?:=|:|\bis\b|\bare\b)(.+)", re.S
)
#: A choice with its value: "(B) 5".
_CHOSEN = re.compile(r"(?:\\(?:text|textbf|mathrm)\s*\{\s*)?\([A-E]\)\s*\}?\s*[.:]?\s*(\S.*)", re.S)
#: The same value once more: "3/4 (or 0.75)".
_ASIDE = re.compile(
    r"(.+?)\s*\(\s*(?:(?:or|i\.e\.,?|=|equivalently|about|\\approx)\s*([^()]+)|(\d[^()]*%))\)"
)
#: A point with its name: "P(2,3)", "vertex (2,3)".
_POINT = re.compile(r"(?:[A-Z]|[a-z]{4,})\s*(\([^()]*,[^()]*\))")
#: What an answer holds under: "5 when x = 2".
_CONDITION = re.compile(
    r"(.+?)\s*\\?(?:text|mathrm)?\s*\{?\s*\b(?:when|where|for|if|provided|given)\b([^,;]*)", re.S
)
#: What a parameter runs over: "(k in Z)", "where n is any integer", "for all integers n".
_DOMAIN = re.compile(
    r"(?:[,;]|\\[,; ]|\\q?quad|\s)*(?:\\text\s*\{)?\s*[({]?\s*(?:(?:where|for|with)\b\s*\}?)?\s*"
    r"(?:(?:all|any|every|some)\b\s*)?(?:\}\s*)?"
    r"(?:integers?\s*\}?\s*(?P<name3>[kn])\b|\$?(?P<name>[a-z])\$?\s*(?:\\in\s*"
    r"(?:\\mathbb\s*\{?\s*(?P<set>[ZN])\s*\}?|(?P<set2>[ZN]))(?P<part>\s*[\^_]\s*\{?[*+]\}?)?"
    r"|\s*(?:\\text\s*\{)?\s*(?:is|be)\s+(?:an?\s+|any\s+)?integer\s*\}?))\s*[)}]*\s*$"
)
#: What restricts an answer, in brackets after it: "y = 2x (x > 0)", but "P(X > 0)".
_RESTRICTION = re.compile(
    r"(?<=\S)(?<![A-Z])(?<![A-Z]\})(?<!Pr)(?:\\[,; ]|\\q?quad(?![A-Za-z])|[\s,;])*(?:\\left)?\("
    r"(?:\s*(?:for|where|when|with)\b)?"
    r"([^()]*(?:[<>]|\\(?:[lg]e|[lg]eq|[lg]eqslant|neq?|[lg]t|in)(?![A-Za-z]))[^()]*?)(?:\\right)?\)$"
)
_PLACES = re.compile(r"\(\d{1,2}\)(?:(?:[\s,;]|and)*\(\d{1,2}\))+")
_OTHER_CASE = re.compile(r"\b(?:or|and|otherwise|else|not)\b")

_BASED = re.compile(
    r"\(?(?P<sign>-?)\(?(?P<digits>[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)\)?"
    r"(?:_\(?(?:base)?|\(?(?:in)?base-?)(?P<base>\d{1,2}|[a-z]+)\)?\)?"
)
_HAS_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2}|[^\x00-\x7f]")
_NUMERALS = re.compile(r"[\d.]+").fullmatch
#: Longest text that is looked at.
MAX_SPECIAL = 120


def read(text: str) -> Value:
    """Read an answer as it was written; what no grammar fits is ``Text``."""
    return read_cleaned(text if len(text) > MAX_LENGTH else clean(text))


def read_cleaned(cleaned: str, letter_units: bool = False) -> Value:
    """Read the result of ``clean``; with ``letter_units``, an m after a number is a unit."""
    if len(cleaned) > MAX_READ:
        return Text((cleaned,))
    value = _read_special(cleaned)
    if value is not None:
        return value
    if "in" in cleaned:
        cleaned = _DOMAIN.sub(_domain, cleaned)
    if cleaned.endswith(")"):
        cleaned = _RESTRICTION.sub(r" , \1", cleaned)
    left_out = reals_except(cleaned)
    if left_out is not None:
        cleaned = f"\\mathbb{{R}} \\setminus \\{{ {left_out} \\}}"
    value = _parsed(cleaned, letter_units)
    if value is None and len(cleaned) < MAX_LABELLED:
        label = _LABEL.fullmatch(plain_text(cleaned.replace("{,}", "")))
        value = _parsed(label[1].strip(), letter_units) if label else None
    return Text(plain_words(cleaned)) if value is None else value


def _parsed(text: str, letter_units: bool) -> Value | None:
    """Return what the grammar reads; None for an empty text and where it does not fit."""
    try:
        value = AnswerParser(tokenize(spell_relations(text)), letter_units).answer()
    except Unreadable:
        return None
    return components(value) if "\\basis" in text else value


def _read_special(text: str) -> Value | None:
    """Read what has a grammar of its own: times, dates, number bases, set phrases."""
    if len(text) > MAX_SPECIAL:
        return None
    known = phrase(plain_words(text)) if _HAS_WORD.search(text) else None
    if known is not None:
        return known
    if any(map(str.isalpha, text)) and MAY_BE_MOMENT.search(text):
        moment = read_moment(" ".join(_text_of_time(text).split()))
        if moment is not None:
            return moment
    if "_" in text or "base" in text:
        based = _BASED.fullmatch(re.sub(r"[\s,]|\\\\", "", plain_text(text)))
        if based is not None:
            return _based(based)
    return None


def _text_of_time(text: str) -> str:
    """Return ``text`` without the commands around words."""
    return re.sub(r"\\(?:text|mbox|mathrm|textbf|boxed|fbox)\s*\{|[{}]|\\[,;:! ]|~", " ", text)


def _based(match: re.Match[str]) -> Value | None:
    named = match["base"]
    base = int(named) if named.isdigit() else SMALL.get(named, 0)
    digits = match["digits"].upper()
    if not 2 <= base <= 36 or not any(c.isdigit() for c in digits):
        return None
    if any(int(c) >= base for c in digits if c.isdigit()) or (base < 11 and not _NUMERALS(digits)):
        return None
    return Based(match["sign"] + (digits.lstrip("0") or "0"), base)


def _domain(match: re.Match[str]) -> str:
    r"""Write a domain as ``, k \in \mathbb{Z}``."""
    numbers = match["set"] or match["set2"] or "Z"
    name = match["name"] or match["name3"]
    return f" , {name} \\in \\mathbb{{{numbers}}}{(match['part'] or '').strip()}"


def alternatives(cleaned: str, value: Value) -> tuple[Value, ...]:
    """Return ``value`` and what else its text may mean: "5:45" a time, "70,110" a list."""
    if isinstance(value, Ratio) and len(value.parts) in (2, 3):
        moment = read_moment(_text_of_time(cleaned))
        return (value,) if moment is None else (value, moment)
    if isinstance(value, Num):
        match = _LIST.fullmatch(cleaned)
        if match is not None:
            numbers = (Num(Fraction(int(part))) for part in match.group().split(","))
            return (value, Items("", tuple(numbers)))
    if cleaned[:1] == "(" and _PLACES.fullmatch(cleaned):
        numbers = (Num(Fraction(int(part))) for part in re.findall(r"\d+", cleaned))
        return (value, Items("", tuple(numbers)))
    if isinstance(value, Items) and value.brackets == "":
        whole = compound(value.items)
        return (value,) if whole is None else (value, whole)
    return (value, *_without_surroundings(cleaned))


def _without_surroundings(text: str) -> tuple[Value, ...]:
    """Read "(B) 5", "P(2,3)" and "5 when x = 2" without what names or restricts the value."""
    if len(text) > MAX_LABELLED:
        return ()
    aside = _ASIDE.fullmatch(text)
    if aside is not None:
        said = read(aside[1]), read(aside[2] or aside[3])
        return () if any(isinstance(part, Text) for part in said) else (Relation(said, ("=",)),)
    match = _CHOSEN.fullmatch(text) or _POINT.fullmatch(plain_text(text))
    if match is None:
        match = _CONDITION.fullmatch(text)
        if match is None or _OTHER_CASE.search(match[2]):
            return ()
    value = read(match[1])
    return () if isinstance(value, Text) else (value,)
