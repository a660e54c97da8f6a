"""The grader: extract, read both sides, compare; one verdict per pair."""

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from fsdpo_data.answers import GraderInput, Verdict, tree
from fsdpo_data.answers.comparison.equivalence import compare_answers, is_words
from fsdpo_data.answers.extraction import unmarked
from fsdpo_data.answers.extraction.extract import (
    ExtractedAnswer,
    extract_answer,
    strip_next_problem,
)
from fsdpo_data.answers.extraction.multi_part import closing_equations
from fsdpo_data.answers.extraction.phrases import load_phrases
from fsdpo_data.answers.lexicon.units import find_unit
from fsdpo_data.answers.lexicon.vocabulary import word_set
from fsdpo_data.answers.lexicon.words import find_dates
from fsdpo_data.answers.parsing.answer import ParsedAnswer, read_answer
from fsdpo_data.answers.parsing.clean import clean
from fsdpo_data.answers.parsing.prose import plain_text
from fsdpo_data.answers.tree import DateOrTime, Quantity, ValueList, Words

#: What the grader is called in manifests. A change of what is right changes the number; math@1
#: overlooked a factor of 100 before a sign of percent, and took the last number of a text cut off.
GRADER_NAME = "math@2"
#: Longest gold, in words, that is looked for.
MAX_WORDS = 6
_PATTERNS = load_phrases("grader")
_REASON = _PATTERNS["reason"]
_WORD = re.compile(r"[A-Za-z0-9]+(?:'[a-z]+)?")
_CONNECTIVES = word_set("so therefore thus hence then and finally clearly consequently overall")
_ARTICLES = word_set("the a an")
_DOUBT = word_set(
    """not no nor neither or either maybe might could perhaps but cannot unless if less fewer
    lower smaller slower shorter worse whether lost lose loses failed fails fail wrong incorrect
    false excluded rejected eliminated except"""
)
#: Words after which the end of a sentence is its answer.
_BEFORE = word_set("is are was were be been in on during called named chose picked becomes")

#: What a sentence may say in more than a value: lists, relations, sets.
_COMPOUND_TYPES = (ValueList, tree.Relation, tree.SetMembership, tree.Connective, tree.SetBuilder)
_UNIT_LENGTH = 60  #: Characters after a number in which its unit is named.

#: A gold answer, read once and then graded against as often as there are responses.
ParsedGold: TypeAlias = ParsedAnswer


def read_gold(text: str) -> ParsedGold:
    """Read a gold answer, for ``grade``; an empty one gives ``gold_unparsed`` verdicts."""
    return read_answer(text)


def grade_response(
    gold: ParsedGold, response: str, tolerance: float | None = None, is_truncated: bool = False
) -> Verdict:
    """Judge one response; never raises on text.

    One that was ``cut_off`` at its length has the answer that it marks, in a box or by its words,
    and no other: whatever stands last in it is not what it would have concluded.
    """
    if not gold.text.strip():
        return Verdict("gold_unparsed", None, "empty-gold")
    found = extract_answer(response)
    if "<" in response and "<think>" in response and "</think>" not in response:
        # A thought that never ends was cut off, whatever the sampler says, unless it ends on a box.
        is_truncated = is_truncated or not (
            found.rule == "boxed" and response.rstrip(" $.\n]*)")[-1:] == "}"
        )
        found = found._replace(rule="none") if is_truncated else found
    if is_truncated and found.marked_answer is None:
        return Verdict("no_answer", None, "cut-off")
    if found.answer is None:
        return Verdict("no_answer", None, found.rule)
    verdict = compare_answers(gold, found.answer, tolerance)
    if verdict.status == "correct" and found.rule in ("last-number", "last-maths"):
        number = _with_unit(gold, found.answer, found.sentence)
        verdict = compare_answers(gold, number, tolerance)
    for meant in (
        _alternative_readings(gold, found, response) if verdict.status == "incorrect" else ()
    ):
        other = verdict if meant == found.answer else compare_answers(gold, meant, tolerance)
        if other.status != "incorrect":
            verdict = other
            break
    if verdict.status == "incorrect" and found.sentence and _states(gold, found.sentence):
        rule = f"{found.rule}/sentence"
        return Verdict("correct", found.answer, rule, verdict.gold_form, found.sentence)
    rule = f"{found.rule}/{verdict.rule}"
    return Verdict(verdict.status, found.answer, rule, verdict.gold_form, verdict.answer_form)


