"""Unmarked answers: the last formula or number of the last sentence that contains one."""

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
from fsdpo_data.answers.extraction.values import (
    StatedValue,
    ends_with_bound,
    find_values,
    value_and_rule,
)
from fsdpo_data.answers.lexicon.vocabulary import contains_any, has_foreign_script
from fsdpo_data.answers.lexicon.words import SCALES, SMALL_NUMBERS

_PATTERNS = load_phrases("unmarked")

_HAS_WORD = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}")
CONFIRMATION = _PATTERNS["confirmation"]
#: Verbs before an answer at the end of a sentence: "so the fastest of them is Evelyn".
_BE_FORMS = frozenset(("is", "are", "was", "were"))
_MAX_REFUTED_CHARS = 80  #: Maximum length of a text that only denies a value.
_MAX_NAME_WORDS = 5  #: Maximum words of an answer at the end of a sentence.
_SENTENCE_VERB = _PATTERNS["sentence_verb"]
_PLEASANTRY = _PATTERNS["pleasantry"]


def statement_value(statement: str) -> str | None:
    """Return the final formula or number of a statement in words, or the words after "is".

    Returns None for a statement without words, because the statement itself is a value. Also
    returns None if the statement offers several values or only a bound.
    """
    if not (_HAS_WORD.search(statement) or has_foreign_script(statement)):
        return None
    clause = _main_clause(statement)
    values = find_values(clause)
    if values:
        return value_and_rule(clause, values)[0]
    return _named_answer(clause)


_NUMBER_WORDS = "|".join((*list(SMALL_NUMBERS)[2:], *SCALES))
_OPERATIONS = "root|plus|minus|times|over|squared|cubed|factorial|pi"
_AFTER_OPERATION = "".join(
    rf"(?<!\b{word}\s)" for word in ("root", "plus", "minus", "times", "over", "log", "ln")
)
#: A number in words that is not a part of a calculation, as in "two root three".
_SPELLED_NUMBER = (
    rf"{_AFTER_OPERATION}\b(?:(?:{_NUMBER_WORDS}|one|an?(?=\s(?:{_NUMBER_WORDS})))[\s-]+(?:and\s+)?)*"
    rf"(?:{_NUMBER_WORDS})(?!\s+(?:{_OPERATIONS})\b)"
)
#: A conclusion without digits: "so he pays twenty dollars", "so it does not exist".
_WORD_CONCLUSION = re.compile(rf"{_PATTERNS['predicate'].pattern}|{_SPELLED_NUMBER}\b")
_SPELLED_NUMBER_AT_END = re.compile(rf"{_SPELLED_NUMBER}(?:\s+[a-z]+)?[.!*\s]*$")


def concluding_clause(statement: str) -> str:
    """Return the conclusion of a statement: "x > 3" for "2x > 6, so x > 3"."""
    if not contains_any(statement, TRIGGER_WORDS["conclusion"]):
        return statement
    clause_starts = [match.end() for match in _PATTERNS["conclusion"].finditer(statement)]
    for start in reversed(clause_starts):
        if find_values(statement[start:]) or _WORD_CONCLUSION.search(statement, start):
            return statement[start:]
    return statement


def _main_clause(statement: str) -> str:
    """Return the conclusion of a statement, without additions to its value."""
    statement = concluding_clause(_PATTERNS["restatement"].split(statement, maxsplit=1)[0])
    statement = _without_circumstance(statement)
    counted_things = _PATTERNS["counted_things"].fullmatch(statement)
    if counted_things and not _SENTENCE_VERB.search(statement):
        cut = counted_things.end(1)
        if not any(value.start < cut < value.end for value in find_values(statement)):
            return counted_things[1]
    for addition in _PATTERNS["addition"].finditer(statement):
        clause = _cut_clause(statement, addition.start())
        if not (_has_new_value(clause) or _WORD_CONCLUSION.search(clause)):
            continue
        if _PATTERNS["predicate_after_addition"].match(statement, addition.end()):
            continue
        is_location = addition[0].startswith((" where", ", where"))
        if not (is_location and _PATTERNS["attained"].search(clause)):
            return _main_clause(clause)
    purposes = _PATTERNS["purpose"].finditer(statement) if " to " in statement else ()
    for purpose in purposes:
        clause = _cut_clause(statement, purpose.start())
        if _PATTERNS["need"].search(clause) and _has_new_value(clause):
            return _main_clause(clause)
    return statement


def _cut_clause(statement: str, end: int) -> str:
    """Return the start of a statement; after "5!", a full stop shows that the 5! is a factorial."""
    clause = statement[:end]
    return f"{clause}." if clause.endswith("!") else clause


