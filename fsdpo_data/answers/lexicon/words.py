"""Number words (cardinals, ordinals, fractions, scales), clock times and dates."""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from fsdpo_data.answers.tables import compile_patterns, read_module_table
from fsdpo_data.answers.tree import DateOrTime

_TABLE = read_module_table(__file__)
_PATTERNS = compile_patterns(_TABLE["patterns"])
_TENS = {word: 10 * value for value, word in enumerate(_TABLE["tens"], 2)}
SMALL_NUMBERS = {word: value for value, word in enumerate(_TABLE["ones"])} | _TENS
SCALES: dict[str, int] = _TABLE["scales"]
SHORT_SCALES: dict[str, int] = _TABLE["short_scales"]
CURRENCY_SCALES: dict[str, int] = _TABLE["currency_scales"]
ORDINALS = (
    {word: value for value, word in enumerate(_TABLE["ordinals"])}
    | {word[:-1] + "ieth": value for word, value in _TENS.items()}
    | {"hundredth": 100, "thousandth": 1000}
)
#: Denominators by their names in the singular.
DENOMINATORS = {word: value for word, value in ORDINALS.items() if value > 2} | {
    "half": 2, "halve": 2, "quarter": 4,
}  # fmt: skip
_ARTICLES = ("a", "an")


class NumberWords(NamedTuple):
    """A number in words at the start of a text."""

    value: Fraction  #: The value.
    word_count: int  #: The number of its words.
    is_ordinal: bool  #: Whether the number is an ordinal, e.g. "third".


def is_number_word(word: str) -> bool:
    """Whether ``word`` may begin a number in words."""
    word = word.lower()
    return (
        word in SMALL_NUMBERS
        or (word in SCALES and not word.endswith("s"))
        or word in ("half", "quarter")
    )


def read_number_words(words: Sequence[str]) -> NumberWords | None:
    """Read the longest number at the start of ``words``, or return None."""
    value, word_count = _read_cardinal(words)
    if not word_count:
        return _read_without_cardinal(words)
    next_words = words[word_count:]
    if not next_words:
        return NumberWords(Fraction(value), word_count, is_ordinal=False)
    denominator = find_denominator(next_words[0])
    if denominator is not None and (value != 1 or next_words[0] != "second"):
        return NumberWords(Fraction(value, denominator), word_count + 1, is_ordinal=False)
    if len(next_words) >= 2 and next_words[0] == "and":
        fraction, fraction_words = _read_fraction(next_words[1:])
        if fraction_words:
            total_words = word_count + 1 + fraction_words
            return NumberWords(value + fraction, total_words, is_ordinal=False)
    if next_words[0] in ORDINALS and value and value % 10 == 0:
        ordinal = Fraction(value + ORDINALS[next_words[0]])
        return NumberWords(ordinal, word_count + 1, is_ordinal=True)
    return NumberWords(Fraction(value), word_count, is_ordinal=False)


def _read_without_cardinal(words: Sequence[str]) -> NumberWords | None:
    """Read a fraction, a scale ("a hundred", "million") or an ordinal, or return None."""
    fraction, word_count = _read_fraction(words)
    if word_count:
        return NumberWords(fraction, word_count, is_ordinal=False)
    if words and words[0] in _ARTICLES and len(words) > 1 and words[1] in SCALES:
        value, word_count = _read_cardinal(("one", *words[1:]))
        return NumberWords(Fraction(value), word_count, is_ordinal=False)
    if words and words[0] in SCALES and not words[0].endswith("s"):
        value, word_count = _read_cardinal(("one", *words))
        return NumberWords(Fraction(value), word_count - 1, is_ordinal=False)
    if words and words[0] in ORDINALS:
        return NumberWords(Fraction(ORDINALS[words[0]]), 1, is_ordinal=True)
    return None


def _read_fraction(words: Sequence[str]) -> tuple[Fraction, int]:
    """Read ``a half``, ``half`` or ``two thirds``; return the value and the number of words.

    Both are 0 if the words do not begin with a fraction.
    """
    if not words:
        return Fraction(0), 0
    if words[0] in ("half", "quarter"):
        has_article = len(words) > 2 and words[1] in _ARTICLES  # "half a cup"
        return Fraction(1, DENOMINATORS[words[0]]), 1 + has_article
    if len(words) > 1 and (denominator := find_denominator(words[1])) is not None:
        if words[0] in _ARTICLES or words[0] == "one":
            return Fraction(1, denominator), 2
        if words[0] in SMALL_NUMBERS:
            return Fraction(SMALL_NUMBERS[words[0]], denominator), 2
    return Fraction(0), 0