class MathGrader:
    """Grades mathematical answers; see ``fsdpo_data.answers`` for the seam it fills.

    Args:
        tolerance: None for strict grading; see :func:`~.equal.compare_answers`.
    """

    def __init__(self, tolerance: float | None = None) -> None:
        self._tolerance = tolerance
        self.version = (
            GRADER_NAME if tolerance is None else f"{GRADER_NAME}+tolerance={tolerance:g}"
        )

    def grade(self, items: Sequence[GraderInput]) -> list[Verdict]:
        """Grade responses, in order; each gold is read once."""
        golds = {text: read_gold(text) for text in {item[0] for item in items}}
        return [
            grade_response(golds[gold], response, self._tolerance, is_truncated=ended == ["length"])
            for gold, response, *ended in items
        ]


def _with_unit(gold: ParsedAnswer, number: str, sentence: str) -> str:
    """Return the last number of a sentence with its unit, where the gold has one to disagree."""
    if not (isinstance(gold.value, Quantity) and gold.value.unit.dims):
        return number
    after = sentence.rpartition(number)[2][:_UNIT_LENGTH] if number in sentence else ""
    measured = _PATTERNS["unit"].match(clean("0" + after.lstrip(" $*\\)")))
    unit = find_unit(measured["word"]) if measured else None
    if not (measured and unit and unit.dims):
        return number
    rate = any(power < 0 for _, power in gold.value.unit.dims)
    return f"{number} {measured['unit']}{measured['rate'] or '' if rate else ''}"


def _alternative_readings(
    gold: ParsedAnswer, found: ExtractedAnswer, response: str
) -> Iterator[str]:
    """Yield what an answer may mean that is not the gold as it stands."""
    answer = found.answer or ""
    worded = not found.rule.startswith("boxed") and is_words(answer)
    if worded and (value := found.statement_value) is not None:
        yield _with_unit(gold, value, answer)
    if found.rule == "last-number":
        yield _with_unit(gold, answer, found.sentence)
    if isinstance(gold.value, Words) and (
        word := unmarked.opening_yes_or_no(strip_next_problem(response))
    ):
        yield word
    if isinstance(gold.value, _COMPOUND_TYPES):
        yield unmarked.clause_values(found.sentence or answer) or answer
        yield unmarked.concluding_clause(found.sentence or answer) or answer
        yield unmarked.closing_cases(strip_next_problem(response), found.sentence) or answer
        if not found.rule.startswith("boxed"):
            yield closing_equations(strip_next_problem(response)) or answer
    if response.rstrip(" *$\n").endswith(f"{answer}!"):
        yield f"{answer}!"  # "So there are 26!" may mean the factorial


def _states(gold: ParsedAnswer, sentence: str) -> bool:
    """Whether a sentence such as "So Brand B is cheaper" states a gold that is words or a date.

    Only for responses that mark no answer. The sentence must begin with the gold, or end with it
    after "is", "in" and the like; one that denies, hedges or turns a comparison round states
    nothing.
    """
    value = gold.value
    if isinstance(value, DateOrTime):
        return value.month is not None and find_dates(sentence) == [value]
    if not isinstance(value, Words):
        return False
    wanted, words = _words(gold.plain), _words(plain_text(clean(_REASON.sub("", sentence, 1))))
    while words and words[0] in _CONNECTIVES:
        words = words[1:]
    if not 0 < len(wanted) <= MAX_WORDS or not len(wanted) <= len(words):
        return False
    if wanted in (["yes"], ["no"]) and _PATTERNS["no_verdict"].match(sentence):
        return False
    doubts = (set(words) & _DOUBT) - set(wanted)
    last = words[-1] == "last" != wanted[-1]  # "Tom finished last" says of Tom what he is not
    if doubts or last or any(word.endswith("n't") for word in words):
        return False
    if words[: len(wanted)] == wanted:
        return True
    before = words[-len(wanted) - 1 : -len(wanted)]
    return words[-len(wanted) :] == wanted and bool(set(before) & (_BEFORE | _CONNECTIVES))


def _words(plain: str) -> list[str]:
    """Return the words of a plain text in lower case, without articles and possessive marks."""
    plain = plain.replace("hey're", "hey are")
    words = _WORD.findall(plain)
    kept = words[:1] if words and words[0].lower() not in _ARTICLES else []
    kept += [word for word in words[1:] if word not in _ARTICLES]  # but the A of "Brand A"
    return [word.lower() for word in kept]
