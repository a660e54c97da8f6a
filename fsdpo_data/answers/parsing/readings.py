r"""Readings of an answer: the values that it may state in addition to the value of its whole text.

Each step is a small function that keeps a part of a text and drops the rest. Steps are ranked: an
earlier one needs less goodwill. A reading whose dropped text denies, hedges or bounds the part that
it keeps is guarded, and never makes two answers equal.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fsdpo_data.answers.lexicon.units import find_unit
from fsdpo_data.answers.lexicon.vocabulary import is_language_word, word_set
from fsdpo_data.answers.lexicon.words import is_number_word
from fsdpo_data.answers.parsing.prose import normalize_words, plain_words, unwrap_text
from fsdpo_data.answers.tables import compile_patterns, read_module_table

_TABLE = read_module_table(__file__)
_PATTERNS = compile_patterns(_TABLE["patterns"])
_DENIALS = word_set(_TABLE["denials"])
_BOUND_WORDS = word_set(_TABLE["bounds"])
_NUMBER_PROPERTIES = word_set(_TABLE["number_properties"])
_NUMBER_KINDS = word_set(_TABLE["number_kinds"])
_AMOUNTS = word_set(_TABLE["amounts"])
_JOINING_WORDS = word_set(_TABLE["joining"])
_WORD = re.compile(r"[A-Za-z]+(?:['’]t)?")
#: Sign that takes the place of the part that a step keeps.
_GAP = "…"
_WORD_OR_GAP = re.compile(rf"{_WORD.pattern}|{_GAP}")
#: Words between formulas; products of letters and commands do not match.
_WORDS = re.compile(r"((?<![\\A-Za-z^_])(?!(?:and|or|[IVX]+)\b)[A-Za-z]{2,}(?![A-Za-z^_={(]))")
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
#: Sign that takes the place of a formula between words.
FORMULA_SIGN = "#"
MAX_TEXT_CHARS = 400  #: A longer answer is read only as a whole.
MAX_ISLANDS = 12  #: Most formulas of a text that are read.
_MAX_UNIT_WORDS = 2  #: Most words of a unit after a formula.


class Reading(NamedTuple):
    """A part of an answer that may be the answer."""

    text: str  #: The part.
    step: str  #: Name of the step that kept it.
    dropped: str  #: The rest of the answer.
    is_in_circumstances: bool = False  #: Whether the dropped text begins with circumstances.

    @property
    def is_denied(self) -> bool:
        """Whether the rest of the answer denies the part, or offers it as one of several."""
        return is_denied(self.dropped)

    @property
    def quantified_names(self) -> frozenset[str]:
        """The names in dropped text such as "for all real x"; empty if it says anything else."""
        match = _PATTERNS["quantifier"].fullmatch(self.dropped)
        return frozenset(re.findall(r"\b[A-Za-z]\b", match["names"])) if match else frozenset()

    @property
    def is_guarded(self) -> bool:
        """Whether the rest of the answer bounds or changes the part."""
        # "an eight-digit number" counts digits, not the value.
        words = _lower_words(_PATTERNS["compound_word"].sub(" ", self.dropped))
        if self.is_in_circumstances:
            words = words[1:]  # "if x = 2, y = 5" says when the answer holds
        is_bound = any(word in _BOUND_WORDS or is_number_word(word) for word in words)
        is_bound = is_bound or is_narrowed(self.text, self.dropped)
        if self.step == "island":
            is_bound = is_bound or _PATTERNS["operation"].search(self.dropped) is not None
        if self.step == "parts":
            is_bound = is_bound or not _JOINING_WORDS.isdisjoint(words)
        return is_bound or (self.step == "qualifier" and _has_another_value(self.dropped))


def is_denied(text: str) -> bool:
    """Whether words of a text deny or hedge the value next to it."""
    words = _lower_words(_PATTERNS["sole_value"].sub(" ", text))
    return any(word in _DENIALS or word.endswith(("'t", "’t")) for word in words)


def is_narrowed(statement: str, text: str) -> bool:
    """Whether a text restricts the numbers of a statement: "odd" or "integers" for ``x > 2``."""
    words = set(_lower_words(text))
    if _PATTERNS["inequality"].search(statement):
        if not words.isdisjoint(_NUMBER_PROPERTIES | _AMOUNTS):
            return True
        # The letters k, m and n are whole numbers without a word.
        has_kind = not words.isdisjoint(_NUMBER_KINDS) or _PATTERNS["number_set"].search(text)
        return bool(has_kind) and not _PATTERNS["whole_number"].search(statement)
    is_formula = _PATTERNS["formula_of_name"].search(statement) is not None
    return is_formula and not words.isdisjoint(_NUMBER_PROPERTIES)


def _lower_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return [word.lower() for word in _WORD.findall(text)]


def _has_another_value(qualifier: str) -> bool:
    """Whether a qualifier states another value: "if n is even, 0 if odd", "with remainder 2"."""
    has_number = any(map(str.isdigit, qualifier))
    return len(_PATTERNS["case"].findall(qualifier)) > 1 or (
        has_number and not _PATTERNS["relation"].search(qualifier)
    )


#: A step returns the kept and the dropped part of a text, or nothing.
Step = Callable[[str], tuple[str, str] | None]


def split_words_and_formulas(text: str) -> tuple[list[str], list[str]]:
    """Return the words of a text with a sign for each formula, and the formulas."""
    parts = _WORDS.split(_TEXT_COMMAND.sub(r" \1 ", text))
    # re.split with one group returns the text between the words at even positions.
    texts = [part.strip(" ,;.:") for part in parts[::2]]
    parts[::2] = [FORMULA_SIGN if formula else "" for formula in texts]
    return parts, [formula for formula in texts if formula]


def split_outside_brackets(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split a text at the matches of a pattern outside brackets and braces."""
    parts: list[str] = []
    depth = 0
    start = 0
    position = 0
    while position < len(text):
        char = text[position]
        depth = max(depth + (char in "([{") - (char in ")]}"), 0)
        match = separator.match(text, position) if not depth else None
        if match and match.end() > position:
            parts.append(text[start:position])
            start = position = match.end()
        else:
            position += 1
    return [*parts, text[start:]]


