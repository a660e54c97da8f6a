"""The rule-based math grader: extract the answer, parse both sides, compare them."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from fsdpo_data.answers import GradingRequest, Verdict, tree
from fsdpo_data.answers.comparison.equivalence import (
    compare_answers,
    failed_verdict,
    is_words,
)
from fsdpo_data.answers.extraction import unmarked
from fsdpo_data.answers.extraction.attachments import find_exclamation
from fsdpo_data.answers.extraction.boxes import find_boxes
from fsdpo_data.answers.extraction.extract import (
    ExtractedAnswer,
    extract_answer,
    is_reconsidered,
    strip_next_problem,
)
from fsdpo_data.answers.extraction.multi_part import (
    closing_equations,
    in_order,
    parallel_values,
)
from fsdpo_data.answers.extraction.phrases import load_phrases
from fsdpo_data.answers.lexicon.units import find_unit
from fsdpo_data.answers.lexicon.vocabulary import word_set
from fsdpo_data.answers.lexicon.words import find_dates
from fsdpo_data.answers.parsing.clean import clean
from fsdpo_data.answers.parsing.compose import add_name, add_unit
from fsdpo_data.answers.parsing.prose import plain_text, unwrap_text
from fsdpo_data.answers.parsing.read import ParsedAnswer, read_answer
from fsdpo_data.answers.thinking import has_unclosed_tag
from fsdpo_data.answers.tree import DateOrTime, Quantity, ValueList, Words

#: The name of the grader in manifests. The number rises with every release that changes verdicts.
#: math@1 ignored a factor of 100 before a percent sign, and took the last number of a truncated
#: response. math@2 dropped the braces of labelled formulas, and called unread answers incorrect.
#: math@4 called answers with other names than the gold incorrect, and preferred a box to a later
#: "the answer is".
GRADER_NAME = "math@6"
#: The statuses that count for an answer with several golds, the first one most.
_DECIDING_STATUSES = ("correct", "undecided", "timed_out")
ReadGold = Callable[[str], ParsedAnswer]  #: Reads a gold, each text once.
#: ``Verdict.rule`` of responses whose thinking does not end, and that therefore have no answer.
UNCLOSED_THINKING_RULE = "unclosed-thinking"
#: Maximum words of a gold answer that is searched for in a sentence.
MAX_GOLD_WORDS = 6
_PATTERNS = load_phrases("grader")
_REASON = _PATTERNS["reason"]  #: A subordinate clause such as "Since Al has more points, ".
_WORD = re.compile(r"[A-Za-z0-9]+(?:'[a-z]+)?")
_CONNECTIVES = word_set("so therefore thus hence then and finally clearly consequently overall")
_ARTICLES = word_set("the a an")
#: A sentence with one of these words does not state an answer: it denies, hedges or compares.
_DOUBT_WORDS = word_set(
    """not no nor neither or either maybe might could perhaps but cannot unless if less fewer
    lower smaller slower shorter worse whether lost lose loses failed fails fail wrong incorrect
    false excluded rejected eliminated except"""
)
#: Words after the subject of a sentence that add another subject, or a thought of the subject.
_JOINING_WORDS = word_set("and or thinks says believes guesses comes")
_LATER_RANKS = word_set("second third fourth fifth")  #: Ranks after the first.
#: Words that introduce an answer at the end of a sentence.
_INTRODUCING_WORDS = word_set(
    "is are was were be been in on during called named chose picked becomes"
)

#: Types of gold answers with several parts, which a response may spread over a sentence.
_COMPOUND_TYPES = (ValueList, tree.Relation, tree.SetMembership, tree.Connective, tree.SetBuilder)
_MAX_LABEL_CHARS = 60  #: Characters before the first box in which its label is searched.
_MAX_UNIT_CHARS = 60  #: Characters after a number in which its unit is searched.


def grade_response(
    gold: ParsedAnswer, response: str, tolerance: float | None = None, *, is_truncated: bool = False
) -> Verdict:
    """Grade one response; never raises an exception on its text.

    An empty gold answer gives the verdict ``gold_unparsed``. A gold answer that is not mathematical
    is compared as words.

    Args:
        gold: The gold answer. Read it once with ``read_answer`` to grade many responses.
        response: The text of the response.
        tolerance: See :func:`compare_answers`.
        is_truncated: Whether the response stopped at its length limit. In such a response, only
            an answer in a box or after an announcement counts. Its last number may be an
            intermediate result.
    """
    if not gold.text.strip():
        return Verdict("gold_unparsed", None, "empty-gold")
    extracted = extract_answer(response)
    if "<" in response and has_unclosed_tag(response):
        # Unclosed thinking that does not end on a box is truncated, even if the sampler reports
        # another finish reason.
        ends_on_box = extracted.rule == "boxed" and response.rstrip(" $.\n]*)")[-1:] == "}"
        is_truncated = is_truncated or not ends_on_box
        # The rule "none" makes a box or an announcement in the thinking count for nothing.
        extracted = extracted._replace(rule="none") if is_truncated else extracted
    if is_truncated and extracted.marked_answer is None:
        return Verdict("no_answer", None, "cut-off")
    if extracted.answer is None:
        return Verdict("no_answer", None, extracted.rule)
    if "!" in response and not extracted.rule.startswith("boxed"):
        return _grade_exclamation(gold, extracted, response, tolerance)
    return _grade_extracted(gold, extracted, response, tolerance)


def _grade_exclamation(
    gold: ParsedAnswer, extracted: ExtractedAnswer, response: str, tolerance: float | None
) -> Verdict:
    """Grade an answer that may have a "!" after it, which may be a factorial.

    "The answer is 5!" may state 120, or 5 with joy. So it is undecided for both.
    """
    answer = extracted.answer or ""
    value = (extracted.statement_value if is_words(answer) else None) or answer
    exclamation = find_exclamation(value, response)
    if exclamation is None:
        return _grade_extracted(gold, extracted, response, tolerance)
    plain, *factorials = [
        reading
        for reading in exclamation.readings
        if reading == exclamation.readings[0]
        or isinstance(read_answer(reading).value, tree.Relation)
        or tree.is_node(read_answer(reading).value)
    ]
    readings = factorials[-1:] if factorials and exclamation.is_factorial else [plain, *factorials]
    verdicts = [
        _grade_extracted(gold, extracted._replace(answer=reading), response, tolerance)
        for reading in readings
    ]
    verdict = _best_verdict(verdicts)
    if verdict.status == "correct" and any(other.status != "correct" for other in verdicts):
        rule = f"{extracted.rule}/exclamation"
        verdict = verdict._replace(
            status="undecided", rule=rule, unread=f"the answer: “{readings[-1]}”"
        )
    return verdict._replace(answer=answer) if len(readings) > 1 else verdict


def _grade_extracted(
    gold: ParsedAnswer, extracted: ExtractedAnswer, response: str, tolerance: float | None
) -> Verdict:
    """Grade the answer that was extracted from a response."""
    answer = extracted.answer or ""
    is_marked = extracted.marked_answer is not None
    verdict = compare_answers(gold, answer, tolerance, is_marked=is_marked)
    if extracted.complete_box:
        verdict, answer = _compare_complete_box(gold, extracted, tolerance, verdict=verdict)
    if verdict.status in ("incorrect", "undecided") and extracted.rule == "last-maths":
        # A chain of equalities at the end of a response counts by its last side.
        marked = compare_answers(gold, answer, tolerance)
        verdict = marked if marked.status == "correct" else verdict
    if verdict.status == "correct" and extracted.rule in ("last-number", "last-maths"):
        # A unit after the number, or a name before it, may contradict the gold.
        number = read_answer(answer)
        quantity = _with_unit_of_sentence(gold, number, extracted.sentence)
        equation = _with_name(gold, quantity, extracted.sentence)
        if equation is not number:
            verdict = compare_answers(gold, equation, tolerance, is_marked=is_marked)
    is_guarded = is_marked and _is_guarded(gold, answer, tolerance, verdict)
    if verdict.status in ("incorrect", "undecided") and not is_guarded:
        verdict = _compare_alternatives(gold, extracted, response, tolerance, verdict=verdict)
    sentence = extracted.sentence
    if verdict.status != "correct" and sentence and _states_gold(gold, sentence):
        verdict = verdict._replace(
            status="correct", rule="sentence", answer_form=sentence, unread=""
        )
    is_doubted = extracted.doubt != "" and extracted.doubt not in gold.text
    if is_doubted and verdict.status in ("correct", "incorrect"):
        unread = f"the text around the answer: “{extracted.doubt}”"
        verdict = verdict._replace(status="undecided", unread=unread)
    return Verdict(
        status=verdict.status,
        answer=answer,
        rule=f"{extracted.rule}/{verdict.rule}",
        gold_form=verdict.gold_form,
        answer_form=verdict.answer_form,
        unread=verdict.unread,
    )


class MathGrader:
    """A grader of mathematical answers.

    Args:
        tolerance: The relative tolerance of requests without a tolerance of their own, or None for
            strict grading. See :func:`~fsdpo_data.answers.comparison.equivalence.compare_answers`.
    """

    def __init__(self, tolerance: float | None = None) -> None:
        self._tolerance = tolerance
        self.version = (
            GRADER_NAME if tolerance is None else f"{GRADER_NAME}+tolerance={tolerance:g}"
        )

    def grade(self, requests: Sequence[GradingRequest]) -> list[Verdict]:
        """Grade responses and return their verdicts in the same order."""
        read_gold = cache(read_answer)
        return [self._grade_safely(request, read_gold) for request in requests]

    def _grade_safely(self, request: GradingRequest, read_gold: ReadGold) -> Verdict:
        """Grade a response; a text for which a rule raises an exception is undecided."""
        try:
            return self._grade_request(request, read_gold)
        except Exception as error:
            return failed_verdict(error)

    def _grade_request(self, request: GradingRequest, read_gold: ReadGold) -> Verdict:
        """Grade a response, also without its tolerance."""
        tolerance = self._tolerance if request.tolerance is None else request.tolerance
        verdict = _grade_answer(request, read_gold, tolerance)
        if tolerance is None or verdict.status == "gold_unparsed":
            return verdict
        # Without a tolerance, no answer becomes correct.
        is_exactly_correct = verdict.status == "correct" and (
            _grade_answer(request, read_gold, tolerance=None).status == "correct"
        )
        return verdict._replace(exactly_correct=is_exactly_correct)


def _grade_answer(request: GradingRequest, read_gold: ReadGold, tolerance: float | None) -> Verdict:
    """Grade the part of a response after its thinking."""
    thinking = request.thinking
    response = request.response[thinking.end :]
    is_truncated = request.finish_reason != "stop"
    if request.grade_thinking and thinking.end > 0 and not response.strip():
        response = request.response[thinking.start :]
        # The last number in unfinished thinking is not a conclusion. In a truncated response
        # only marked answers count.
        is_truncated = True
    elif is_truncated and is_reconsidered(response):
        response = ""  # A doubt that is cut off leaves no answer.
    verdicts = []
    for gold in (request.gold, *request.alternative_golds):
        try:
            verdict = grade_response(
                read_gold(gold), response, tolerance, is_truncated=is_truncated
            )
        except Exception as error:  # the other golds may still be read
            verdict = failed_verdict(error)
        verdicts.append(verdict)
    verdict = _best_verdict(verdicts)
    is_unclosed = thinking.closed is False and not request.grade_thinking
    if is_unclosed and verdict.status == "no_answer":
        return verdict._replace(rule=UNCLOSED_THINKING_RULE)
    return verdict


def _best_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on the main gold, which comes first, unless another one counts more.

    An answer is correct if it matches one gold, and incorrect only if it differs from all of them.
    """
    for status in _DECIDING_STATUSES:
        for verdict in verdicts:
            if verdict.status == status:
                return verdict
    return verdicts[0]


