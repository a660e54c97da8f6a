"""The values of a statement: its formulas and numbers, and the answer among them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from fsdpo_data.answers.extraction.attachments import extend_number
from fsdpo_data.answers.extraction.phrases import TRIGGER_WORDS, load_phrases
from fsdpo_data.answers.lexicon.vocabulary import contains_any

_PATTERNS = load_phrases("unmarked")

_CONTEXT_CHARS = 1_000  #: Characters before a sentence in which its given numbers are searched.
_NUMBER = _PATTERNS["number"]
_FORMULA = _PATTERNS["formula"]
_LATEX = re.compile(r"\\(?![$%!,;])")
JOINING_TEXT = _PATTERNS["joining_text"]
CONJUNCTION = re.compile(r"\b(?:and|or)\b|[,;&或和与、]")


class StatedValue(NamedTuple):
    """A formula or a number of a statement."""

    start: int  #: Its offset in the statement.
    end: int  #: The offset after it.
    text: str  #: Its text; for a formula, without delimiters.
    is_number: bool  #: Whether it is a number, not a formula.


def find_values(statement: str) -> list[StatedValue]:
    """List the formulas, and the numbers outside formulas, in order."""
    if "\\" not in statement and not contains_any(statement, TRIGGER_WORDS["formula"]):
        return _find_numbers(statement)
    formulas = list(_FORMULA.finditer(statement))
    prose = _blank(statement, formulas)
    values = [
        StatedValue(*formula.span(), next(filter(None, formula.groups())).strip(), is_number=False)
        for formula in formulas
    ]
    if "\\" in prose:
        bare_formulas = _find_bare_latex(prose)
        values += [
            StatedValue(*formula.span(), formula[0].strip(), is_number=False)
            for formula in bare_formulas
        ]
        prose = _blank(prose, bare_formulas)
    values = [value for value in values if not _is_mention_of_letter(value, statement)]
    return sorted([*values, *_find_numbers(prose)])


def _find_bare_latex(prose: str) -> list[re.Match[str]]:
    r"""List the formulas in LaTeX without delimiters; none if the text has other LaTeX.

    A formula that is cut off, such as ``\frac{1}{2``, is other LaTeX.
    """
    if not _LATEX.search(prose):
        return []
    formulas = [
        formula for formula in _PATTERNS["bare_latex"].finditer(prose) if "\\" in formula[0]
    ]
    other_text = _blank(prose, formulas)
    is_complete = not (_LATEX.search(other_text) or "{" in other_text or "}" in other_text)
    has_ends = not any(_PATTERNS["latex_operator"].search(formula[0]) for formula in formulas)
    return formulas if is_complete and has_ends else []


def _blank(text: str, formulas: Sequence[re.Match[str]]) -> str:
    """Replace formulas by NUL characters."""
    for formula in formulas:
        blank = "\0" * len(formula[0])
        text = text[: formula.start()] + blank + text[formula.end() :]
    return text


def _find_numbers(prose: str) -> list[StatedValue]:
    """List the numbers of a text without formulas, each with all that belongs to its value."""
    values = []
    end = 0
    for number in _NUMBER.finditer(prose):
        if number.start() < end:
            continue  # part of the value before
        start, end = extend_number(prose, *number.span(), first=end)
        values.append(StatedValue(start, end, prose[start:end].strip(), is_number=True))
    return values


def _is_mention_of_letter(formula: StatedValue, statement: str) -> bool:
    """Whether a formula only names a letter.

    "3 possible values of $n$" does not end with the answer n; "therefore it is $n$" does.
    """
    if not _PATTERNS["letter"].fullmatch(formula.text):
        return False
    return not _PATTERNS["before_value"].search(statement, 0, formula.start)


def value_and_rule(
    statement: str, values: list[StatedValue], text: str = ""
) -> tuple[str | None, str]:
    """Return the answer among the values of a statement, or None, and the extraction rule.

    ``text`` ends with the statement. Its earlier sentences show which numbers were given and
    which were calculated.
    """
    last_value = values[-1]
    if _PATTERNS["refutation"].match(statement, last_value.end):
        return _unrefuted_value_and_rule(statement, values, text)
    if last_value.is_number:
        return _number_answer(statement, _drop_given_numbers(values, statement, text)), (
            "last-number"
        )
    formulas = [last_value]
    for value in reversed(values[:-1]):
        if value.is_number or not _is_joined(statement[value.end : formulas[0].start]):
            break
        formulas.insert(0, value)
    first_start = formulas[0].start
    is_refuted = _PATTERNS["order_sign"].search(formulas[0].text) and _PATTERNS["failure"].search(
        statement
    )
    if is_refuted or ends_with_bound(statement[:first_start]):
        return None, "last-sentence"
    count = _PATTERNS["count"].search(statement, 0, first_start)  # 20 $cm^2$
    joined = " , ".join(formula.text for formula in formulas)
    return (count.group() if count else "") + joined, "last-maths"


def _unrefuted_value_and_rule(
    statement: str, values: list[StatedValue], text: str
) -> tuple[str | None, str]:
    """Return the answer and the rule of a statement that refutes its last value.

    The refuted value must occur twice: first as a candidate, then in the refutation.
    """
    value_texts = [value.text for value in values]
    refuted = value_texts[-1]
    candidates = [
        value
        for value, value_text in zip(values, value_texts, strict=True)
        if value_text != refuted
    ]
    if not candidates or value_texts.count(refuted) < 2:
        return None, "last-sentence"
    return value_and_rule(statement[: candidates[-1].end], candidates, text)


#: A number after a verb or sign that introduces a calculated result.
_RESULT = re.compile(
    r"(?i)(?:(?P<equal>[=≈])|\b(?:is|are|was|were|has|have|had|(?:get|give|leave|make|equal|total|cost"
    rf"|pay|earn|need|take)s?)\b)\s*\**(?P<number>{_NUMBER.pattern.removeprefix('(?i)')})"
    r"(?![\d.]*\s?[-+*/×÷·−]\s?\d)"
)


def _drop_given_numbers(values: list[StatedValue], statement: str, text: str) -> list[StatedValue]:
    """Drop last numbers that are given, if a number before them was calculated later.

    The answer of "9 * 2 = $18 a day by selling 9 eggs" is 18, and so is the answer of "$18 for
    the 9 eggs".
    """
    while len(values) > 1 and _PATTERNS["before_given_number"].search(
        statement, 0, values[-1].start
    ):
        values = values[:-1]
    if len(values) < 2:
        return values
    context = text[: max(text.rfind(statement), 0)][-_CONTEXT_CHARS:] + statement
    text_before = context[: len(context) - len(statement) + values[-1].start]
    last_number = _digits_only(values[-1].text)
    if last_number[-3:] not in text_before or last_number not in map(
        _digits_only, _NUMBER.findall(text_before)
    ):
        return values
    results = [
        (_digits_only(match["number"]), match["equal"]) for match in _RESULT.finditer(context)
    ]
    last_indices = [index for index, (number, _) in enumerate(results) if number == last_number]
    if last_indices:
        new_results = [number for number, equal in results[last_indices[-1] + 1 :] if equal]
    else:
        new_results = [number for number, _ in results]
    new_indices = [
        index for index, value in enumerate(values[:-1]) if _digits_only(value.text) in new_results
    ]
    return values[: new_indices[-1] + 1] if new_indices else values


def _digits_only(number: str) -> str:
    """Return a number without signs, separators and units."""
    return re.sub(r"[^\d./:]", "", number)


def _has_unread_latex(statement: str) -> bool:
    """Whether a statement has LaTeX outside its formulas."""
    prose = _FORMULA.sub("", statement)
    return _LATEX.search(_blank(prose, _find_bare_latex(prose))) is not None


def _number_answer(statement: str, values: list[StatedValue]) -> str | None:
    """Return the last number of a statement, or None if the statement does not settle on it."""
    last_value = values[-1]
    # A number inside LaTeX is part of a formula: \frac{1}{2} does not end with the answer 2.
    is_in_latex = "\\" in statement and _has_unread_latex(statement)
    if is_in_latex or ends_with_bound(statement[: last_value.start]):
        return None
    if len(values) > 1:
        between = statement[values[-2].end : last_value.start]
        text_before = statement[: values[-2].start].rstrip(" $*")
        is_list = "=" not in between or text_before.endswith("=")
        if (is_list and _is_joined(between)) or _PATTERNS["possibility"].search(between):
            return None
        if between.strip() == "to" and not re.search(r"\bfrom\b", statement):
            return None  # "4 to 5 hours"
        if _offers_alternative(between, statement[last_value.end :]):
            return None
    return last_value.text


def ends_with_bound(text_before: str) -> bool:
    """Whether the words before a value make it a bound, a guess or a denied value."""
    return (
        contains_any(text_before, TRIGGER_WORDS["bound"])
        and _PATTERNS["bound"].search(text_before) is not None
    )


def _is_joined(between: str) -> bool:
    """Whether the text between two values makes them one answer, e.g. "and"."""
    return bool(JOINING_TEXT.fullmatch(between) and CONJUNCTION.search(between))


def _offers_alternative(between: str, text_after: str) -> bool:
    """Whether "… or …" offers two candidates; "300 minutes, or 5 hours" repeats one value."""
    alternative = _PATTERNS["alternative"].fullmatch(between)
    if not alternative:
        return False
    first_unit = alternative.group(1).split()
    second_unit = _PATTERNS["next_word"].match(text_after)
    is_restated = first_unit and second_unit and first_unit[0].strip(",") != second_unit.group(1)
    return not is_restated
