"""Answers that nothing announces: the last formula or number of the last sentence that has one."""

import re
from collections.abc import Iterator
from itertools import pairwise

from fsdpo_data.answers.extraction.announced import SENTENCE_END
from fsdpo_data.answers.extraction.boxes import text_tail
from fsdpo_data.answers.extraction.multi_part import (
    MAX_BARE_ANSWER_CHARS,
    TAIL_CHARS,
    closing_formulas,
    closing_list,
)
from fsdpo_data.answers.extraction.phrases import TRIGGER_WORDS, load_phrases
from fsdpo_data.answers.extraction.retractions import has_foreign_script
from fsdpo_data.answers.lexicon.vocabulary import contains_any
from fsdpo_data.answers.lexicon.words import SCALES, SMALL_NUMBERS

_PATTERNS = load_phrases("unmarked")

_CONTEXT_CHARS = 1_000  #: Characters before a sentence in which its numbers may have been given.
_NUMBER = _PATTERNS["number"]
_MATHS = _PATTERNS["maths"]
_LATEX = re.compile(r"\\(?![$%!,;])")
_HAS_WORD = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}")
JOINING_TEXT = _PATTERNS["joint"]
CONJUNCTION = re.compile(r"\b(?:and|or)\b|[,;&或和与、]")
CONFIRMATION = _PATTERNS["refers"]
#: What comes before the words that a sentence ends on: "so the fastest of them is Evelyn".
_VERBS = frozenset(("is", "are", "was", "were"))
_NAME_WORDS = 5  #: Most words that can be an answer at the end of a sentence.
_SENTENCE = _PATTERNS["sentence"]
_PLEASANTRY = _PATTERNS["pleasantry"]


def statement_value(statement: str) -> str | None:
    """Return the formula or number that a statement in words ends on, or the words after "is".

    None for a statement without words, which is a value as it stands, and for one that offers
    several values, or only bounds one.
    """
    if not (_HAS_WORD.search(statement) or has_foreign_script(statement)):
        return None
    statement = _main(statement)
    values = _values(statement)
    if values:
        return _value_and_rule(statement, values)[0]
    return _named_answer(statement)


#: A conclusion without digits: "so he pays twenty dollars", "so it does not exist".
_SIZES = "|".join((*list(SMALL_NUMBERS)[2:], *SCALES))
_SPELLED = rf"\b(?:(?:{_SIZES}|one|an?(?=\s(?:{_SIZES})))[\s-]+(?:and\s+)?)*(?:{_SIZES})"
_IN_WORDS = re.compile(rf"{_PATTERNS['predicate'].pattern}|{_SPELLED}\b")
_ENDS_IN_WORDS = re.compile(rf"{_SPELLED}(?:\s+[a-z]+)?[.!*\s]*$")


def concluding_clause(statement: str) -> str:
    """Return the clause that a statement draws: "2x > 6, so x > 3" comes to "x > 3"."""
    owed = contains_any(statement, TRIGGER_WORDS["concluding"])
    drawn = [each.end() for each in _PATTERNS["concluding"].finditer(statement)] if owed else []
    for start in reversed(drawn):
        if _values(statement[start:]) or _IN_WORDS.search(statement, start):
            return statement[start:]
    return statement


def _main(statement: str) -> str:
    """Return the clause that a statement comes to, without what is only added to its value."""
    statement = concluding_clause(_PATTERNS["again"].split(statement, maxsplit=1)[0])
    if (counted := _PATTERNS["counted"].fullmatch(statement)) and not _SENTENCE.search(statement):
        return counted[1]
    for more in _PATTERNS["more"].finditer(statement):
        said = statement[: more.start()]
        before = (said[: value.start()] for value in _values(said))
        new = any(not _PATTERNS["given"].search(each) and not _bounds(each) for each in before)
        place = more[0].startswith((" where", ", where")) and _PATTERNS["attained"].search(said)
        if (new or _IN_WORDS.search(said)) and not place:
            return _main(said)
    return statement


def _named_answer(statement: str) -> str | None:
    """Return the "yes" or "no" that a statement opens with, or the words after its last "is"."""
    if polar := opening_yes_or_no(statement):
        return polar
    words = statement[-200:].rstrip(".!* ").split()[-_NAME_WORDS - 1 :]
    verbs = [at for at, word in enumerate(words[:-1]) if word in _VERBS]
    return " ".join(words[verbs[-1] + 1 :]).strip("*") if verbs else None


def opening_yes_or_no(text: str) -> str | None:
    """Return the "yes" or "no" that a text opens with, if it says neither again."""
    polar = _PATTERNS["polar"].match(text)
    return (
        polar.group(1) if polar and not _PATTERNS["polar_word"].search(text, polar.end()) else None
    )


def _values(statement: str) -> list[re.Match[str]]:
    """List formulas, and numbers outside of formulas, in order."""
    formulas = (
        list(_MATHS.finditer(statement)) if contains_any(statement, TRIGGER_WORDS["maths"]) else []
    )
    others = _MATHS.sub(lambda found: "\0" * len(found[0]), statement) if formulas else statement
    values = sorted([*formulas, *_NUMBER.finditer(others)], key=re.Match.start)
    # "3 possible values of $n$" does not end on n; "therefore it is $n$" does.
    return [
        each
        for each in values
        if not _PATTERNS["letter"].fullmatch(_content(each))
        or _PATTERNS["says"].search(statement, 0, each.start())
    ]