def _without_circumstance(statement: str) -> str:
    """Return "9 people come" for "If it costs $5, 9 people come"; keep a clause with a value."""
    circumstance = _PATTERNS["circumstance"].match(statement) if ", " in statement else None
    if circumstance is None or not find_values(circumstance[0]):
        return statement
    return (
        statement[circumstance.end() :]
        if find_values(statement[circumstance.end() :])
        else statement
    )


def _has_new_value(clause: str) -> bool:
    """Whether a clause has a value that is neither given in the problem nor a bound."""
    texts_before = (clause[: value.start] for value in find_values(clause))
    return any(
        not _PATTERNS["before_given_number"].search(text) and not ends_with_bound(text)
        for text in texts_before
    )


def _named_answer(statement: str) -> str | None:
    """Return the "yes" or "no" at the start of a statement, or the words after its last "is"."""
    if yes_or_no := opening_yes_or_no(statement):
        return yes_or_no
    words = statement[-200:].rstrip(".!* ").split()[-_MAX_NAME_WORDS - 1 :]
    verb_indices = [index for index, word in enumerate(words[:-1]) if word in _BE_FORMS]
    return " ".join(words[verb_indices[-1] + 1 :]).strip("*") if verb_indices else None


def opening_yes_or_no(text: str) -> str | None:
    """Return the "yes" or "no" at the start of a text, unless the text repeats such a word."""
    opening = _PATTERNS["yes_or_no"].match(text)
    if not opening or _PATTERNS["yes_or_no_word"].search(text, opening.end()):
        return None
    return str(opening.group(1))


def clause_values(sentence: str) -> str | None:
    """Return the values of "the least is 1 and the greatest is 3", joined with commas.

    A name before a value, as in "x = 3", stays. Returns None for a sentence of another form. Values
    with an order ("the first … the second") form a tuple.
    """
    values = find_values(sentence) if _HAS_WORD.search(sentence) else []
    if len(values) < 2 or _PATTERNS["conclusion"].search(sentence, values[0].end):
        return None
    order_word = _PATTERNS["order_word"].search(sentence)
    are_stated = all(
        _PATTERNS["before_clause_value"].search(sentence, 0, value.start) for value in values
    )
    are_equations = all("=" in value.text for value in values)
    are_respective = order_word is not None and order_word[0] == "respectively"
    if not (are_stated or are_equations or are_respective):
        return None
    ends = [_PATTERNS["clause_end"].search(sentence, value.end) for value in values]
    names = [_PATTERNS["clause_name"].search(sentence, 0, value.start) for value in values]
    joined = " , ".join(
        sentence[name.start() if name else value.start : end.start() if end else None]
        for name, value, end in zip(names, values, ends, strict=True)
    )
    return f"({joined})" if order_word else joined


def closing_cases(text: str, sentence: str) -> str | None:
    """Return the results of the cases of a text, if its last sentence confirms all of them."""
    confirmation = CONFIRMATION.fullmatch(sentence)
    if not confirmation:
        return None
    cases = _PATTERNS["case"].split(text.rpartition(sentence)[0])[1:]
    conclusions = [last_sentence(case) for case in cases]
    valid = [part for part in conclusions if not _PATTERNS["refutation"].match(part)]
    values = [statement_value(case) or case.strip(" .*$") for case in valid]
    expects_two = confirmation["both"]
    has_expected_count = len(values) == 2 if expects_two else len(values) > 1
    return " , ".join(values) if has_expected_count and all(values) else None


def last_sentence(text: str) -> str:
    """Return the last sentence about the problem, or "" if the text has no such sentence."""
    return next(_iterate_sentences(text, max_lines=20), "")


def _iterate_sentences(text: str, max_lines: int = 40) -> Iterator[str]:
    """Yield the sentences of the last lines without step numbers, the last sentence first."""
    for line in reversed(text_tail(text, TAIL_CHARS).splitlines()[-max_lines:]):
        step_number = _PATTERNS["step_number"].match(line)
        line = line[step_number.end() :] if step_number else line
        cuts = [0, *(match.end() for match in SENTENCE_END.finditer(line)), len(line)]
        parts = [line[start:end].strip() for start, end in pairwise(cuts)]
        yield from reversed([part for part in parts if part and not _PLEASANTRY.match(part)])


