r"""Extract the answer of a response: boxes first, then announcements, then the last value.

Every scan takes linear time and starts at the end of the text, so a megabyte of braces costs no
more than a page. This module does not decide whether an answer is correct.
"""

import re
from itertools import islice
from typing import NamedTuple

from fsdpo_data.answers.extraction import retractions
from fsdpo_data.answers.extraction.announced import is_value, last_announced
from fsdpo_data.answers.extraction.boxes import (
    Box,
    find_boxes,
    has_open_box,
    search_window,
    truncated_box_content,
)
from fsdpo_data.answers.extraction.multi_part import announced_list
from fsdpo_data.answers.extraction.phrases import load_phrases
from fsdpo_data.answers.extraction.unmarked import (
    CONFIRMATION,
    concluding_clause,
    extract_unmarked,
    last_sentence,
    statement_value,
)
from fsdpo_data.answers.extraction.values import CONJUNCTION, JOINING_TEXT
from fsdpo_data.answers.lexicon.languages import NUMBER, find_guard
from fsdpo_data.answers.parsing.clean import restore_escapes
from fsdpo_data.answers.thinking import without_tagged_thinking

_PATTERNS = load_phrases("extract")
_NEXT_PROBLEM = _PATTERNS["next_problem"]

#: The extraction rules for answers that the response marks as its answer.
MARKED_RULES = frozenset(
    ("boxed", "boxed-list", "hash", "final-answer", "answer-is", "choice", "label", "corrected")
)
#: Maximum characters between two boxes that form one answer.
_MAX_GAP_CHARS = 80
_MAX_SIGN_CHARS = 12  #: Characters before a box in which its sign is searched.
_MAX_GUARDED_CHARS = 400  #: A longer statement is not searched for foreign words that change it.
_MAX_WORDS_CHARS = 40  #: Characters before a box in which words that deny it are searched.
_MAX_UNIT_CHARS = 60  #: Characters after a box in which its scale and its unit are searched.
_MAX_ANNOUNCED_WORDS = 4  #: Maximum words of an announced answer that replaces a box before it.
_WORD = re.compile(r"(?<!\\)\b[A-Za-z]{2,}")
#: The first two characters of an announced answer that may be a list or a table.
_LIST_STARTS = ("- ", "* ", "• ", "1.", "1)", "| ")
#: Maximum headings to check. The limit bounds the cost of a text full of headings.
_MAX_HEADINGS = 8
#: End-of-turn tokens that some samplers leave in the text.
_END_TOKENS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "</s>",
    "<｜end▁of▁sentence｜>",
)
_TAG_START = re.compile("<[/|｜]")  #: The start of an end-of-turn token or of ``</think>``.
#: Zero-width characters and direction marks.
_INVISIBLE_CHARS = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
_EMOJI = re.compile("[\u2600-\u26ff\u2705\u2714\u2728\u2b50\ufe0e\ufe0f\U0001f300-\U0001faff]")
#: Emoji at the start or the end of a line. A cross may mark a wrong answer, and stays.
_DECORATION = re.compile(rf"(?m)^[ \t]*{_EMOJI.pattern}+[ \t]*|[ \t]*{_EMOJI.pattern}+(?=\s*$)")
_OTHER_CASE = _PATTERNS["other_case"]
_END_OF_PROOF = re.compile(r"\s*(?:\$?\\(?:blacksquare|square|qed)\$?|[∎■□])\Z")
#: Possible ends of an end-of-proof sign.
_END_OF_PROOF_SUFFIXES = ("square", "square$", "qed", "qed$", "∎", "■", "□")
_HORIZONTAL_RULES = ("---", "***", "___")  #: Markdown for a line below an answer.
_DOUBT = _PATTERNS["doubt"]
_CONCLUSION = _PATTERNS["conclusion"]