def _compare_alternatives(
    gold: ParsedAnswer,
    extracted: ExtractedAnswer,
    response: str,
    tolerance: float | None,
    *,
    verdict: Verdict,
) -> Verdict:
    """Return the first verdict on an alternative reading that is neither incorrect nor undecided.

    Without one, the verdict on the answer itself is returned.
    """
    for reading in _alternative_readings(gold, extracted, response):
        if reading.text == extracted.answer:
            continue
        alternative = compare_answers(gold, reading, tolerance, is_marked=False)
        if alternative.status not in ("incorrect", "undecided"):
            return alternative
    return verdict


def _is_guarded(gold: ParsedAnswer, answer: str, tolerance: float | None, verdict: Verdict) -> bool:
    """Whether words of an answer change its number: "over 12", but not "30 (half an hour)"."""
    if verdict.rule != "guarded" or isinstance(gold.value, ValueList):
        return False
    main_part = _PATTERNS["restated_end"].sub("", answer)
    return compare_answers(gold, main_part, tolerance).rule == "guarded"


def _compare_complete_box(
    gold: ParsedAnswer, extracted: ExtractedAnswer, tolerance: float | None, *, verdict: Verdict
) -> tuple[Verdict, str]:
    """Return the verdict on a box with its sign, scale and unit, and the answer.

    The answer is undecided if the box alone, whose verdict is given, equals the gold, and the
    complete answer does not: the gold may be a part of a formula, or a number of millions.
    """
    answer = extracted.answer or ""
    box = read_answer(extracted.complete_box)
    complete = _with_unit(gold, box, extracted.text_after_box)
    if complete.text == answer or isinstance(complete.value, Words):
        return verdict, answer
    complete_verdict = compare_answers(gold, complete, tolerance)
    if verdict.status == "correct" and complete_verdict.status != "correct":
        unread = f"the answer: “{complete.plain}”"
        complete_verdict = complete_verdict._replace(status="undecided", unread=unread)
    return complete_verdict, complete.text