def _keep_last_side(text: str) -> tuple[str, str] | None:
    """Keep the last side of a chain of equalities, in one line or in an aligned block."""
    lines = _PATTERNS["line_break"].split(_PATTERNS["alignment"].sub(" ", text))
    last_line = next((line for line in reversed(lines) if line.strip()), "")
    sides = split_outside_brackets(last_line, _PATTERNS["equality"])
    return (sides[-1], " = ".join(sides[:-1])) if len(sides) > 1 else None


def _cut_label(text: str) -> tuple[str, str] | None:
    """Cut the words before a value: "radius: 1", "the ratio of 5"."""
    label = _PATTERNS["label"].match(text)
    return (text[label.end() :], label[0]) if label else None


def _cut_circumstances(text: str) -> tuple[str, str] | None:
    """Cut the words before a statement: "when y = 3, x = 600", "after 5 days, 8 are left"."""
    leading = _PATTERNS["leading_qualifier"].match(text)
    return (text[leading.end() :], leading[0]) if leading else None


def _keep_conclusion(text: str) -> tuple[str, str] | None:
    """Keep what follows the only verb of a sentence: "the largest prime below 10 is 7"."""
    match = _PATTERNS["conclusion"].match(text)
    if match is None or _PATTERNS["verb"].search(text, match.end()):
        return None
    return text[match.end() :], match[0]


def _cut_qualifier(text: str) -> tuple[str, str] | None:
    """Cut the words after a value: "5 for all x"."""
    qualifier = _PATTERNS["qualifier"].search(text)
    if qualifier is None or not text[: qualifier.start()].strip():
        return None
    return text[: qualifier.start()], text[qualifier.start() :]