def find_denominator(word: str) -> int | None:
    """Return the denominator with a name, 3 for "thirds", or None."""
    return DENOMINATORS.get(word) or (DENOMINATORS.get(word[:-1]) if word.endswith("s") else None)


def _read_cardinal(words: Sequence[str]) -> tuple[int, int]:
    """Read ``two hundred and five``; return the value and the number of words."""
    total = 0  # finished groups: thousands, millions
    group = 0  # the current group
    used = 0
    last: int | None = None
    for index, word in enumerate(words):
        size = SMALL_NUMBERS.get(word, -1)
        follows_tens = last is not None and 20 <= last < 100 and 0 < size < 10
        if size >= 0 and (last is None or last >= 100 or follows_tens):
            last = size
            group += last
        elif word in SCALES and last is not None:
            last = SCALES[word]
            if last in (12, 100):
                group *= last
            else:
                total += group * last
                group = 0
        elif word == "and" and last is not None and last >= 100 and index == used:
            continue
        else:
            break
        used = index + 1
    return total + group, used


_MONTHS = {
    name: number for number, names in enumerate(_TABLE["months"], 1) for name in names.split()
}
_MONTH = "|".join(_MONTHS)
_DATE = re.compile(_PATTERNS["date"].pattern.replace("MONTH", _MONTH))
#: Every date or time contains one of these strings.
DATE_OR_TIME_MARKERS = frozenset(_TABLE["date_or_time_markers"])


#: "at" or "on" at either end of the text around a date.
_CONNECTING_WORD = re.compile(r"^[\s,]*(?:at|on)?\s+|[\s,]+(?:at|on)?\s*$|^\s*(?:at|on)\s+")


def read_date_or_time(text: str) -> DateOrTime | None:
    """Parse an unambiguous clock time, a date, or both; None for any other text."""
    text = text.strip().rstrip(".")
    if not 3 <= len(text) <= 60:
        return None
    date = _DATE.search(text)
    time_text = text if date is None else (text[: date.start()] + " " + text[date.end() :])
    time_text = _CONNECTING_WORD.sub("", time_text).strip()
    if date is not None:
        time_text = _PATTERNS["weekday"].sub("", time_text + " ").strip()
    for phrase, replacement in _TABLE["time_phrases"].items():
        time_text = re.sub(phrase, replacement, time_text)
    time = _PATTERNS["time"].fullmatch(time_text) if time_text else None
    if time is None and (time_text or date is None):
        return None
    return _make_date_or_time(time, date)


def find_dates(text: str) -> list[DateOrTime]:
    """Return all dates in the last 1,000 characters of a text."""
    dates = (_make_date_or_time(None, match) for match in _DATE.finditer(text[-1_000:]))
    return [date for date in dates if date is not None]


def _make_date_or_time(time: re.Match[str] | None, date: re.Match[str] | None) -> DateOrTime | None:
    """Return the date and time of two matches, or None if the time does not exist."""
    day = month = year = None
    if date is not None:
        day = int(date["day"] or date["day2"])
        month = _MONTHS[(date["month"] or date["month2"]).lower()]
        year_text = date["year"] or date["year2"]
        year = int(year_text) if year_text else None
    if time is None:
        return DateOrTime(day=day, month=month, year=year)
    if time["name"]:
        is_noon = time["name"].lower() != "midnight"
        seconds = 12 * 3600 if is_noon else 0
        return DateOrTime(seconds=seconds, half_of_day="24h", day=day, month=month, year=year)
    hour = int(time["h"] or time["h2"] or time["h3"])
    minute = int(time["m"] or time["m2"] or 0)
    second = int(time["s"] or time["s2"] or 0)
    letter = (time["half"] or time["half3"] or "").lower()
    if hour > 24 or (letter and hour > 12):
        return None
    if letter:
        hour = hour % 12 + (12 if letter == "p" else 0)
        half_of_day = f"{letter}m"
    else:
        half_of_day = "24h" if hour > 12 or hour == 0 else ""
    return DateOrTime(
        seconds=hour * 3600 + minute * 60 + second,
        half_of_day=half_of_day,
        day=day,
        month=month,
        year=year,
    )
