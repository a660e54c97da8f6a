"""Answers that nothing announces: the last formula or number of the last sentence that has one."""

import re
from collections.abc import Iterator
from itertools import pairwise

from fsdpo_data.answers.finding.boxes import ending
from fsdpo_data.answers.finding.concluding import is_chinese
from fsdpo_data.answers.finding.phrases import phrases
from fsdpo_data.answers.finding.spoken import SENTENCE_END
from fsdpo_data.answers.lexicon.words import SMALL

_SAID = phrases("unmarked")

#: Characters at the end that are searched.
_NEAR = 4_000
_TOLD = 1_000  #: Characters before a sentence in which its numbers may have been given.
#: Longest response that can be nothing but its answer.
_WHOLE = 300

_NUMBER = _SAID["number"]
_MATHS = _SAID["maths"]
_COUNT = re.compile(r"(?<![\w.,^_])\d[\d,.]{0,20} *$")
_LATEX = re.compile(r"\\(?![$%!,;])")
_HAS_WORD = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}")
_SAYS = re.compile(r"(?:\b(?:is|are|was|were|be|get|gives)|[=:,])\s*\**$")
_LETTER = re.compile(r"\\?[A-Za-z]")
JOINT = _SAID["joint"]
CONJUNCTION = re.compile(r"\b(?:and|or)\b|[,;&或和与、]")
_OR = re.compile(r"([^\d]*?),?\s*\bor\b\s*[^\d]*")
_PERHAPS = re.compile(r"\b(?:could|might|may|maybe|perhaps|possibly|otherwise)\b", re.I)
_AFTER = re.compile(r"\s*([A-Za-z]+)")
_BOUND = _SAID["bound"]
#: The same value, said again.
_AGAIN = re.compile(
    r",?\s+(?:\(?or|which\s+is)\s+(?:approximately|about|roughly|around|equivalently)\b", re.I
)
#: What comes before the words that a sentence ends on: "so the fastest of them is Evelyn".
_VERBS = frozenset(("is", "are", "was", "were"))
_POLAR = _SAID["polar"]
_POLAR_WORD = re.compile(r"\b(?:yes|no)\b(?=\W*(?:[,.;:!]|$))", re.I)
#: Most words that can be an answer at the end of a sentence.
_NAME_WORDS = 5
_NUMBERED = re.compile(r"\s*(?:\**(?:step|part|case)\s*\d+\s*\**\s*[:.]|\d+[.)]\s|[-*]\s)", re.I)
#: Nothing but the announcement of an answer that never comes.
_NOTHING = re.compile(r"(?:[^\w∞∅]|_|\b(?:f?box(?:ed)?|so|the|final|answers?|is|are)\b)*", re.I)
_SENTENCE = _SAID["sentence"]
_PLEASANTRY = _SAID["pleasantry"]
#: A line that gives a name its value.
_EQUATION = re.compile(
    r"[\s*•$-]*(?:\\[\[(])?\s*(([A-Za-z]\w?)\s*=[^=\n]{1,40}?)\s*(?:\\[\])])?[\s.,;$*]*"
)


def closing_equations(text: str) -> str | None:
    """Return the equations of two or more names, on lines of their own, that end a text."""
    lines = [line for line in ending(text, _NEAR).splitlines() if line.strip(" $[]\\")]
    named: dict[str, str] = {}
    while lines and (found := _EQUATION.fullmatch(lines.pop())) and found[2] not in named:
        named[found[2]] = found[1]
    return " , ".join(reversed(named.values())) if len(named) > 1 else None


def settled_value(statement: str) -> str | None:
    """Return the formula or number that a statement in words ends on, or the words after "is".

    None for a statement without words, which is a value as it stands, and for one that offers
    several values, or only bounds one.
    """
    if not (_HAS_WORD.search(statement) or is_chinese(statement)):
        return None
    statement = _main(statement)
    values = _values(statement)
    if values:
        return _settled(statement, values)[0]
    return _named(statement)


