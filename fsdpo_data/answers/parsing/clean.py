r"""Convert a model's text to plain ASCII LaTeX: signs, dollar signs, bold, final punctuation."""

import re
import unicodedata
from collections.abc import Callable
from itertools import accumulate

from fsdpo_data.answers.lexicon.languages import replace_numerals
from fsdpo_data.answers.lexicon.vocabulary import GREEK_LETTERS
from fsdpo_data.answers.tables import compile_patterns, read_module_table

#: Callers do not clean longer answers (characters). Two longer answers are equal only if their
#: texts are identical.
MAX_LENGTH = 10_000

_CLEANING_RULES = read_module_table(__file__)
_PATTERNS = compile_patterns(_CLEANING_RULES["patterns"])
#: Fractions of one character, with a plain slash. Unicode calls them vulgar fractions.
_VULGAR_FRACTIONS = {
    chr(code): unicodedata.normalize("NFKC", chr(code)).replace("\u2044", "/")
    for code in (0xBC, 0xBD, 0xBE, *range(0x2150, 0x215F), 0x2189)
}
#: Greek letters, with the names of their commands. Unicode spells lambda "lamda".
_GREEK = {
    unicodedata.lookup(f"GREEK {size} LETTER {name.upper().replace('LAMBDA', 'LAMDA')}"): name
    for name in (*GREEK_LETTERS, "pi")
    for size in ("CAPITAL" if name[0].isupper() else "SMALL",)
}
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱˣᵗ", "0123456789+-()nixt", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙₓᵢ", "0123456789+-()nxi", strict=True))
_ASCII_TABLE = str.maketrans(
    _CLEANING_RULES["signs"]
    | {letter: f"\\{name} " for letter, name in _GREEK.items()}
    | {sign: f" {fraction} " for sign, fraction in _VULGAR_FRACTIONS.items()}
)
_SUPERSCRIPT_RUN = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_SUBSCRIPT_RUN = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
_SCRIPT_FRACTION = re.compile(r"([⁰¹²³⁴⁵⁶⁷⁸⁹]{1,9})[⁄/∕]([₀₁₂₃₄₅₆₇₈₉]{1,9})")
_MIXED_NUMBER = re.compile(rf"(?<=\d)(?=[{''.join(_VULGAR_FRACTIONS)}])")
_CIRCLED_NUMBERS = {chr(0x2460 + index): str(index + 1) for index in range(20)}
_CIRCLED_RUN = re.compile(
    f"[{''.join(_CIRCLED_NUMBERS)}](?:[\\s,、;]*[{''.join(_CIRCLED_NUMBERS)}])*"
)
#: The prefix micro of a unit. A Greek mu with a space after it is a variable.
_MICRO_PREFIX = re.compile("[µμ](?=\\\\?[A-Za-z])|µ")
#: Chinese units, with their English symbols.
_UNIT_WORDS: dict[str, str] = _CLEANING_RULES["units"]
_UNIT_WORD = re.compile("|".join(_UNIT_WORDS))
_UNIT = re.compile(
    rf"(?:(?<=[\d}}$\s])|(?<=\\text{{)(?=(?:{_UNIT_WORD.pattern})+}}))"
    rf"(?:{_UNIT_WORD.pattern})+(?![\u4e00-\u9fff]{{2}})"
)
#: A counter after a number that is no unit: "9页".
_COUNTER = re.compile(
    r"^(?P<number>\s*-?[\d.,]+)\s*(?![万亿億萬折成半多余约或和到至元])[\u4e00-\u9fff]\s*$"
)
_ANY_DIGIT = re.compile(r"[^\x00-\x7f\D]")  #: A digit of another script, such as Arabic.
_EMOJI = re.compile("[\u2600-\u26ff\u2702-\u27bf\u2b50-\u2b55\U0001f300-\U0001faff]")
#: Letters of the escapes that JSON and Python read as control characters.
_ESCAPE_LETTERS = {"\a": "a", "\b": "b", "\t": "t", "\v": "v", "\f": "f", "\r": "r"}
_LOST_ESCAPE = re.compile(
    r"[\a\x08\v\f](?=[a-z])|\t(?=(?:imes|heta|riangle)(?![a-z])|(?:ext[a-z]*|frac)\s*\{)"
    r"|\r(?=(?:ight|angle|floor|ceil)(?![a-z]))"
)
_INVISIBLE = re.compile("[\u0000-\u0008\u000b-\u001f\u007f\u00ad\u200b-\u200f\u202a-\u202e"
                        "\u2060-\u206f\ufeff\ufe0e\ufe0f\ud800-\udfff]")  # fmt: skip