def _keep_island(text: str) -> tuple[str, str] | None:
    """Keep the only formula of a sentence, with its unit."""
    islands = find_islands(text)
    if len(islands) != 1 or islands[0] == text:
        return None
    words = _WORD_OR_GAP.findall(text.replace(islands[0], f" {_GAP} ", 1))
    return islands[0], " ".join(words)


def _keep_parts(text: str) -> tuple[str, str] | None:
    """Keep the values of labelled parts as a list: "A(1, 2), B(3, 4)", "P(2, 3)"."""
    parts = [part for part in _PATTERNS["part_label"].split(text) if part.strip(" ,;.")]
    if _PATTERNS["part_label"].match(text) and (len(parts) > 1 or text.endswith(")")):
        return " , ".join(part.strip(" ,;.") for part in parts), ""
    islands = find_islands(text)
    if not 1 < len(islands) <= MAX_ISLANDS:
        return None
    dropped = text
    for island in islands:
        dropped = dropped.replace(island, " ", 1)
    return " , ".join(islands), dropped


#: The steps in the order of their ranks.
_STEPS: dict[str, Step] = {
    "last-side": _keep_last_side,
    "label": _cut_label,
    "conclusion": _keep_conclusion,
    "island": _keep_island,
    "parts": _keep_parts,
}
_LABEL_STEPS = frozenset(("label", "conclusion"))  #: Only one of these steps is applied.
#: Patterns of the text between two forms of one answer, by their ranks.
_FORM_SEPARATORS = ("colon", "semicolon", "or")
#: Steps after which the kept part may be shortened by another step.
_OUTER_STEPS = frozenset(("last-side", "label", "conclusion"))


def propose_readings(cleaned: str, *, is_read: bool) -> Iterator[Reading]:
    """Yield the readings of a cleaned text, the best-ranked one first.

    Args:
        cleaned: The text.
        is_read: Whether the complete text has a value. Then only a qualifier may be dropped.
    """
    if len(cleaned) > MAX_TEXT_CHARS:
        return
    if is_read and not _PATTERNS["word"].search(cleaned):
        return
    text = unwrap_text(cleaned)
    step_name = "unwrapped"
    dropped = ""
    if circumstances := _cut_circumstances(text):
        text = circumstances[0].strip(" ,;.")
        dropped = circumstances[1]
        step_name = "circumstances"
    elif qualified := _cut_qualifier(text):
        text = qualified[0].strip(" ,;.")
        dropped = qualified[1]
        step_name = "qualifier"
    elif is_read:
        return
    has_circumstances = step_name == "circumstances"
    if text != cleaned:
        yield Reading(text, step_name, dropped, has_circumstances)
    if is_read:
        return
    seen = {text}
    for name, step in _STEPS.items():
        for reading in _apply_step(step, name, text, dropped):
            if reading.text not in seen:
                seen.add(reading.text)
                yield reading._replace(is_in_circumstances=has_circumstances)


def _apply_step(step: Step, name: str, text: str, dropped: str) -> Iterator[Reading]:
    """Yield the reading of one step, and the readings of other steps on the part that it keeps."""
    outer = step(text)
    if outer is None:
        return
    part = outer[0].strip(" ,;.")
    dropped = f"{dropped} {outer[1]}"
    yield Reading(part, name, dropped)
    if name in _OUTER_STEPS:
        for inner_name, inner_step in _STEPS.items():
            # In "the sum is 5 and the product is 6", only one label is before the value.
            is_excluded = inner_name == name or {name, inner_name} <= _LABEL_STEPS
            inner = None if is_excluded else inner_step(part)
            if inner:
                yield Reading(inner[0].strip(" ,;."), inner_name, f"{dropped} {inner[1]}")