def extract_unmarked(text: str, sentence: str) -> tuple[str | None, str]:
    """Return the answer of a text without markers, or None, and the extraction rule.

    ``sentence`` is the last sentence of the text.
    """
    stripped = text.strip()
    if _has_no_answer(stripped, sentence):
        return None, "none"
    items = closing_list(stripped)
    if items is not None:
        return items, "list"
    labelled = _labelled_line(stripped)
    if labelled is not None:
        return labelled, "labelled-line"
    bold = _bold_answer(sentence)
    if bold is not None:
        values = find_values(bold)
        if values or not _PATTERNS["predicate"].search(bold):
            return bold, value_and_rule(bold, values)[1] if values else "last-bold"
    clause = _main_clause(sentence)
    values = find_values(clause)
    worded = _worded_answer(clause, values, is_complete=clause == sentence)
    if worded is not None:
        return worded, "last-sentence"
    explanation = sentence if _PATTERNS["relative_clause"].match(sentence) else ""
    formulas = closing_formulas(stripped.removesuffix(explanation))
    if formulas is not None:
        return formulas, "last-maths"
    is_short = len(stripped) <= MAX_BARE_ANSWER_CHARS
    is_only_content = is_short and "\n" not in stripped and stripped == sentence
    if is_only_content and not _SENTENCE_VERB.search(stripped) and not has_foreign_script(stripped):
        return _PATTERNS["line_mark"].sub("", clause), "whole"
    if cases := closing_cases(stripped, sentence):
        return cases, "list"
    return _last_value(text, sentence, clause, values)


def _labelled_line(text: str) -> str | None:
    """Return the value after a label on the last line, "Tulos: 12"; None in English texts."""
    line = _PATTERNS["labelled_line"].search(text, max(text.rfind("\n"), 0))
    if line is None or "\n" not in text or _PATTERNS["english"].search(text):
        return None
    return line["value"].strip()


def _has_no_answer(stripped: str, sentence: str) -> bool:
    """Whether a text contradicts itself, denies a value, or only announces an answer."""
    openings = [_PATTERNS["yes_or_no"].match(part) for part in (stripped, sentence)]
    answers = {opening[1].lower() for opening in openings if opening}
    if len(answers) > 1:  # "**No.** Yes, it is."
        return True
    if len(stripped) <= _MAX_REFUTED_CHARS and _PATTERNS["refuted_value"].fullmatch(stripped):
        return True
    return _PATTERNS["announcement_only"].fullmatch(stripped) is not None


def _worded_answer(clause: str, values: list[StatedValue], *, is_complete: bool) -> str | None:
    """Return the answer of a clause in words: "does not exist", "twenty dollars", or None.

    Args:
        clause: The main clause of the last sentence.
        values: The formulas and numbers of the clause.
        is_complete: Whether the clause is the complete sentence.
    """
    predicates = list(_PATTERNS["predicate"].finditer(clause))
    if predicates:
        last_predicate = predicates[-1]
        between = clause[values[-1].end : last_predicate.start()] if values else ""
        ends_clause = not clause[last_predicate.end() :].strip(" .*$!。")
        if not values or (ends_clause and not _PATTERNS["clause_joint"].search(between)):
            return last_predicate[0]
    if not values:
        pattern = _SPELLED_NUMBER_AT_END if is_complete else _WORD_CONCLUSION
        spelled = pattern.search(clause)
        if spelled:
            return clause[spelled.start() :]
    return None


def _last_value(
    text: str, sentence: str, clause: str, values: list[StatedValue]
) -> tuple[str | None, str]:
    """Return the value of the last sentence that has one, or None, and the extraction rule.

    Args:
        text: The text to search.
        sentence: Its last sentence, which is the answer if no sentence has a clear value.
        clause: The main clause of ``sentence``.
        values: The values of ``clause``.
    """
    for candidate in _iterate_sentences(text):
        if candidate != sentence:
            clause = _main_clause(candidate)
            values = find_values(clause)
        if not values and _PATTERNS["latex_command"].search(clause):
            break  # a conclusion that is not read
        if values and not _PATTERNS["relative_clause"].match(clause):
            answer, rule = value_and_rule(clause, values, text)
            return (answer, rule) if answer else (sentence, "last-sentence")
    return (sentence, "last-sentence") if sentence else (None, "none")


def _bold_answer(sentence: str) -> str | None:
    """Return the only bold text of a sentence, or None if it is not the answer.

    If the sentence has a value, the bold text must contain a value, too, or be a choice.
    """
    bold_texts: list[str] = [text.strip() for text in _PATTERNS["bold"].findall(sentence)]
    if len(bold_texts) != 1 or bold_texts[0].endswith(":"):
        return None
    bold = bold_texts[0]
    if find_values(sentence) and not (find_values(bold) or _PATTERNS["choice"].fullmatch(bold)):
        return None
    if ends_with_bound(sentence[: sentence.find("**") + 2]):
        return None
    return bold.removesuffix("'s").removesuffix("’s")