class ExtractedAnswer(NamedTuple):
    """The answer of a response, with the rule that extracted it."""

    answer: str | None  #: The answer by the first rule that applies, or None.
    #: The extraction rule.
    #:
    #: - ``boxed``: the last box
    #: - ``boxed-list``: several boxes that are parts of one answer, or several candidates
    #: - ``hash``: ``####``
    #: - ``final-answer``, ``answer-is``, ``choice``: "Final answer", "the answer is", "option (B)"
    #: - ``label``: "Answer:" or "A:"
    #: - ``boxed-truncated``: the last box, which the response does not close
    #: - ``whole``: a response that is nothing but its answer
    #: - ``list``: items at the end of the text
    #: - ``labelled-line``: the value after a label on the last line of a text that is not English
    #: - ``last-maths``, ``last-number``, ``last-bold``, ``last-sentence``: the last formula,
    #:   number, bold text or sentence
    #: - ``corrected``: the replacement of a retracted answer
    #: - ``none``: no answer
    rule: str
    #: The last sentence of a response without a marked answer, to compare with golds in words.
    sentence: str = ""
    surrender_phrase: str | None = None  #: The words that admit the response has no answer.
    #: The content of a single box with the sign and scale that touch it: "-4" for ``-\boxed{4}``.
    complete_box: str = ""
    text_after_box: str = ""  #: The text after such a box, which may begin with a unit.
    #: The words or signs that leave open whether the answer is meant: "not", "Wait".
    doubt: str = ""

    @property
    def statement_value(self) -> str | None:
        """The value in an answer in words: 5 for "5 apples are left".

        Try the value if the words do not match the gold. None if the words offer several values.
        """
        return self.surrender_phrase or statement_value(self.answer or "")

    @property
    def marked_answer(self) -> str | None:
        """The answer if the response marks it by a rule of ``MARKED_RULES``, else None."""
        return self.answer if self.rule in MARKED_RULES else None


def extract_answer(response: str) -> ExtractedAnswer:
    """Extract the answer of ``response``; never raises an exception on its text."""
    extracted = _extract_answer(strip_next_problem(response))
    if extracted.answer is None or extracted.doubt:
        return extracted
    return extracted._replace(doubt=_foreign_guard(extracted))


def _foreign_guard(extracted: ExtractedAnswer) -> str:
    """Return the foreign words that change the number of an answer: "не менее 12"; or ""."""
    answer = extracted.answer or ""
    numbers = NUMBER.findall(answer[:_MAX_GUARDED_CHARS])
    if not numbers:
        return ""
    if extracted.marked_answer:
        return find_guard(answer[:_MAX_GUARDED_CHARS], numbers[0])
    return find_guard(extracted.sentence[:_MAX_GUARDED_CHARS], numbers[-1])


def _extract_answer(text: str) -> ExtractedAnswer:
    """Extract the answer of a text that ends with it."""
    boxes = [box for box in find_boxes(text) if box.content]
    if boxes:
        boxes = _without_supposed_box(text, boxes)
        extracted = _answer_after_boxes(text, boxes) or extract_boxes(text, boxes)
        return _without_retracted_part(extracted)
    announced = last_announced(text)
    if announced is not None:
        text_after = text[announced.end :]
        if retractions.end_of_retraction(text_after) is not None:
            return _find_correction(text_after)
    open_box = None
    if announced is None or "box" in announced.answer:
        open_box = truncated_box_content(text)
    if announced is not None and open_box is None:
        answer = announced.answer
        if answer[:2] in _LIST_STARTS:
            answer = announced_list(text, announced.end, answer)
        return _without_retracted_part(ExtractedAnswer(answer, announced.rule))
    return _extract_unannounced(text, open_box)


def _without_retracted_part(extracted: ExtractedAnswer) -> ExtractedAnswer:
    """Drop what the answer itself takes back: "No, wait: yes" becomes "yes"."""
    answer = extracted.answer or ""
    kept_part = retractions.drop_retracted_part(answer)
    return extracted if kept_part == answer else extracted._replace(answer=kept_part or None)


