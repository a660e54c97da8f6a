"""Read an answer: its value, and what else it may mean. What no grammar fits is words."""

import re
from fractions import Fraction

from fsdpo_data.answers.lexicon.vocabulary import contains_any
from fsdpo_data.answers.lexicon.words import DATE_OR_TIME_MARKERS, SMALL_NUMBERS, read_date_or_time
from fsdpo_data.answers.parsing.clean import MAX_LENGTH, clean
from fsdpo_data.answers.parsing.lex import UnparsableAnswerError, tokenize
from fsdpo_data.answers.parsing.prose import (
    UNDETERMINED,
    phrase_value,
    plain_text,
    plain_words,
    reals_except,
    spell_relations,
)
from fsdpo_data.answers.parsing.quantities import combine_quantities
from fsdpo_data.answers.parsing.statements import AnswerParser, vector_components
from fsdpo_data.answers.tree import Num, NumberInBase, Ratio, Relation, Value, ValueList, Words
from fsdpo_data.core.toml_tables import compile_patterns, read_toml

#: Longest answer that is read; the longest gold of any benchmark has 250 characters.
MAX_READ = 2_500
#: Longest answer whose label is looked for.
MAX_LABELLED = 300
_PATTERNS = compile_patterns(read_toml(__file__)["patterns"])
LABEL = _PATTERNS["label"]

_NUMERALS = re.compile(r"[\d.]+").fullmatch
#: Longest text that is looked at.
MAX_SPECIAL = 120


def read(text: str) -> Value:
    """Read an answer as it was written; what no grammar fits is ``Text``."""
    return read_cleaned(text if len(text) > MAX_LENGTH else clean(text))


def read_cleaned(cleaned: str, letter_units: bool = False) -> Value:
    """Read the result of ``clean``; with ``letter_units``, an m after a number is a unit."""
    if len(cleaned) > MAX_READ:
        return Words((cleaned,))
    value = _read_special(cleaned)
    if value is not None:
        return value
    if "in" in cleaned:
        cleaned = _PATTERNS["domain"].sub(_domain, cleaned)
    if cleaned.endswith(")"):
        cleaned = _PATTERNS["restriction"].sub(r" , \1", cleaned)
    left_out = reals_except(cleaned)
    if left_out is not None:
        cleaned = f"\\mathbb{{R}} \\setminus \\{{ {left_out} \\}}"
    value = _parse(cleaned, letter_units)
    if value is None and len(cleaned) < MAX_LABELLED:
        label = LABEL.fullmatch(plain_text(cleaned.replace("{,}", "")))
        value = _parse(label[1].strip(), letter_units) if label else None
    return Words(plain_words(cleaned)) if value is None else value


def _parse(text: str, letter_units: bool) -> Value | None:
    """Return what the grammar reads; None for an empty text and where it does not fit."""
    try:
        value = AnswerParser(tokenize(spell_relations(text)), letter_units).parse_answer()
    except UnparsableAnswerError:
        return None
    return vector_components(value) if "\\basis" in text else value


def _read_special(text: str) -> Value | None:
    """Read what has a grammar of its own: times, dates, number bases, set phrases."""
    if len(text) > MAX_SPECIAL:
        return None
    known = phrase_value(plain_words(text)) if _PATTERNS["has_word"].search(text) else None
    if known is not None:
        return known
    if any(map(str.isalpha, text)) and contains_any(text, DATE_OR_TIME_MARKERS):
        moment = read_date_or_time(" ".join(_text_of_time(text).split()))
        if moment is not None:
            return moment
    if "_" in text or "base" in text:
        based = _PATTERNS["based"].fullmatch(re.sub(r"[\s,]|\\\\", "", plain_text(text)))
        if based is not None:
            return _parse_based_number(based)
    return None


def _text_of_time(text: str) -> str:
    """Return ``text`` without the commands around words."""
    return re.sub(r"\\(?:text|mbox|mathrm|textbf|boxed|fbox)\s*\{|[{}]|\\[,;:! ]|~", " ", text)


def _parse_based_number(match: re.Match[str]) -> Value | None:
    named = match["base"]
    base = int(named) if named.isdigit() else SMALL_NUMBERS.get(named, 0)
    digits = match["digits"].upper()
    if not 2 <= base <= 36 or not any(c.isdigit() for c in digits):
        return None
    if any(int(c) >= base for c in digits if c.isdigit()) or (base < 11 and not _NUMERALS(digits)):
        return None
    return NumberInBase(match["sign"] + (digits.lstrip("0") or "0"), base)


def _domain(match: re.Match[str]) -> str:
    r"""Write a domain as ``, k \in \mathbb{Z}``."""
    numbers = match["set"] or match["set2"] or "Z"
    name = match["name"] or match["name3"]
    return f" , {name} \\in \\mathbb{{{numbers}}}{(match['part'] or '').strip()}"


def alternatives(cleaned: str, value: Value) -> tuple[Value, ...]:
    """Return ``value`` and what else its text may mean: "5:45" a time, "70,110" a list."""
    if cleaned == "None":
        return (value, UNDETERMINED)  # no solution, or a question that cannot be answered
    if isinstance(value, Ratio) and len(value.parts) in (2, 3):
        moment = read_date_or_time(_text_of_time(cleaned))
        return (value,) if moment is None else (value, moment)
    if "(b)" in cleaned and (parts := _parts(cleaned)):
        return (value, parts)
    listed = isinstance(value, Num) and _PATTERNS["list"].fullmatch(cleaned)
    if listed or (cleaned[:1] == "(" and _PATTERNS["places"].fullmatch(cleaned)):
        numbers = (Num(Fraction(int(part))) for part in re.findall(r"\d+", cleaned))
        return (value, ValueList("", tuple(numbers)))
    if isinstance(value, ValueList) and value.brackets == "":
        whole = combine_quantities(value.items)
        return (value,) if whole is None else (value, whole)
    return (value, *_without_surroundings(cleaned))


def _parts(cleaned: str) -> ValueList | None:
    """Read "(a) 5 (b) 7" as the list of its parts."""
    before, *parts = _PATTERNS["part"].split(cleaned)
    values = tuple(map(read, parts[1::2]))
    if before or "".join(parts[::2]) not in "abcde" or any(isinstance(x, Words) for x in values):
        return None
    return ValueList("", values)


def _without_surroundings(text: str) -> tuple[Value, ...]:
    """Read "(B) 5", "P(2,3)" and "5 when x = 2" without what names or restricts the value."""
    if len(text) > MAX_LABELLED:
        return ()
    aside = _PATTERNS["aside"].fullmatch(text)
    if aside is not None:
        said = read(aside[1]), read(aside[2] or aside[3])
        return () if any(isinstance(part, Words) for part in said) else (Relation(said, ("=",)),)
    match = _PATTERNS["chosen"].fullmatch(text) or _PATTERNS["point"].fullmatch(plain_text(text))
    if match is None:
        match = _PATTERNS["condition"].fullmatch(text)
        if match is None or _PATTERNS["other_case"].search(match[2]):
            return ()
    value = read(match[1])
    return () if isinstance(value, Words) else (value,)
