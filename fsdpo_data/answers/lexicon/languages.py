"""Words of other languages than English, and Chinese, Japanese and Korean numerals."""

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path

from fsdpo_data.answers.lexicon.numbers import make_decimal
from fsdpo_data.answers.tables import read_module_table
from fsdpo_data.answers.tree import Num

#: Words by language and meaning.
LANGUAGES: dict[str, dict[str, list[str]]] = read_module_table(__file__)
_FIRST_UNSPACED = "\u3040"  #: From this character on, scripts write words without spaces.
_HUNDREDS = (*range(101), *range(200, 1001, 100))  #: The numbers of ``number_words.toml``.
_LATIN_ACCENT = re.compile("[\u0300-\u036f]")
_NOT_LETTER = re.compile(r"[\s\-'’]+")
#: A number before a word; a group of three decimals may also be thousands, so it is not read.
_SCALED_NUMBER = re.compile(
    r"(?P<sign>-?)(?P<whole>\d+)(?:[.,](?P<decimals>\d{1,2}))?\s*"
    r"(?P<word>[^\W\d_]+(?: [^\W\d_]+)?)\.?"
)
_MAX_NUMBER_CHARS = 60  #: Maximum length of a number in words.


def words_with_meaning(meaning: str) -> Iterator[str]:
    """Yield the words and phrases of all languages with a meaning, such as ``yes``."""
    for table in LANGUAGES.values():
        yield from table.get(meaning, ())


def answer_label_pattern() -> str:
    """Return the pattern of labels such as "Respuesta final:" and "Die Antwort ist"."""
    labels = []
    for table in LANGUAGES.values():
        words = "|".join(map(re.escape, sorted(table["answer"], key=len, reverse=True)))
        is_spaced = table["answer"][0] < _FIRST_UNSPACED
        start = r"(?<![^\W\d_])" if is_spaced else ""
        space = r"(?=[\s:：])" if is_spaced else ""
        verbs = "|".join(map(re.escape, table.get("is", ())))
        # One more word may stand before a colon: "Respuesta final:", "Respuesta correcta:".
        ends = [r"(?:\s+[^\W\d_]+)?\**\s*[:：]"]
        if verbs:
            ends.append(rf"(?:\s+fin[^\W\d_]+)?\**\s*(?:{verbs}){space}\s*[:：]?")
        labels.append(f"{start}(?:{words})(?:{'|'.join(ends)})")
    return f"(?i)(?:{'|'.join(labels)})"


#: The words of answer labels without their first letter, which may be a capital, and the number
#: of letters left out. A word of one letter is kept.
LABEL_ENDINGS = tuple(
    {(word[1:] or word, min(len(word) - 1, 1)): None for word in words_with_meaning("answer")}
)
ASCII_LABEL_ENDINGS = tuple(entry for entry in LABEL_ENDINGS if entry[0].isascii())


#: Phrases that change the number after or before them: "не менее" in "не менее 12".
_BEFORE_NUMBER, _AFTER_NUMBER = (
    tuple(sorted(map(str.lower, words_with_meaning(meaning)), key=len, reverse=True))
    for meaning in ("before_number", "after_number")
)
#: A number in digits, with its separators.
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_FORMULA_SIGNS = " \t\n*$\\(){}"  #: Signs between a phrase and the number of a formula.


def find_guard(text: str, number: str) -> str:
    """Return the foreign phrase that denies, bounds or changes a number of a text, or "".

    English phrases are not searched.
    """
    for match in NUMBER.finditer(text):
        if match[0] != number:
            continue
        text_before = text[: match.start()].rstrip(_FORMULA_SIGNS).lower()
        text_after = text[match.end() :].lstrip(_FORMULA_SIGNS).lower()
        for phrase in _BEFORE_NUMBER:
            if text_before.endswith(phrase) and _is_separate(
                phrase, text_before[: -len(phrase)][-1:]
            ):
                return phrase
        # One classifier may stand before the phrase: "12個以上".
        start = 1 if text_after[:1] in _COUNTERS else 0
        for phrase in _AFTER_NUMBER:
            for position in {0, start}:
                end = position + len(phrase)
                if text_after.startswith(phrase, position) and _is_separate(
                    phrase, text_after[end : end + 1]
                ):
                    return phrase
    return ""


def _is_separate(phrase: str, neighbour: str) -> bool:
    """Whether no letter next to a phrase makes it a part of a word; some scripts have no spaces."""
    return phrase[0] >= _FIRST_UNSPACED or not neighbour.isalpha()


def read_number_word(text: str) -> int | None:
    """Return the number that a text spells in a language other than English, or None."""
    if len(text) > _MAX_NUMBER_CHARS or any(map(str.isdigit, text)):
        return None
    return _number_words().get(_letters(text))


def read_scaled_number(text: str) -> Num | None:
    """Return "4,2 Milliarden" or "5 млн" as a number; None for other texts."""
    match = _SCALED_NUMBER.fullmatch(text) if len(text) <= _MAX_NUMBER_CHARS else None
    power = _scale_powers().get(_letters(match["word"])) if match else None
    if match is None or power is None:
        return None
    return make_decimal(match["whole"], match["decimals"] or "", power, match["sign"])