def _content(value: re.Match[str]) -> str:
    if value.re is _NUMBER:
        return value.group().strip()
    return next(part for part in value.groups() if part).strip()


def _value_and_rule(
    statement: str, values: list[re.Match[str]], text: str = ""
) -> tuple[str | None, str]:
    """Return what a statement's values come to, and by which rule; None if that is open.

    The ``text`` that it ends tells which of its numbers were given and which were worked out.
    """
    last = values[-1]
    if _PATTERNS["refuted"].match(statement, last.end()):
        said = [_content(each) for each in values]
        others = [each for each, what in zip(values, said, strict=True) if what != said[-1]]
        twice = others and said.count(said[-1]) > 1
        return (
            _value_and_rule(statement[: others[-1].end()], others, text)
            if twice
            else (None, "last-sentence")
        )
    if last.re is _NUMBER:
        return _number_and_rule(statement, _without_given(values, statement, text)), "last-number"
    run = [last]
    for each in reversed(values[:-1]):
        if each.re is _NUMBER or not _is_joined(statement[each.end() : run[0].start()]):
            break
        run.insert(0, each)
    fails = _PATTERNS["order"].search(run[0][0]) and _PATTERNS["fails"].search(statement)
    if fails or _bounds(statement[: run[0].start()]):
        return None, "last-sentence"
    counted = _PATTERNS["count"].search(statement, 0, run[0].start())  # 20 $cm^2$
    listed = " , ".join(_content(each) for each in run)
    return (counted.group() if counted else "") + listed, "last-maths"


#: Where a text says what it has worked out.
_RESULT = re.compile(
    r"(?i)(?:(?P<equal>[=≈])|\b(?:is|are|was|were|has|have|had|(?:get|give|leave|make|equal|total|cost"
    rf"|pay|earn|need|take)s?)\b)\s*\**(?P<number>{_NUMBER.pattern.removeprefix('(?i)')})"
    r"(?![\d.]*\s?[-+*/×÷·−]\s?\d)"
)


def _without_given(values: list[re.Match[str]], statement: str, text: str) -> list[re.Match[str]]:
    """Drop a last number that was used before, behind one that was worked out after it.

    "9 * 2 = $18 a day by selling 9 eggs" comes to 18, and so does "$18 for the 9 eggs".
    """
    while len(values) > 1 and _PATTERNS["given"].search(statement, 0, values[-1].start()):
        values = values[:-1]
    if len(values) < 2:
        return values
    told = text[: max(text.rfind(statement), 0)][-_CONTEXT_CHARS:] + statement
    before = told[: len(told) - len(statement) + values[-1].start()]
    last = _digits(values[-1][0])
    if last[-3:] not in before or last not in map(_digits, _NUMBER.findall(before)):
        return values
    results = [(_digits(each["number"]), each["equal"]) for each in _RESULT.finditer(told)]
    said = [at for at, (number, _) in enumerate(results) if number == last]
    found = [
        number for number, equal in results[said[-1] + 1 if said else 0 :] if equal or not said
    ]
    worked_out = [at for at, each in enumerate(values[:-1]) if _digits(each[0]) in found]
    return values[: worked_out[-1] + 1] if worked_out else values


def _digits(number: str) -> str:
    return re.sub(r"[^\d./:]", "", number)


def _number_and_rule(statement: str, values: list[re.Match[str]]) -> str | None:
    last = values[-1]
    # A number inside LaTeX is a part of something: \frac{1}{2} does not end on 2.
    latex = "\\" in statement and _LATEX.search(_MATHS.sub("", statement))
    if latex or _bounds(statement[: last.start()]):
        return None
    if len(values) > 1:
        between = statement[values[-2].end() : last.start()]
        listed = "=" not in between or statement[: values[-2].start()].rstrip(" $*").endswith("=")
        if (listed and _is_joined(between)) or _PATTERNS["perhaps"].search(between):
            return None
        if between.strip() == "to" and not re.search(r"\bfrom\b", statement):
            return None  # "4 to 5 hours"
        if _either(between, statement[last.end() :]):
            return None
    return _content(last)


def _bounds(before: str) -> bool:
    """Whether words before a value make it a bound, a guess or what is denied."""
    return (
        contains_any(before, TRIGGER_WORDS["bound"])
        and _PATTERNS["bound"].search(before) is not None
    )


def _is_joined(between: str) -> bool:
    return bool(JOINING_TEXT.fullmatch(between) and CONJUNCTION.search(between))


def _either(between: str, after: str) -> bool:
    """Whether "… or …" offers two candidates; "300 minutes, or 5 hours" says one thing twice."""
    offered = _PATTERNS["or"].fullmatch(between)
    if not offered:
        return False
    first, second = offered.group(1).split(), _PATTERNS["after"].match(after)
    return not (first and second and first[0].strip(",") != second.group(1))