def _with_unit_of_sentence(gold: ParsedAnswer, number: ParsedAnswer, sentence: str) -> ParsedAnswer:
    """Return the last number of a sentence together with its unit, if the gold has a unit."""
    if not number.text.strip() or number.text not in sentence:
        return number
    return _with_unit(gold, number, sentence.rpartition(number.text)[2])


def _with_unit(gold: ParsedAnswer, number: ParsedAnswer, text_after: str) -> ParsedAnswer:
    """Return a number with the unit that follows in its text, if the gold has a unit."""
    if not (isinstance(gold.value, Quantity) and gold.value.unit.dims):
        return number
    unit_text = plain_text(text_after[:_MAX_UNIT_CHARS]).lstrip(" *\\)]")
    match = _PATTERNS["unit"].match(clean("0 " + unit_text))
    unit = find_unit(match["word"]) if match else None
    if not (match and unit and unit.dims):
        return number
    is_rate = any(power < 0 for _, power in gold.value.unit.dims)
    rate = (match["rate"] or "") if is_rate else ""
    return add_unit(number, match["unit"] + rate)


def _with_name(gold: ParsedAnswer, number: ParsedAnswer, sentence: str) -> ParsedAnswer:
    """Return the last number of a sentence with its name, if the gold has a name: "y = 2"."""
    is_named = isinstance(gold.value, tree.Relation) and isinstance(gold.value.parts[0], tree.Sym)
    if not is_named or number.text not in sentence or "=" in number.text:
        return number
    name = _PATTERNS["name"].search(sentence.rpartition(number.text)[0])
    return add_name(number, name[1]) if name else number