_MORE = _SAID["more"]
_COUNTED = _SAID["counted"]
_CONCLUDING = _SAID["concluding"]
#: A conclusion without digits: "so he pays twenty dollars", "so it does not exist".
_IN_WORDS = re.compile(f"{_SAID['predicate'].pattern}|\\b(?:{'|'.join(list(SMALL)[2:])})\\b")

#: What comes before a number that is not new: "the 5 workers need 12 days".
_GIVEN = re.compile(r"\b(?:the|these|those|his|her|their|its|all)\s+$", re.I)

_ENDS_IN_WORDS = re.compile(rf"\b(?:{'|'.join(list(SMALL)[2:])})(?:\s+[a-z]+)?[.!*\s]*$")


def conclusion(statement: str) -> str:
    """Return the clause that a statement draws: "2x > 6, so x > 3" comes to "x > 3"."""
    for start in reversed([each.end() for each in _CONCLUDING.finditer(statement)]):
        if _values(statement[start:]) or _IN_WORDS.search(statement, start):
            return statement[start:]
    return statement


def _main(statement: str) -> str:
    """Return the clause that a statement comes to, without what is only added to its value."""
    statement = conclusion(_AGAIN.split(statement, maxsplit=1)[0])
    if (counted := _COUNTED.fullmatch(statement)) and not _SENTENCE.search(statement):
        return counted[1]
    for more in _MORE.finditer(statement):
        said = statement[: more.start()]
        values = _values(said)
        new = values and not _GIVEN.search(said, 0, values[-1].start())
        if new or _IN_WORDS.search(said):
            return said
    return statement


def _named(statement: str) -> str | None:
    """Return the "yes" or "no" that a statement opens with, or the words after its last "is"."""
    if polar := opening_word(statement):
        return polar
    words = statement[-200:].rstrip(".!* ").split()[-_NAME_WORDS - 1 :]
    verbs = [at for at, word in enumerate(words[:-1]) if word in _VERBS]
    return " ".join(words[verbs[-1] + 1 :]).strip("*") if verbs else None


def opening_word(text: str) -> str | None:
    """Return the "yes" or "no" that a text opens with, if it says neither again."""
    polar = _POLAR.match(text)
    return polar.group(1) if polar and not _POLAR_WORD.search(text, polar.end()) else None


def _values(statement: str) -> list[re.Match[str]]:
    """List formulas, and numbers outside of formulas, in order."""
    formulas = list(_MATHS.finditer(statement))
    others = _MATHS.sub(lambda found: "\0" * len(found[0]), statement) if formulas else statement
    values = sorted([*formulas, *_NUMBER.finditer(others)], key=re.Match.start)
    # "3 possible values of $n$" does not end on n; "therefore it is $n$" does.
    return [
        each
        for each in values
        if not _LETTER.fullmatch(_content(each)) or _SAYS.search(statement, 0, each.start())
    ]


def _content(value: re.Match[str]) -> str:
    if value.re is _NUMBER:
        return value.group().strip()
    return next(part for part in value.groups() if part).strip()


