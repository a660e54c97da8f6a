"""Number words: cardinals, ordinals, fractions, scales; and clock times and dates."""

import re
from collections.abc import Sequence
from fractions import Fraction

from fsdpo_data.answers.tree import DateOrTime
from fsdpo_data.core.toml_tables import compile_patterns, read_toml

_TABLE = read_toml(__file__)
_PATTERNS = compile_patterns(_TABLE["patterns"])
_TENS = {word: 10 * value for value, word in enumerate(_TABLE["tens"], 2)}
SMALL_NUMBERS = {word: value for value, word in enumerate(_TABLE["ones"])} | _TENS
SCALES: dict[str, int] = _TABLE["scales"]
ORDINALS = (
    {word: value for value, word in enumerate(_TABLE["ordinals"])}
    | {word[:-1] + "ieth": value for word, value in _TENS.items()}
    | {"hundredth": 100, "thousandth": 1000}
)
#: Denominators in words, singular.
DENOMINATORS = {word: value for word, value in ORDINALS.items() if value > 2} | {
    "half": 2, "halve": 2, "quarter": 4,
}  # fmt: skip
_ARTICLES = ("a", "an")


def is_number_word(word: str) -> bool:
    """Whether a number in words may begin with ``word``."""
    word = word.lower()
    return (
        word in SMALL_NUMBERS
        or (word in SCALES and not word.endswith("s"))
        or word in ("half", "quarter")
    )


def read_number_words(words: Sequence[str]) -> tuple[Fraction, int, bool] | None:
    """Read the longest number in words that ``words`` begin with.

    Returns:
        The value, how many words it took, and whether it is an ordinal; None if there is none.
    """
    value, used = _cardinal(words)
    if not used:
        return _without_cardinal(words)
    rest = words[used:]
    if (
        rest
        and (part := find_denominator(rest[0])) is not None
        and (value != 1 or rest[0] != "second")
    ):
        return Fraction(value, part), used + 1, False
    if len(rest) >= 2 and rest[0] == "and":
        fraction, taken = _fraction(rest[1:])
        if taken:
            return value + fraction, used + 1 + taken, False
    if rest and rest[0] in ORDINALS and value and value % 10 == 0:
        return Fraction(value + ORDINALS[rest[0]]), used + 1, True
    return Fraction(value), used, False


def _without_cardinal(words: Sequence[str]) -> tuple[Fraction, int, bool] | None:
    fraction, used = _fraction(words)
    if used:
        return fraction, used, False
    if words and words[0] in _ARTICLES and len(words) > 1 and words[1] in SCALES:
        value, used = _cardinal(("one", *words[1:]))
        return Fraction(value), used, False
    if words and words[0] in SCALES and not words[0].endswith("s"):
        value, used = _cardinal(("one", *words))
        return Fraction(value), used - 1, False
    if words and words[0] in ORDINALS:
        return Fraction(ORDINALS[words[0]]), 1, True
    return None


def _fraction(words: Sequence[str]) -> tuple[Fraction, int]:
    """Read ``a half``, ``half``, ``two thirds``; (0, 0) if there is none."""
    if not words:
        return Fraction(0), 0
    if words[0] in ("half", "quarter"):
        return Fraction(1, DENOMINATORS[words[0]]), 1
    if len(words) > 1 and (part := find_denominator(words[1])) is not None:
        if words[0] in _ARTICLES or words[0] == "one":
            return Fraction(1, part), 2
        if words[0] in SMALL_NUMBERS:
            return Fraction(SMALL_NUMBERS[words[0]], part), 2
    return Fraction(0), 0


def find_denominator(word: str) -> int | None:
    """Return the denominator that ``word`` names: 3 for "thirds"."""
    return DENOMINATORS.get(word) or (DENOMINATORS.get(word[:-1]) if word.endswith("s") else None)


def _cardinal(words: Sequence[str]) -> tuple[int, int]:
    """Read ``two hundred and five``; returns (value, words used)."""
    total, group, used = 0, 0, 0
    last: int | None = None
    for index, word in enumerate(words):
        size = SMALL_NUMBERS.get(word, -1)
        after_tens = last is not None and 20 <= last < 100 and 0 < size < 10
        if size >= 0 and (last is None or last >= 100 or after_tens):
            last = size
            group += last
        elif word in SCALES and last is not None:
            last = SCALES[word]
            if last in (12, 100):
                group *= last
            else:
                total, group = total + group * last, 0
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
#: Of these, a text that is a moment holds one.
DATE_OR_TIME_MARKERS = frozenset(_TABLE["of_moments"])


def read_date_or_time(text: str) -> DateOrTime | None:
    """Read a clock time that cannot be anything else, a date, or both."""
    text = text.strip().rstrip(".")
    if not 3 <= len(text) <= 60:
        return None
    date = _DATE.search(text)
    rest = text if date is None else (text[: date.start()] + " " + text[date.end() :])
    rest = re.sub(r"^[\s,]*(?:at|on)?\s+|[\s,]+(?:at|on)?\s*$|^\s*(?:at|on)\s+", "", rest).strip()
    if date is not None:
        rest = _PATTERNS["weekday"].sub("", rest + " ").strip()
    for words, half in _TABLE["halves"].items():
        rest = re.sub(words, half, rest)
    time = _PATTERNS["time"].fullmatch(rest) if rest else None
    if time is None and (rest or date is None):
        return None
    return _moment(time, date)


def find_dates(text: str) -> list[DateOrTime]:
    """Return all dates that ``text`` names."""
    found = (_moment(None, match) for match in _DATE.finditer(text[-1_000:]))
    return [moment for moment in found if moment is not None]


def _moment(time: re.Match[str] | None, date: re.Match[str] | None) -> DateOrTime | None:
    day = month = year = None
    if date is not None:
        day = int(date["day"] or date["day2"])
        month = _MONTHS[(date["month"] or date["month2"]).lower()]
        stated = date["year"] or date["year2"]
        year = int(stated) if stated else None
    if time is None:
        return DateOrTime(None, "", day, month, year)
    if time["name"]:
        noon = time["name"].lower() != "midnight"
        return DateOrTime(12 * 3600 if noon else 0, "24h", day, month, year)
    hour = int(time["h"] or time["h2"] or time["h3"])
    minute, second = int(time["m"] or time["m2"] or 0), int(time["s"] or time["s2"] or 0)
    half = (time["half"] or time["half3"] or "").lower()
    if hour > 24 or (half and hour > 12):
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    stated_half = f"{half}m" if half else "24h" if hour > 12 or hour == 0 else ""
    return DateOrTime(hour * 3600 + minute * 60 + second, stated_half, day, month, year)