def _extract_unannounced(text: str, open_box: str | None) -> ExtractedAnswer:
    """Extract the answer of a text without closed boxes and announcements.

    ``open_box`` is the content of a box that the text does not close, or None.
    """
    sentence = last_sentence(text)
    unretracted = retractions.after_last_retraction(sentence)
    if unretracted != sentence:
        text = unretracted
        sentence = unretracted
    if open_box:
        return ExtractedAnswer(open_box, "boxed-truncated", sentence=sentence)
    if sentence and retractions.is_unfinished(text, sentence):
        return ExtractedAnswer(None, "none")
    if sentence and (surrender := retractions.surrender_phrase(text)):
        return ExtractedAnswer(
            sentence, "last-sentence", sentence=sentence, surrender_phrase=surrender
        )
    answer, rule = extract_unmarked(text, sentence)
    return ExtractedAnswer(answer, rule, sentence=sentence)


def is_reconsidered(response: str) -> bool:
    """Whether a truncated response does not stay with its marked answer.

    It goes on to a doubt, "8, or maybe not, I", or to a box that it does not close.
    """
    text = strip_next_problem(response)
    boxes = find_boxes(text)
    announced = None if boxes else last_announced(text)
    end = boxes[-1].end if boxes else announced.end if announced else len(text)
    text_after = text[end:]
    if has_open_box(text_after):
        return True
    is_doubted = _DOUBT.search(text_after) or _PATTERNS["reconsideration"].search(text_after)
    return is_doubted is not None and _find_conclusion(text_after) is None


def is_marked_rule(rule: str) -> bool:
    """Whether the rule of a verdict, e.g. ``boxed/number``, is based on a marked answer."""
    return rule.partition("/")[0] in MARKED_RULES


