r"""Text as it comes from models, made plain ASCII LaTeX: signs, dollar signs, bold, full stops."""

import re
import unicodedata
from collections.abc import Callable
from itertools import accumulate

from fsdpo_data.core.toml_tables import compile_patterns, read_toml

#: Longest answer that is taken up at all; longer ones agree only if they are the same text.
MAX_LENGTH = 10_000

_CLEANING_RULES = read_toml(__file__)
_PATTERNS = compile_patterns(_CLEANING_RULES["patterns"])
_VULGAR: dict[str, str] = _CLEANING_RULES["vulgar"]
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱˣᵗ", "0123456789+-()nixt", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙₓᵢ", "0123456789+-()nxi", strict=True))
_TABLE = str.maketrans(
    _CLEANING_RULES["signs"]
    | {letter: f"\\{name} " for letter, name in _CLEANING_RULES["greek"].items()}
    | {sign: f" {fraction} " for sign, fraction in _VULGAR.items()}
)
_RAISED_RUN = re.compile(f"[{''.join(_RAISED)}]+")
_LOWERED_RUN = re.compile(f"[{''.join(_LOWERED)}]+")
_RAISED_FRACTION = re.compile(r"([⁰¹²³⁴⁵⁶⁷⁸⁹]{1,9})[⁄/∕]([₀₁₂₃₄₅₆₇₈₉]{1,9})")
_MIXED = re.compile(rf"(?<=\d)(?=[{''.join(_VULGAR)}])")
_CIRCLED = {chr(0x2460 + at): str(at + 1) for at in range(20)}
_CIRCLED_RUN = re.compile(f"[{''.join(_CIRCLED)}](?:[\\s,、;]*[{''.join(_CIRCLED)}])*")
#: A prefix of a unit, not the letter: the letter stands apart from what it multiplies.
_MICRO = re.compile("[µμ](?=\\\\?[A-Za-z])|µ")
_UNIT_WORDS: dict[str, str] = _CLEANING_RULES["units"]
_UNIT_WORD = re.compile("|".join(_UNIT_WORDS))
_UNIT = re.compile(rf"(?<=[\d}}$\s])(?:{_UNIT_WORD.pattern})+(?![\u4e00-\u9fff]{{2}})")
_INVISIBLE = re.compile("[\u0000-\u0008\u000b-\u001f\u007f\u00ad\u200b-\u200f\u202a-\u202e"
                        "\u2060-\u206f\ufeff\ufe0e\ufe0f\ud800-\udfff]")  # fmt: skip
_BOLD = re.compile(r"(?<![\w)\]}])(\*\*|__)(\S(?:[^*_]{0,2000}\S)?)\1(?![\w(\[{])")
_REWRITES = [(re.compile(pattern), plain) for pattern, plain in _CLEANING_RULES["rewrites"].items()]
#: Patterns with what they are replaced by: marks of markup, numbers with points and commas.
_MARKUP: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (
        re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+,\d+(?![\d,])"),
        lambda number: number[0].replace(".", "").replace(",", "."),
    ),
    (
        re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3}){2,}(?![\d.,])"),
        lambda number: number[0].replace(".", ""),
    ),
    *((re.compile(pattern), plain) for pattern, plain in _CLEANING_RULES["markup"].items()),
)
_COMMAND_END = re.compile(r"\\[A-Za-z]+ $")
_DOLLAR = re.compile(r"(?<!\\)\$")


def clean(text: str) -> str:
    """Return ``text`` in plain ASCII LaTeX, without delimiters, bold marks and the full stop."""
    if not text.isascii():
        text = _to_ascii(text)
    if "\x00" <= min(text, default=" ") < " ":
        text = _INVISIBLE.sub("", text)
    text = text.strip()
    if _PATTERNS["rewritten"].search(text):
        for pattern, plain in _REWRITES:
            text = pattern.sub(plain, text)
    if _PATTERNS["marked_up"].search(text):
        for pattern, written in _MARKUP:
            text = pattern.sub(written, text)
    if (
        "j" in text
        and (vectors := _PATTERNS["unit_vector"].findall(text))
        and ("j" in "".join(vectors[0]) or len(vectors) > 1)
    ):
        text = _PATTERNS["unit_vector"].sub(r"\\basis\1\2\3 ", text)
    if _PATTERNS["styled"].match(text):
        text = _without_style(text)
    if "**" in text or "__" in text:
        text = _BOLD.sub(r"\2", text)
    if "$" in text:
        text = drop_dollar_signs(text)
    return strip_punctuation(text)