def _alternative_readings(
    gold: ParsedAnswer, extracted: ExtractedAnswer, response: str
) -> Iterator[ParsedAnswer]:
    """Yield other answers that the response may mean, depending on the type of the gold."""
    answer = extracted.answer or ""
    number = read_answer(answer)
    is_unboxed_prose = not extracted.rule.startswith("boxed") and is_words(answer)
    if is_unboxed_prose and (value := extracted.statement_value) is not None:
        yield _with_unit_of_sentence(gold, read_answer(value), answer)
    if extracted.rule == "last-number":
        yield _with_unit_of_sentence(gold, number, extracted.sentence)
    if isinstance(gold.value, Words) and (
        word := unmarked.opening_yes_or_no(strip_next_problem(response))
    ):
        yield read_answer(word)
    if isinstance(gold.value, _COMPOUND_TYPES):
        yield from map(read_answer, _compound_answers(gold, extracted, response))


def _compound_answers(
    gold: ParsedAnswer, extracted: ExtractedAnswer, response: str
) -> Iterator[str]:
    """Yield the texts of a response that may state all parts of a gold with several parts."""
    answer = extracted.answer or ""
    statement = extracted.sentence or unwrap_text(answer)
    yield unmarked.clause_values(statement) or answer
    yield unmarked.concluding_clause(statement) or answer
    yield unmarked.closing_cases(strip_next_problem(response), extracted.sentence) or answer
    if isinstance(gold.value, ValueList) and len(gold.value.items) > 1:
        n_items = len(gold.value.items)
        text = strip_next_problem(response)
        boxes = find_boxes(text)
        if len(boxes) == n_items:
            context = text[max(boxes[0].start - _MAX_LABEL_CHARS, 0) :]
            yield in_order([box.content for box in boxes], context)
        yield parallel_values(text, n_items) or answer
    if not extracted.rule.startswith("boxed"):
        yield closing_equations(strip_next_problem(response)) or answer


