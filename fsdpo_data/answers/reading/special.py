"""What has a grammar of its own: clock times, dates, number bases, phrases that mean a set."""

from __future__ import annotations

import re

from fsdpo_data.answers.lexicon.words import read_moment
from fsdpo_data.answers.reading.prose import phrase, plain_text, plain_words
from fsdpo_data.answers.tree import Based, Value

_BASE_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
               "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "sixteen": 16}  # fmt: skip
_BASED = re.compile(
    r"\(?(?P<sign>-?)\(?(?P<digits>[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)\)?"
    r"(?:_\(?(?:base)?|\(?(?:in)?base-?)(?P<base>\d{1,2}|[a-z]+)\)?\)?"
)
_NUMERALS = re.compile(r"[\d.]+").fullmatch
#: Longest text that is looked at.
MAX_SPECIAL = 120


def read_special(text: str) -> Value | None:
    """Read what has a grammar of its own: times, dates, number bases, set phrases."""
    if len(text) > MAX_SPECIAL:
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
