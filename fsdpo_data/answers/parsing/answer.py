"""An answer, read once: everything that comparing asks of a text, each worked out at most once."""

import re
from functools import cached_property, lru_cache

from fsdpo_data.answers.lexicon.numbers import make_decimal, read_number
from fsdpo_data.answers.parsing.clean import MAX_LENGTH, clean
from fsdpo_data.answers.parsing.prose import plain_text
from fsdpo_data.answers.parsing.read import LABEL, MAX_LABELLED, alternatives, read_cleaned
from fsdpo_data.answers.show import format_value
from fsdpo_data.answers.tree import Num, Quantity, Value

#: Longest text that is kept for the next time it is met, and how many are.
_MAX_KEPT, _KEPT = 400, 8_192
_DECIMAL_COMMA = re.compile(r"(-?)(\d+),(\d{1,2}|\d{4,15})")
_DROPPED = re.compile(r"(?<![A-Za-z0-9])\s|\s(?![A-Za-z0-9])|\\!|\\(?:left|right)(?![A-Za-z])")


class ParsedAnswer:
    """One bare answer; a gold is one, too."""

    def __init__(self, text: str) -> None:
        self.text = text
        #: The plain number, sum of money or percentage that the whole text is.
        self.number: Num | Quantity | None = read_number(text)

    @cached_property
    def cleaned(self) -> str:
        """The text in plain ASCII LaTeX; one that is too long to be taken up, as it is."""
        return self.text if len(self.text) > MAX_LENGTH else clean(self.text)

    @cached_property
    def plain(self) -> str:
        """The text without LaTeX wrappers, in single spaces."""
        return plain_text(self.cleaned)

    @cached_property
    def key(self) -> str:
        """A key that only equivalent answers share."""
        if len(self.text) > MAX_LENGTH:
            return self.text
        if isinstance(self.number, Num):
            value = self.number.value
            return f" {value.numerator:x}/{value.denominator:x}"  # no text begins with a space
        text = self.cleaned.replace("dfrac", "frac").replace("tfrac", "frac")
        return _DROPPED.sub("", " ".join(text.split()))

    @cached_property
    def value(self) -> Value:
        """What the answer is; ``Text`` if no grammar fits."""
        return read_cleaned(self.cleaned) if self.number is None else self.number

    @cached_property
    def with_letter_units(self) -> Value:
        """The answer with letters after numbers read as units: ``5m`` is five metres."""
        return read_cleaned(self.cleaned, letter_units=True)

    @cached_property
    def with_decimal_comma(self) -> Num | None:
        """The decimal that ``3,5`` is where a comma separates places, not values or thousands."""
        match = _DECIMAL_COMMA.fullmatch(self.cleaned)
        return make_decimal(match[2], match[3], sign=match[1]) if match else None

    @cached_property
    def alternatives(self) -> tuple[Value, ...]:
        """Its value, and what else the text may mean."""
        return alternatives(self.cleaned, self.value)

    @cached_property
    def label(self) -> tuple[str, ...]:
        """The words that name its value: "maximum" of "Maximum: 5"."""
        named = LABEL.fullmatch(self.plain) if len(self.plain) < MAX_LABELLED else None
        return tuple(self.plain[: named.start(1)].lower().rstrip(":= ").split()) if named else ()

    @cached_property
    def form(self) -> str:
        """Its normal form: how it was read."""
        return format_value(self.number if isinstance(self.number, Num) else self.value)


_read_short = lru_cache(_KEPT)(ParsedAnswer)


def read_answer(text: str) -> ParsedAnswer:
    """Return ``text`` as an answer; short ones are kept, because samples repeat their answers."""
    return ParsedAnswer(text) if len(text) > _MAX_KEPT else _read_short(text)