def _states_gold(gold: ParsedAnswer, sentence: str) -> bool:
    """Whether a sentence such as "So Brand B is cheaper" states a gold of words or a date.

    Use it only for responses without a marked answer. The sentence must begin with the gold, or
    end with it after "is", "in" or a similar word. A sentence that denies, hedges or reverses a
    comparison does not count.
    """
    value = gold.value
    if isinstance(value, DateOrTime):
        return value.month is not None and find_dates(sentence) == [value]
    if not isinstance(value, Words):
        return False
    gold_words = _normalized_words(gold.plain)
    words = _normalized_words(plain_text(clean(_REASON.sub("", sentence, 1))))
    while words and words[0] in _CONNECTIVES:
        words = words[1:]
    if not 0 < len(gold_words) <= MAX_GOLD_WORDS or not len(gold_words) <= len(words):
        return False
    if gold_words in (["yes"], ["no"]) and _PATTERNS["no_verdict"].match(sentence):
        return False
    doubts = (set(words) & _DOUBT_WORDS) - set(gold_words)
    # "Tom finished last" names Tom, but denies that he won.
    ends_with_last = words[-1] == "last" and gold_words[-1] != "last"
    if doubts or ends_with_last or any(word.endswith("n't") for word in words):
        return False
    if words[: len(gold_words)] == gold_words:
        # "Tom runs 5 km and Jerry runs 7 km", "Alice thinks it is Bob", "Alice finished second"
        following = words[len(gold_words) : len(gold_words) + 2]
        text_after = _REASON.sub("", sentence, 1).rpartition(gold.plain)[2]
        has_other_subject = _PATTERNS["second_clause"].search(text_after)
        is_other_rank = bool(set(following[1:]) & _LATER_RANKS)
        return not (set(following[:1]) & _JOINING_WORDS or has_other_subject or is_other_rank)
    previous_word = words[-len(gold_words) - 1 : -len(gold_words)]
    is_introduced = bool(set(previous_word) & (_INTRODUCING_WORDS | _CONNECTIVES))
    return words[-len(gold_words) :] == gold_words and is_introduced


def _normalized_words(plain: str) -> list[str]:
    """Return the words of a plain text in lower case, without articles."""
    plain = plain.replace("hey're", "hey are")  # "They're" and "they're"
    words = _WORD.findall(plain)
    content_words = words[:1] if words and words[0].lower() not in _ARTICLES else []
    # The comparison respects case, so the "A" of "Brand A" stays.
    content_words += [word for word in words[1:] if word not in _ARTICLES]
    return [word.lower() for word in content_words]