@cache
def _scale_powers() -> dict[str, int]:
    """Return the powers of ten that words such as "Milliarden" mean."""
    return {
        _letters(word): power
        for meaning, power in (("thousand", 3), ("million", 6), ("billion", 9))
        for word in words_with_meaning(meaning)
    }


@cache
def _number_words() -> dict[str, int]:
    """Return the numbers from 0 to 100 and the hundreds up to 1000, by their words."""
    numbers: dict[str, int] = {}
    for row in read_module_table(Path(__file__).with_name("number_words")).values():
        for number, forms in zip(_HUNDREDS, row.split(","), strict=True):
            for form in forms.split("|"):
                numbers.setdefault(_letters(form), number)
    del numbers[""]  # numbers without a form
    return numbers


def _letters(text: str) -> str:
    """Return a text in lower case without spaces, hyphens and Latin accents."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return _NOT_LETTER.sub("", _LATIN_ACCENT.sub("", decomposed))


_HAN = "〇一二三四五六七八九零两兩十百千万萬亿億兆"
_HANGUL = "영일이삼사오육칠팔구십백천만억조"
_SCALE_VALUES = (10, 100, 1_000, 10**4, 10**8, 10**12)
_NUMERALS = dict(zip(_HANGUL, (*range(10), *_SCALE_VALUES), strict=True)) | {
    **dict(zip("〇一二三四五六七八九", range(10), strict=True)),
    **dict(zip("零两兩萬億", (0, 2, 2, 10**4, 10**8), strict=True)),
    **dict(zip("十百千万亿兆", _SCALE_VALUES, strict=True)),
}
_SCALES = "".join(char for char, value in _NUMERALS.items() if value >= 10)
_PART = re.compile(rf"\d[\d,.]*|[{''.join(_NUMERALS)}]")
#: Digits before a numeral, "2万5千". A thousand of a unit is a prefix: "3千米" are kilometres.
_MIXED = (
    rf"(?<![\d.,])\d[\d,.]*\s*(?:[万萬亿億兆만억조]|[千百천백](?![米克瓦焦帕卡赫升分]))"
    rf"(?:\s?\d[\d,.]*[{_SCALES}]|[{''.join(_NUMERALS)}])*"
)
_MIXED_NUMBER = re.compile(_MIXED)
#: Classifiers after a number; currencies stay as units.
_COUNTERS = "个個只隻页頁人名本张張条條块塊件次天年岁歳歲位颗顆棵辆輛台支头頭匹枚冊册羽回"
_WHOLE_NUMBER = re.compile(
    rf"\s*(?P<minus>[-−负負]?)(?P<number>[{_HAN}]+|[{_HANGUL}]{{2,}})"
    rf"(?:[{_COUNTERS}]|(?P<unit>[元円圓]))?\s*[。.]?\s*"
)
_FRACTION = re.compile(rf"\s*(?P<bottom>[{_HAN}\d]+)分之(?P<top>[{_HAN}\d.]+)\s*[。.]?\s*")


def replace_numerals(text: str) -> str:
    """Write Chinese, Japanese and Korean numerals as digits: "2万5千" becomes 25000.

    Numerals without digits are read only if they are the complete text, because they are also
    parts of words.
    """
    if (match := _WHOLE_NUMBER.fullmatch(text)) is not None:
        is_scale = len(match["number"]) == 1 and match["number"] in "百千"
        number = None if is_scale else read_numeral(match["number"])
        if number is not None:
            sign = "-" if match["minus"] else ""
            return f"{sign}{_format(number)}{match['unit'] or ''}"
    if "分之" in text and (fraction := _FRACTION.fullmatch(text)) is not None:
        top, bottom = (read_numeral(fraction[name]) for name in ("top", "bottom"))
        if top is not None and bottom:
            return f"{_format(top)}\\%" if bottom == 100 else f"{_format(top)}/{_format(bottom)}"
    return _MIXED_NUMBER.sub(_replace_mixed, text)


def _replace_mixed(match: re.Match[str]) -> str:
    number = read_numeral(match[0])
    return match[0] if number is None else _format(number)


def _format(number: Fraction) -> str:
    """Return a number with finitely many decimals as text."""
    return str(number.numerator) if number.denominator == 1 else str(float(number))


def read_numeral(text: str) -> Fraction | None:
    """Return the value of "三十二", "二〇二四" or "2万5千"; None if it is ambiguous.

    "一百五" is ambiguous: 150 in Chinese, 105 in Japanese. A power of ten thousand alone is not a
    number.
    """
    finished = Fraction(0)  # the groups of ten thousands
    group = Fraction(0)
    digits = ""
    previous = 0
    for part in _PART.findall(text):
        value = _NUMERALS.get(part)
        if value is None or value < 10:
            digits += part.replace(",", "").rstrip(".") if value is None else str(value)
        elif value < 10**4:
            group += Fraction(digits or 1) * value
            digits = ""
        else:
            group += Fraction(digits or 0)
            digits = ""
            if group == 0 and finished == 0:
                return None
            is_product = finished != 0 and previous >= 10**4 and group == 0
            finished = finished * value if is_product else finished + group * value
            group = Fraction(0)
        ends_on_scale = value is not None and value >= 10
        if digits and not ends_on_scale and previous >= 100 and part == text[-1:]:
            return None
        previous = value or 0
    return finished + group + Fraction(digits or 0)