def strip_next_problem(response: str) -> str:
    """Return the end of a response up to its answer.

    Drops thinking, later turns, decoration below the answer, and a next problem that the model
    starts after a finished answer.
    """
    text = restore_escapes(search_window(response))
    if _TAG_START.search(text):
        text = _first_turn_without_thinking(text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        text = _INVISIBLE_CHARS.sub("", text)
        if _EMOJI.search(text):
            text = _DECORATION.sub("", text)
    text = text.rstrip()
    if text[-3:] in _HORIZONTAL_RULES:
        text_above = text.rstrip(text[-1])
        if text_above[-1:] == "\n":
            text = text_above.rstrip()
    if text.endswith(_END_OF_PROOF_SUFFIXES):
        proof_sign = _END_OF_PROOF.search(text, len(text) - 16)
        if proof_sign:
            text = text[: proof_sign.start()]
    headings = _NEXT_PROBLEM.finditer(text) if _NEXT_PROBLEM.search(text) else ()
    for heading in islice(headings, _MAX_HEADINGS):
        text_before = text[: heading.start()]
        is_turn = text_before.strip() and heading[0].lstrip().startswith(("Human:", "User:"))
        # "Question 2:" after "Question 1:" continues with a part of the same problem.
        is_part = heading["number"] and _PATTERNS["numbered_part"].search(text_before)
        if is_turn or (not is_part and (find_boxes(text_before) or last_announced(text_before))):
            return text_before
    return text


def _first_turn_without_thinking(text: str) -> str:
    """Return the first turn of a text, without its thinking.

    A token before all other text does not end a turn, and thinking with no text after it stays.
    """
    ends = [text.find(token) for token in _END_TOKENS]
    text = text[: min((end for end in ends if text[: max(end, 0)].strip()), default=None)]
    return without_tagged_thinking(text)


def _answer_after_boxes(text: str, boxes: list[Box]) -> ExtractedAnswer | None:
    """Return the answer that replaces the last box, or None if the box is the answer."""
    text_after = text[boxes[-1].end :]
    if len(text_after) < 12:
        return None
    end_of_retraction = retractions.end_of_retraction(text_after)
    is_retracted = end_of_retraction is not None
    if is_retracted and _PATTERNS["confirmation"].search(text_after, end_of_retraction or 0):
        return None
    if is_retracted or _is_denied(boxes[-1].content, text_after):
        correction = _find_correction(text_after)
        retracted = retractions.retracted_statement(text_after) if is_retracted else ""
        if correction.answer is None and _has_other_number(retracted, boxes[-1].content):
            return extract_boxes(text, boxes)._replace(doubt=retracted.strip())
        return correction
    if doubt := _DOUBT.search(text_after):
        conclusion = _find_conclusion(text_after[doubt.end() :])
        return conclusion or _extract_doubted_box(text, boxes, text_after[doubt.end() :])
    announced = last_announced(text_after)
    if announced is None or not _PATTERNS["value"].search(announced.answer):
        return None
    is_prose = len(_WORD.findall(announced.answer)) > _MAX_ANNOUNCED_WORDS
    if announced.rule != "final-answer" and (is_prose or announced.rule == "label"):
        return None  # "the answer is obtained by …", "check the answer: …" explain the box
    if announced.rule in ("answer-is", "final-answer"):
        is_stated = _PATTERNS["subject"].search(text_after[: announced.start])
        if not (is_stated and is_value(announced.answer)):
            return None  # "twice the answer is 24", "the answer is divisible by 3"
    return ExtractedAnswer(announced.answer, announced.rule)


def _extract_doubted_box(text: str, boxes: list[Box], text_after: str) -> ExtractedAnswer | None:
    """Return the last box with a doubt if the text after a doubt comes to another value.

    Args:
        text: The text of the boxes.
        boxes: The boxes with a content; at least one.
        text_after: The text after a word such as "Wait".
    """
    sentence = last_sentence(text_after)
    new_value = _PATTERNS["new_value"].search(sentence)
    if new_value is None or _PATTERNS["approval"].search(text_after):
        return None
    if not _has_other_number(new_value["value"], boxes[-1].content):
        return None
    return extract_boxes(text, boxes)._replace(doubt=sentence)


def _has_other_number(text: str, answer: str) -> bool:
    """Whether a text has a number that an answer does not have."""
    return bool(set(NUMBER.findall(text)) - set(NUMBER.findall(answer)))


def _without_supposed_box(text: str, boxes: list[Box]) -> list[Box]:
    """Drop a last box that only a supposition gives: "If n were even, it is 24, which is wrong"."""
    if len(boxes) < 2 or not _PATTERNS["rejection"].match(text, boxes[-1].end):
        return boxes
    text_before = text[boxes[-2].end : boxes[-1].start]
    is_supposed = _PATTERNS["supposition"].search(text_before) is not None
    return boxes[:-1] if is_supposed else boxes


def _is_denied(answer: str, text: str) -> bool:
    """Whether a text denies an answer: "so 18 is not a solution"."""
    answer = answer.rstrip("$) ")
    denials = _PATTERNS["denial"].finditer(text) if " not " in text and answer else ()
    subjects = [text[: denial.start()].rstrip("$)\\ \n") for denial in denials]
    # "-3 is not valid" does not deny 3.
    return any(
        subject.endswith(answer)
        and not _PATTERNS["value_start"].search(subject[: -len(answer)][-8:])
        for subject in subjects
    )


def _find_correction(text: str) -> ExtractedAnswer:
    """Return the answer that follows a retracted one, or an empty answer if none follows."""
    text = text[retractions.end_of_retraction(text) or 0 :]
    conclusion = _find_conclusion(text)
    if conclusion is not None:
        return conclusion
    replacement = retractions.replacement_answer(text)
    if replacement is not None:
        return ExtractedAnswer(replacement, "corrected")
    return ExtractedAnswer(None, "none")


def _find_conclusion(text: str) -> ExtractedAnswer | None:
    """Return the announced answer of a text, or the conclusion of its last sentence."""
    announced = last_announced(text)
    if announced is not None:
        return ExtractedAnswer(announced.answer, "corrected")
    sentence = last_sentence(text)
    if not _CONCLUSION.search(sentence):
        return None
    return ExtractedAnswer(concluding_clause(sentence), "corrected")


def extract_boxes(text: str, boxes: list[Box]) -> ExtractedAnswer:
    """Return the last box, or the last boxes if they are parts of one answer.

    Args:
        text: The text of the boxes.
        boxes: The boxes with a content; at least one.
    """
    answer_boxes = [boxes[-1]]
    if len(boxes) > 1:
        confirmation = CONFIRMATION.fullmatch(last_sentence(text[boxes[-1].end :]))
        if confirmation:
            are_two = len({box.content for box in boxes}) == 2
            expects_two = confirmation["both"]
            answer_boxes = boxes if are_two or not expects_two else answer_boxes
    for box in reversed(boxes[: -len(answer_boxes)]):
        if not _is_one_answer(text[box.end : answer_boxes[0].start]):
            break
        answer_boxes.insert(0, box)
    contents = list(dict.fromkeys(box.content for box in answer_boxes))
    rule = "boxed" if len(contents) == 1 else "boxed-list"
    doubt = _doubt_around(boxes[-1], text) if len(answer_boxes) == 1 else ""
    if len(answer_boxes) == 1 and _is_touched(boxes[-1], text):
        return _extract_touched_box(boxes[-1], text)._replace(doubt=doubt)
    return ExtractedAnswer(" , ".join(contents), rule, doubt=doubt)


def _doubt_around(box: Box, text: str) -> str:
    """Return what denies a box, or what makes it a part of a formula, or ""."""
    text_before = text[max(box.start - _MAX_WORDS_CHARS, 0) : box.start]
    if guard := _PATTERNS["guard_before_box"].search(text_before):
        return guard[0].strip()
    guard = _PATTERNS["guard_after_box"].match(text, box.end)
    return guard[0].strip() if guard else ""


def _is_touched(box: Box, text: str) -> bool:
    """Whether the text around a box may have its sign, its scale or its unit."""
    text_before = text[max(box.start - _MAX_SIGN_CHARS, 0) : box.start]
    return bool(
        _PATTERNS["minus_before_box"].search(text_before)
        or _PATTERNS["word_after_box"].match(text, box.end)
        or _PATTERNS["factor_after_box"].match(text, box.end)
    )


def _extract_touched_box(box: Box, text: str) -> ExtractedAnswer:
    """Return a box with the minus sign before it, the scale after it, and the text after it."""
    content = box.content
    text_before = text[max(box.start - _MAX_SIGN_CHARS, 0) : box.start]
    text_after = text[box.end :][:_MAX_UNIT_CHARS]
    is_negative = _PATTERNS["minus_before_box"].search(text_before) is not None
    is_value = not set(",=") & set(content)
    if is_negative and is_value and _PATTERNS["end_after_box"].match(text_after):
        has_terms = set("+-−±") & set(content) or "\\pm" in content
        content = f"-({content})" if has_terms else f"-{content}"
    if word := _PATTERNS["word_after_box"].match(text_after):
        content += f" {word['scale']}" if word["scale"] else ""
    if factor := _PATTERNS["factor_after_box"].match(text_after):
        content = f"{content if content.isdigit() else f'({content})'}{factor['factor']}"
    return ExtractedAnswer(box.content, "boxed", complete_box=content, text_after_box=text_after)


def _is_one_answer(between: str) -> bool:
    """Whether the text between two boxes makes them parts or candidates of one answer."""
    if len(between) > _MAX_GAP_CHARS:
        return False
    is_item_label = _PATTERNS["item_label"].fullmatch(between)
    if is_item_label or (_OTHER_CASE.search(between) and "=" in between):
        return True
    if JOINING_TEXT.fullmatch(between) and CONJUNCTION.search(between):
        return True
    is_candidate = _PATTERNS["another_candidate"].fullmatch(between)
    return bool(is_candidate and _PATTERNS["offer"].search(between))