def _without_style(text: str) -> str:
    r"""Drop what only styles all of the answer: ``\color{blue}{…}``, ``\displaystyle``."""
    while style := _PATTERNS["styled"].match(text):
        text = text[style.end() :].strip()
        depths = accumulate((char == "{") - (char == "}") for char in text)
        if text[:1] == "{" and 0 not in list(depths)[:-1]:
            text = text[1:-1].strip()
    return text


def _to_ascii(text: str) -> str:
    text = _INVISIBLE.sub("", text)
    text = _CIRCLED_RUN.sub(
        lambda run: ", ".join(_CIRCLED[c] for c in run[0] if c in _CIRCLED), text
    )
    text = _MICRO.sub(r"\\micro ", text)
    text = _RAISED_FRACTION.sub(lambda m: f" {_plain(m[1])}/{_plain(m[2])} ", text)
    text = _MIXED.sub(" ", text)
    text = _RAISED_RUN.sub(lambda m: f"^{{{''.join(_RAISED[c] for c in m[0])}}}", text)
    text = _LOWERED_RUN.sub(lambda m: f"_{{{''.join(_LOWERED[c] for c in m[0])}}}", text)
    text = _UNIT.sub(
        lambda run: _UNIT_WORD.sub(lambda word: f" {_UNIT_WORDS[word[0]]} ", run[0]), text
    ).translate(_TABLE)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_TABLE)
    return text


def _plain(digits: str) -> str:
    return "".join(_RAISED.get(c) or _LOWERED[c] for c in digits)


_PAIRS: list[list[str]] = _CLEANING_RULES["pairs"]
_OPENING = frozenset(left[0] for left, _ in _PAIRS)


def strip_punctuation(text: str) -> str:
    """Drop punctuation after the answer and marks around it."""
    while True:
        before = text
        text = text.strip()
        text = text if text.endswith("..") else text.rstrip(".,;:")
        if text.endswith("\\") and not text.endswith("\\\\"):
            text = text[:-1]
        for left, right in _PAIRS if text[:1] in _OPENING else ():
            if text.startswith(left) and text.endswith(right) and len(text) > len(left + right):
                inner = text[len(left) : -len(right)]
                text = inner if left not in inner else text
        if text == before:
            return text


def drop_dollar_signs(text: str) -> str:
    r"""Drop the dollar signs that delimit maths; write ``\$`` for those that are money."""
    marks = [match.start() for match in _DOLLAR.finditer(text)]
    out: list[str] = []
    last, index = 0, 0
    while index < len(marks):
        at = marks[index]
        end = marks[index + 1] if index + 1 < len(marks) else None
        out.append(text[last:at])
        last = at + 1
        if end is not None and _is_maths(text[at + 1 : end]):
            out.append(" " + text[at + 1 : end] + " ")
            last = end + 1
            index += 2
            continue
        if text[at + 1 : at + 2].strip(" -.0123456789") == "" and text[at + 1 : at + 2]:
            out.append("\\$")
        index += 1
    out.append(text[last:])
    return "".join(out).strip()


def _is_maths(inside: str) -> bool:
    """Whether text between two dollar signs is maths, not "5 and " of "$5 and $10"."""
    opens, closes = inside[:1].isspace(), inside[-1:].isspace()
    closes = closes and not _COMMAND_END.search(inside)  # "36°" is written "36^\\circ "
    return inside == "" or inside.isspace() or opens == closes or opens