def clause_values(sentence: str) -> str | None:
    """Return the values of "the least is 1 and the greatest is 3"; None if it has no such form.

    Those of the first place and the second are a tuple.
    """
    values = _values(sentence) if _HAS_WORD.search(sentence) else []
    if len(values) < 2 or _PATTERNS["concluding"].search(sentence, values[0].end()):
        return None
    ordered = _PATTERNS["ordered"].search(sentence)
    said = all(_PATTERNS["gives"].search(sentence, 0, each.start()) for each in values)
    told = said or all("=" in each[0] for each in values)
    if not told and not (ordered and ordered[0] == "respectively"):
        return None
    ends = [_PATTERNS["clause_end"].search(sentence, each.end()) for each in values]
    listed = " , ".join(
        sentence[value.start() : end.start() if end else None]
        for value, end in zip(values, ends, strict=True)
    )
    return f"({listed})" if ordered else listed


def closing_cases(text: str, sentence: str) -> str | None:
    """Return what the cases of a text come to, if its last sentence says that all are answers."""
    if not (refers := CONFIRMATION.fullmatch(sentence)):
        return None
    drawn = map(last_sentence, _PATTERNS["case"].split(text.rpartition(sentence)[0])[1:])
    left = [said for said in drawn if not _PATTERNS["refuted"].match(said)]
    values = [statement_value(said) or said.strip(" .*$") for said in left]
    fitting = len(values) == 2 if refers["both"] or refers["two"] else len(values) > 1
    return " , ".join(values) if fitting and all(values) else None


def last_sentence(text: str) -> str:
    """Return the last sentence that says something about the problem."""
    return next(_sentences(text, 20), "")


def _sentences(text: str, lines: int = 40) -> Iterator[str]:
    """Yield the sentences of the last lines without the numbers of steps, the last one first."""
    for line in reversed(text_tail(text, TAIL_CHARS).splitlines()[-lines:]):
        number = _PATTERNS["numbered"].match(line)
        line = line[number.end() :] if number else line
        cuts = [0, *(match.end() for match in SENTENCE_END.finditer(line)), len(line)]
        parts = [line[start:end].strip() for start, end in pairwise(cuts)]
        yield from reversed([part for part in parts if part and not _PLEASANTRY.match(part)])


def extract_unmarked(text: str, sentence: str) -> tuple[str | None, str]:
    """Return the answer that a text without markers gives, and by which rule."""
    stripped = text.strip()
    polar = [_PATTERNS["polar"].match(each) for each in (stripped, sentence)]
    if len({each[1].lower() for each in polar if each}) > 1 or _PATTERNS["nothing"].fullmatch(
        stripped
    ):  # "**No.** Yes, it is."
        return None, "none"
    listed = closing_list(stripped)
    if listed is not None:
        return listed, "list"
    bold = _emphasized_answer(sentence)
    if bold is not None and (_values(bold) or not _PATTERNS["predicate"].search(bold)):
        values = _values(bold)
        return bold, _value_and_rule(bold, values)[1] if values else "last-bold"
    said = _main(sentence)
    values = _values(said)
    if predicates := list(_PATTERNS["predicate"].finditer(said)):
        between = said[values[-1].end() : predicates[-1].start()] if values else ""
        ends = not said[predicates[-1].end() :].strip(" .*$!。")
        if not values or (ends and not _PATTERNS["joins"].search(between)):
            return predicates[-1][0], "last-sentence"
    if not values:
        spelled = (_IN_WORDS if said != sentence else _ENDS_IN_WORDS).search(said)
        if spelled:
            return said[spelled.start() :], "last-sentence"
    more = sentence if _PATTERNS["relative"].match(sentence) else ""
    display = closing_formulas(stripped.removesuffix(more))
    if display is not None:
        return display, "last-maths"
    alone = len(stripped) <= MAX_BARE_ANSWER_CHARS and "\n" not in stripped and stripped == sentence
    if alone and not _SENTENCE.search(stripped) and not has_foreign_script(stripped):
        return said, "whole"
    if cases := closing_cases(stripped, sentence):
        return cases, "list"
    for each in _sentences(text):
        if each != sentence:
            said = _main(each)
            values = _values(said)
        if values and not _PATTERNS["relative"].match(said):
            answer, rule = _value_and_rule(said, values, text)
            return (answer, rule) if answer else (sentence, "last-sentence")
    return (sentence, "last-sentence") if sentence else (None, "none")


def _emphasized_answer(sentence: str) -> str | None:
    """Return what a sentence prints in bold, if that is one thing, and its value if it has one."""
    bold: list[str] = [each.strip() for each in _PATTERNS["bold"].findall(sentence)]
    if len(bold) != 1 or bold[0].endswith(":"):
        return None
    if _values(sentence) and not (_values(bold[0]) or _PATTERNS["chosen"].fullmatch(bold[0])):
        return None
    if _bounds(sentence[: sentence.find("**") + 2]):
        return None
    return bold[0].removesuffix("'s").removesuffix("’s")