_BOLD = re.compile(r"(?<![\w)\]}])(\*\*|__)(\S(?:[^*_]{0,2000}\S)?)\1(?![\w(\[{])")
#: Patterns of LaTeX spellings, each with the spelling that the parser reads.
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in _CLEANING_RULES["rewrites"].items()
]
#: Patterns of markup, each with its replacement. The first two read numbers with points as
#: thousands separators: "1.234,5" becomes "1234.5", and "1.234.567" becomes "1234567".
_MARKUP_REWRITES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (
        re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+,\d+(?![\d,]|\.\d)"),
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
#: Pairs of delimiters that may enclose an answer.
_DELIMITER_PAIRS: list[list[str]] = _CLEANING_RULES["pairs"]
_OPENING_CHARACTERS = frozenset(left[0] for left, _ in _DELIMITER_PAIRS)


def restore_escapes(text: str) -> str:
    r"""Write the commands that JSON or Python read as escapes: a form feed and "rac" as ``\\frac``.

    Tabs and line breaks also occur in texts, so only known commands are restored after them.
    """
    return _LOST_ESCAPE.sub(lambda match: "\\" + _ESCAPE_LETTERS[match[0]], text)


def clean(text: str) -> str:
    """Return plain ASCII LaTeX, without delimiters, bold marks and final punctuation."""
    if not text.isascii():
        text = _to_ascii(text)
    if min(text, default=" ") < " ":  # a control character
        text = restore_escapes(text)
        text = _INVISIBLE.sub("", text)
    text = text.strip()
    if _PATTERNS["needs_rewrite"].search(text):
        for pattern, replacement in _REWRITES:
            text = pattern.sub(replacement, text)
    if _PATTERNS["has_markup"].search(text):
        for pattern, markup_replacement in _MARKUP_REWRITES:
            text = pattern.sub(markup_replacement, text)
    # "2i + 3j" is a vector, but a single "i" may be the imaginary unit. The parser reads the
    # command ``\\basis`` as a unit vector.
    if (
        "j" in text
        and (vectors := _PATTERNS["unit_vector"].findall(text))
        and ("j" in "".join(vectors[0]) or len(vectors) > 1)
    ):
        text = _PATTERNS["unit_vector"].sub(r"\\basis\1\2\3 ", text)
    if _PATTERNS["style_command"].match(text):
        text = _strip_style(text)
    if "only" in text[-8:]:
        text = _PATTERNS["only"].sub("", text)
    text = drop_bold_marks(text)
    if "$" in text:
        text = drop_dollar_signs(text)
    return strip_punctuation(text)


def drop_bold_marks(text: str) -> str:
    """Drop the marks of bold parts; "2**3" is a power."""
    return _BOLD.sub(r"\2", text) if "**" in text or "__" in text else text


def _strip_style(text: str) -> str:
    r"""Drop commands that style the complete answer: ``\color{blue}{…}``, ``\displaystyle``."""
    while style := _PATTERNS["style_command"].match(text):
        text = text[style.end() :].strip()
        depths = accumulate((char == "{") - (char == "}") for char in text)
        if text[:1] == "{" and 0 not in list(depths)[:-1]:
            text = text[1:-1].strip()
    return text


def _to_ascii(text: str) -> str:
    """Replace characters outside ASCII by LaTeX, as far as the tables know them."""
    text = _INVISIBLE.sub("", text)
    text = _CIRCLED_RUN.sub(
        lambda run: ", ".join(_CIRCLED_NUMBERS[c] for c in run[0] if c in _CIRCLED_NUMBERS), text
    )
    text = _MICRO_PREFIX.sub(r"\\micro ", text)
    text = _SCRIPT_FRACTION.sub(
        lambda match: f" {_to_digits(match[1])}/{_to_digits(match[2])} ", text
    )
    text = _MIXED_NUMBER.sub(" ", text)
    text = _SUPERSCRIPT_RUN.sub(
        lambda run: f"^{{{''.join(_SUPERSCRIPTS[c] for c in run[0])}}}", text
    )
    text = _SUBSCRIPT_RUN.sub(lambda run: f"_{{{''.join(_SUBSCRIPTS[c] for c in run[0])}}}", text)
    text = _UNIT.sub(
        lambda run: _UNIT_WORD.sub(lambda word: f" {_UNIT_WORDS[word[0]]} ", run[0]),
        replace_numerals(text),
    )
    text = _COUNTER.sub(r"\g<number>", text)
    text = _EMOJI.sub("", _ANY_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text))
    text = text.translate(_ASCII_TABLE)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_ASCII_TABLE)
    return text


def _to_digits(script: str) -> str:
    """Return superscript or subscript digits as plain digits."""
    return "".join(_SUPERSCRIPTS.get(c) or _SUBSCRIPTS[c] for c in script)


def strip_punctuation(text: str) -> str:
    """Drop punctuation after an answer and delimiters around it, for example quotation marks."""
    while True:
        previous_text = text
        text = text.strip()
        text = text if text.endswith("..") else text.rstrip(".,;:")
        # A single backslash at the end is the rest of a truncated command.
        if text.endswith("\\") and not text.endswith("\\\\"):
            text = text[:-1]
        for left, right in _DELIMITER_PAIRS if text[:1] in _OPENING_CHARACTERS else ():
            if text.startswith(left) and text.endswith(right) and len(text) > len(left + right):
                inner = text[len(left) : -len(right)]
                text = inner if left not in inner else text
        if text == previous_text:
            return text


def drop_dollar_signs(text: str) -> str:
    r"""Drop dollar signs that delimit maths; write dollar signs of money as ``\$``."""
    positions = [match.start() for match in _DOLLAR.finditer(text)]
    pieces: list[str] = []
    copied = 0  # All text before this position is in ``pieces``.
    index = 0
    while index < len(positions):
        start = positions[index]
        end = positions[index + 1] if index + 1 < len(positions) else None
        pieces.append(text[copied:start])
        copied = start + 1
        if end is not None and _is_maths(text[start + 1 : end]):
            pieces.append(" " + text[start + 1 : end] + " ")
            copied = end + 1
            index += 2
            continue
        if text[start + 1 : start + 2].strip(" -.0123456789") == "" and text[start + 1 : start + 2]:
            pieces.append("\\$")
        index += 1
    pieces.append(text[copied:])
    return "".join(pieces).strip()


def _is_maths(content: str) -> bool:
    """Whether the text between two dollar signs is maths, unlike "5 and " in "$5 and $10".

    Between two amounts of money, the text ends with a space and does not start with one.
    """
    starts_with_space = content[:1].isspace()
    # ``clean`` writes "36°" as "36^\\circ ", so a space after a command does not count.
    ends_with_space = content[-1:].isspace() and not _COMMAND_END.search(content)
    return starts_with_space or not ends_with_space