def split_forms(text: str) -> Iterator[list[str]]:
    """Yield the forms of an answer that states its value several times: "0.5 or 1/2", "A: B".

    The first list has the best-ranked separator.
    """
    if len(text) > MAX_TEXT_CHARS:
        return
    for name in _FORM_SEPARATORS:
        separator = _PATTERNS[name]
        if separator.search(text):
            forms = split_outside_brackets(unwrap_text(text), separator)
            if len(forms) > 1 and all(forms):
                yield [form.strip(" ,.") for form in forms]


def split_labelled_parts(text: str) -> dict[str, str]:
    """Return the values of "width 5, length 10" by label; empty for another text."""
    parts = split_outside_brackets(text, _PATTERNS["labelled_part_end"])
    matches = [_PATTERNS["labelled_part"].fullmatch(part.strip(" .")) for part in parts]
    values = {
        " ".join(normalize_words(plain_words(match["label"]))): match["value"]
        for match in matches
        if match
    }
    return values if len(values) == len(parts) > 1 else {}


def split_dimensions(text: str) -> list[str]:
    """Split "10 ft x 18 ft" at its signs; return no part for another text."""
    if not _PATTERNS["dimension_sign"].search(text):
        return []
    parts = _PATTERNS["dimension_sign"].split(text)
    return parts if all(part[:1].isdigit() for part in parts) else []


def find_islands(text: str) -> list[str]:
    """List the formulas between the words of an unwrapped text."""
    pieces = _WORDS.split(text)
    islands = []
    for index, piece in enumerate(pieces[::2]):
        island = _PATTERNS["article"].sub("", piece.strip(" ,;.:")).strip(" ,;.:")
        if island.count("(") != island.count(")"):
            island = island.strip("() ")
        if _PATTERNS["content"].search(island):
            words = pieces[2 * index + 1 :: 2][:_MAX_UNIT_WORDS]
            islands.append(island + _unit_suffix(words, pieces[2 * index + 2 :: 2]))
    return islands


def find_constants(text: str) -> list[str] | None:
    """List the parts of an unwrapped text that may be constants, cut at all signs of relations.

    Formulas with letters are left out. The result is None if nothing was cut.
    """
    pieces = [
        piece.strip(" ()[]{}.~$\\")
        for island in find_islands(text)
        for piece in _PATTERNS["part_boundary"].split(island)
    ]
    pieces = [piece for piece in pieces if piece]
    if len(pieces) < 2 and pieces != [] and pieces[0] == text:
        return None
    return [piece for piece in pieces if not _PATTERNS["letter"].search(piece)]


def _unit_suffix(words: list[str], gaps: list[str]) -> str:
    """Return the unit that the first words name, with a space before it, or ""."""
    for count in range(len(words), 0, -1):
        is_adjacent = not any(gap.strip() for gap in gaps[: count - 1])
        unit = find_unit(" ".join(words[:count])) if is_adjacent else None
        if unit is not None and unit.dims:
            return " " + " ".join(words[:count])
    return ""


def has_formulas(text: str) -> bool:
    """Whether a text has numbers or signs of formulas outside its words."""
    return _PATTERNS["formula"].search(text) is not None


def has_prose(text: str) -> bool:
    """Whether a text has words of a language."""
    return any(is_language_word(word) for word in _PATTERNS["word"].findall(text))


def is_malformed(text: str) -> bool:
    r"""Whether a text is empty, a placeholder, or stops inside a formula: ``??``, ``12x+``."""
    plain = unwrap_text(text)
    words = _PATTERNS["word"].findall(plain)
    if not _PATTERNS["content"].search(_PATTERNS["word"].sub(" ", plain)) and all(
        word.lower() in _PLACEHOLDERS for word in words
    ):
        return True
    if text.count("{") != text.count("}"):
        return True
    openers = sum(map(plain.count, "(["))
    closers = sum(map(plain.count, ")]"))
    return openers != closers or _PATTERNS["broken"].search(plain) is not None


#: Words in place of an answer.
_PLACEHOLDERS = word_set(_TABLE["placeholders"])