def _settled(statement: str, values: list[re.Match[str]], text: str = "") -> tuple[str | None, str]:
    """Return what a statement's values come to, and by which rule; None if that is open.

    The ``text`` that it ends tells which of its numbers were given and which were worked out.
    """
    last = values[-1]
    if last.re is _NUMBER:
        return _settled_number(statement, _without_given(values, statement, text)), "last-number"
    run = [last]
    for each in reversed(values[:-1]):
        if each.re is _NUMBER or not _joined(statement[each.end() : run[0].start()]):
            break
        run.insert(0, each)
    counted = _COUNT.search(statement, 0, run[0].start())  # 20 $cm^2$
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

    "9 * 2 = $18 a day by selling 9 eggs" comes to 18.
    """
    if len(values) < 2:
        return values
    told = text[: max(text.rfind(statement), 0)][-_TOLD:] + statement
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


def _settled_number(statement: str, values: list[re.Match[str]]) -> str | None:
    last = values[-1]
    # A number inside LaTeX is a part of something: \frac{1}{2} does not end on 2.
    if _LATEX.search(_MATHS.sub("", statement)) or _BOUND.search(statement, 0, last.start()):
        return None
    if len(values) > 1:
        between = statement[values[-2].end() : last.start()]
        listed = "=" not in between or statement[: values[-2].start()].rstrip(" $*").endswith("=")
        if (listed and _joined(between)) or _PERHAPS.search(between):
            return None
        if between.strip() == "to" and not re.search(r"\bfrom\b", statement):
            return None  # "4 to 5 hours"
        if _either(between, statement[last.end() :]):
            return None
    return _content(last)


def _joined(between: str) -> bool:
    return bool(JOINT.fullmatch(between) and CONJUNCTION.search(between))


def _either(between: str, after: str) -> bool:
    """Whether "… or …" offers two candidates; "300 minutes, or 5 hours" says one thing twice."""
    offered = _OR.fullmatch(between)
    if not offered:
        return False
    first, second = offered.group(1).split(), _AFTER.match(after)
    return not (first and second and first[0].strip(",") != second.group(1))


def clause_values(sentence: str) -> str | None:
    """Return the values of "the least is 1 and the greatest is 3"; None if it has no such form."""
    values = _values(sentence) if _HAS_WORD.search(sentence) else []
    if len(values) < 2 or _CONCLUDING.search(sentence, values[0].end()):
        return None
    if not all(_SAYS.search(sentence, 0, each.start()) for each in values):
        return None
    ends = [_CLAUSE_END.search(sentence, each.end()) for each in values]
    return " , ".join(
        sentence[value.start() : end.start() if end else None]
        for value, end in zip(values, ends, strict=True)
    )


_CLAUSE_END = re.compile(r"\s*(?:[,;]|\.(?!\d)|\band\b|\bwhile\b|$)")


def last_sentence(text: str) -> str:
    """Return the last sentence that says something about the problem."""
    said = (each for each in _sentences(text, 20) if not _PLEASANTRY.match(each))
    return next(said, "")


def _sentences(text: str, lines: int = 40) -> Iterator[str]:
    """Yield the sentences of the last lines without the numbers of steps, the last one first."""
    for line in reversed(ending(text, _NEAR).splitlines()[-lines:]):
        number = _NUMBERED.match(line)
        line = line[number.end() :] if number else line
        cuts = [0, *(match.end() for match in SENTENCE_END.finditer(line)), len(line)]
        parts = [line[start:end].strip() for start, end in pairwise(cuts)]
        yield from reversed([part for part in parts if part])


def unmarked(text: str, sentence: str) -> tuple[str | None, str]:
    """Return the answer that a text without markers gives, and by which rule."""
    stripped = text.strip()
    polar = [_POLAR.match(each) for each in (stripped, sentence)]
    if len({each[1].lower() for each in polar if each}) > 1 or _NOTHING.fullmatch(
        stripped
    ):  # "**No.** Yes, it is."
        return None, "none"
    listed = closing_list(stripped)
    if listed is not None:
        return listed, "list"
    bold = _emphasized(sentence)
    if bold is not None and (_values(bold) or not _PREDICATE.search(bold)):
        values = _values(bold)
        return bold, _settled(bold, values)[1] if values else "last-bold"
    said = _main(sentence)
    if not _values(said):
        if predicates := _PREDICATE.findall(said):
            return predicates[-1], "last-sentence"
        spelled = (_IN_WORDS if said != sentence else _ENDS_IN_WORDS).search(said)
        if spelled:
            return said[spelled.start() :], "last-sentence"
    alone = len(stripped) <= _WHOLE and "\n" not in stripped and stripped == sentence
    if alone and not _SENTENCE.search(stripped) and not is_chinese(stripped):
        return said, "whole"
    more = sentence if _RELATIVE.match(sentence) else ""
    display = _closing_display(stripped.removesuffix(more))
    if display is not None:
        return display, "last-maths"
    for said in _sentences(text):
        said = _main(said)
        values = [] if _RELATIVE.match(said) else _values(said)
        if values:
            answer, rule = _settled(said, values, text)
            return (answer, rule) if answer else (sentence, "last-sentence")
    return (sentence, "last-sentence") if sentence else (None, "none")


_BOLD = re.compile(r"\*\*([^*\n]{1,60})\*\*(?!:)")
_RELATIVE = _SAID["relative"]


def _emphasized(sentence: str) -> str | None:
    """Return what a sentence prints in bold, if that is one thing, and its value if it has one."""
    bold: list[str] = [each.strip() for each in _BOLD.findall(sentence)]
    if len(bold) != 1 or bold[0].endswith(":"):
        return None
    if _values(sentence) and not (_values(bold[0]) or _CHOSEN.fullmatch(bold[0])):
        return None
    if _BOUND.search(sentence[: sentence.find("**") + 2]):
        return None
    return bold[0].removesuffix("'s").removesuffix("’s")


_CHOSEN = re.compile(r"\(?[A-K]\)?")
_PREDICATE = _SAID["predicate"]
_ITEM = re.compile(r"\s*(?:[-*•]|\(?\d{1,2}[.)])\s+(.{1,80})")
_PAIR = re.compile(r"\**[A-Za-z][\w' ]{1,30}\**:\s*\**\s*(.{1,60})")
_HEADER = _SAID["header"]
_NAMED_PARTS = re.compile(r"(?<=[.;,])\s+(?=\**[A-Z][\w' ]{1,30}:)")
#: Most items of a closing list.
_MAX_ITEMS = 8


def closing_list(text: str) -> str | None:
    """Return the values of the items that end a text: a list below a header, or named values."""
    lines = ending(text, _NEAR).rstrip().splitlines()
    if len(lines) == 1 and len(text) <= _WHOLE:
        lines = _NAMED_PARTS.split(text)
        items = [_PAIR.fullmatch(line) for line in lines]
        return _item_values([item[1] for item in items if item]) if all(items) else None
    tail: list[str] = []
    while lines and len(tail) <= _MAX_ITEMS and (item := _ITEM.fullmatch(lines[-1])):
        tail.insert(0, item[1])
        lines.pop()
    while tail and lines and not lines[-1].strip():
        lines.pop()
    if tail and (not lines or _HEADER.search(lines[-1])):
        return _item_values(tail)
    named: list[str] = []
    while not tail and lines and len(named) <= _MAX_ITEMS and (item := _PAIR.fullmatch(lines[-1])):
        named.insert(0, item[1])
        lines.pop()
    if len(named) == 1 and named[0].count("=") == 1:
        return named[0].strip("*$. ")  # "Equation: y = 2x + 1"
    return _item_values(named)


def _item_values(items: list[str]) -> str | None:
    """Join the values of two or more items; None if one of them has none."""
    values = []
    for item in items:
        pair = _PAIR.fullmatch(item)
        value = (pair[1] if pair else item).strip("*$. ")
        if not re.search(r"\d", value) or len(value.split()) > 4:
            return None
        values.append(value)
    return " , ".join(values) if len(values) > 1 else None


def _closing_display(text: str) -> str | None:
    """Return the displayed formula a text ends on."""
    text = ending(text, _NEAR).rstrip(". ∎\n")
    found: list[str] = []
    for opener, closer in (("\\[", "\\]"), ("$$", "$$")):
        while text.endswith(closer) and (start := text.rfind(opener, 0, len(text) - 2)) >= 0:
            found.insert(0, text[start + 2 : -2].strip().rstrip(".,").strip())
            text = text[:start].rstrip()
    return " , ".join(found) or None
