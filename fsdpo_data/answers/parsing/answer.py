"""An answer text and its readings, each computed at most once."""

import re
from functools import cached_property, lru_cache

from fsdpo_data.answers.lexicon.numbers import make_decimal, read_number
from fsdpo_data.answers.parsing.clean import MAX_LENGTH, clean
from fsdpo_data.answers.parsing.prose import plain_text
from fsdpo_data.answers.parsing.read import LABEL, MAX_LABELLED, alternatives, read_cleaned
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import Num, Quantity, Value

_MAX_CACHED_CHARS = 400  #: Maximum length of a text in the cache.
_CACHE_SIZE = 8_192  #: Maximum number of answers in the cache.
_DECIMAL_COMMA = re.compile(r"(-?)(\d+),(\d{1,2}|\d{4,15})")
_DROPPED = re.compile(r"(?<![A-Za-z0-9])\s|\s(?![A-Za-z0-9])|\\!|\\(?:left|right)(?![A-Za-z])")


class ParsedAnswer:
    """A gold answer, or an answer extracted from a response.

    Attributes:
        text: The text of the answer.
        number: The value if the text is a plain number, a sum of money or a percentage, else None.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.number: Num | Quantity | None = read_number(text)

    @cached_property
    def cleaned(self) -> str:
        """The text as plain ASCII LaTeX; a text over ``MAX_LENGTH`` is unchanged."""
        return self.text if len(self.text) > MAX_LENGTH else clean(self.text)

    @cached_property
    def plain(self) -> str:
        """The text without LaTeX wrappers, with single spaces."""
        return plain_text(self.cleaned)

    @cached_property
    def key(self) -> str:
        """A key for equality: two answers with the same key are equivalent."""
        if len(self.text) > MAX_LENGTH:
            return self.text
        if isinstance(self.number, Num):
            value = self.number.value
            return f" {value.numerator:x}/{value.denominator:x}"  # no text begins with a space
        text = self.cleaned.replace("dfrac", "frac").replace("tfrac", "frac")
        return _DROPPED.sub("", " ".join(text.split()))

    @cached_property
    def value(self) -> Value:
        """The value of the answer; ``Words`` if the text fits no grammar."""
        return read_cleaned(self.cleaned) if self.number is None else self.number

    @cached_property
    def with_letter_units(self) -> Value:
        """The value if letters after numbers are units: ``5m`` is five metres."""
        return read_cleaned(self.cleaned, letter_units=True)

    @cached_property
    def with_decimal_comma(self) -> Num | None:
        """The number if its comma is a decimal comma: ``3,5`` is 3.5. None for other texts."""
        match = _DECIMAL_COMMA.fullmatch(self.cleaned)
        return make_decimal(match[2], match[3], sign=match[1]) if match else None

    @cached_property
    def alternatives(self) -> tuple[Value, ...]:
        """The value, followed by other possible readings of the text."""
        return alternatives(self.cleaned, self.value)

    @cached_property
    def label(self) -> tuple[str, ...]:
        """The words before the value that name it: "maximum" in "Maximum: 5"."""
        match = LABEL.fullmatch(self.plain) if len(self.plain) < MAX_LABELLED else None
        if match is None:
            return ()
        return tuple(self.plain[: match.start(1)].lower().rstrip(":= ").split())

    @cached_property
    def form(self) -> str:
        """The parsed form of the value, as text."""
        return format_value(self.number if isinstance(self.number, Num) else self.value)


_read_short = lru_cache(_CACHE_SIZE)(ParsedAnswer)


def read_answer(text: str) -> ParsedAnswer:
    """Return a parsed answer; short answers are cached, because samples repeat them."""
    return ParsedAnswer(text) if len(text) > _MAX_CACHED_CHARS else _read_short(text)
