r"""Find the answer in a response: the last ``\boxed``, then spoken markers, then the last number.

Every scan is linear and looks at the end of the text first, so a megabyte of braces costs the
same as a page. Nothing here decides whether an answer is right.
"""

import re
from itertools import islice
from typing import NamedTuple

from fsdpo_data.answers.extraction import retractions
from fsdpo_data.answers.extraction.announced import last_announced
from fsdpo_data.answers.extraction.boxes import (
    Box,
    find_boxes,
    search_window,
    truncated_box_content,
)
from fsdpo_data.answers.extraction.multi_part import closing_list
from fsdpo_data.answers.extraction.phrases import load_phrases
from fsdpo_data.answers.extraction.unmarked import (
    CONFIRMATION,
    CONJUNCTION,
    JOINING_TEXT,
    concluding_clause,
    extract_unmarked,
    last_sentence,
    statement_value,
)

_PATTERNS = load_phrases("extract")
_NEXT_PROBLEM = _PATTERNS["next_problem"]

#: The rules by which a response marks its answer; their result is the strict one.
MARKED_RULES = frozenset(
    ("boxed", "boxed-list", "hash", "final-answer", "answer-is", "choice", "label", "corrected")
)
#: Most characters between two boxes that can be one answer.
_APART = 80
#: Headings looked at; a text of nothing but headings costs no more.
_MAX_HEADINGS = 8
#: Where a turn ended, for samplers that keep the token.
_END_TOKENS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>"),
    "<｜end▁of▁sentence｜>",
)
_TAG = re.compile("<[/|｜]")  #: What a token of the sampler and the end of a thought begin with.
#: Zero-width characters and marks of writing direction.
_UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
_OTHER_CASE = _PATTERNS["other_case"]
_END_OF_PROOF = re.compile(r"\s*(?:\$?\\(?:blacksquare|square|qed)\$?|[∎■□])\Z")
_PROOF_ENDS = ("square", "square$", "qed", "qed$", "∎", "■", "□")  #: How such a sign ends.
_RULES = ("---", "***", "___")  #: Lines drawn below an answer.
_DOUBTS, _SETTLES = _PATTERNS["doubts"], _PATTERNS["settles"]


class ExtractedAnswer(NamedTuple):
    """The answer of a response."""

    answer: str | None  #: The answer by the first rule that fired, or None: the lenient result.
    #: That rule: ``boxed``, ``boxed-list`` (several boxes that are one answer, or several
    #: candidates), ``hash`` (``####``), ``final-answer``, ``answer-is``, ``choice``, ``label``
    #: ("Answer:", "A:"), ``boxed-truncated`` (a box never closed), ``whole`` (a response that is
    #: nothing but its answer), ``list`` (items that end the text), ``last-maths``, ``last-number``,
    #: ``last-bold``, ``last-sentence``, ``corrected`` (what stands in for an answer taken back), or
    #: ``none``.
    rule: str
    sentence: str = ""  #: The last one of a response that marks no answer, for golds in words.
    surrender_phrase: str | None = None  #: The words by which it gives up.

    @property
    def statement_value(self) -> str | None:
        """What the answer's words settle on, a formula or a number: 5 of "5 apples are left".

        To be tried where the words are not the gold; None if they offer several.
        """
        return self.surrender_phrase or statement_value(self.answer or "")

    @property
    def marked_answer(self) -> str | None:
        """The answer if the response marks it as such (a rule of ``MARKED``)."""
        return self.answer if self.rule in MARKED_RULES else None


def extract_answer(response: str) -> ExtractedAnswer:
    """Find the answer of ``response``; never raises, whatever the text holds."""
    text = strip_next_problem(response)
    boxes = [box for box in find_boxes(text) if box.content]
    if boxes:
        return _after_boxes(text, boxes) or _from_boxes(text, boxes)
    said = last_announced(text)
    if said is not None and retractions.end_of_retraction(text[said.end :]) is not None:
        return _find_correction(text[said.end :])
    cut_off = truncated_box_content(text) if said is None or "box" in said.answer else None
    if said is not None and cut_off is None:
        listed = closing_list(text) if said.answer[:2] in ("- ", "* ", "1.", "1)", "| ") else None
        if listed is not None:
            return ExtractedAnswer(listed, said.rule)
        return ExtractedAnswer(said.answer, said.rule)
    sentence = last_sentence(text)
    if (rest := retractions.after_last_retraction(sentence)) != sentence:
        text = sentence = rest
    if not cut_off and sentence and retractions.is_unfinished(text, sentence):
        return ExtractedAnswer(None, "none")
    if not cut_off and sentence and (lost := retractions.surrender_phrase(text)):
        return ExtractedAnswer(sentence, "last-sentence", sentence=sentence, surrender_phrase=lost)
    answer, rule = (cut_off, "boxed-truncated") if cut_off else extract_unmarked(text, sentence)
    return ExtractedAnswer(answer, rule, sentence=sentence)


def is_marked_rule(rule: str) -> bool:
    """Whether a verdict's rule, e.g. ``boxed/number``, rests on an answer marked as such."""
    return rule.partition("/")[0] in MARKED_RULES


def strip_next_problem(response: str) -> str:
    """Return the end of a response, without what follows a finished answer as another problem."""
    text = search_window(response)
    if _TAG.search(text):
        # A text is cut where its first turn ends, unless nothing comes before that.
        ends = [text.find(token) for token in _END_TOKENS]
        text = text[: min((end for end in ends if text[: max(end, 0)].strip()), default=None)]
        thought = text.rfind("</think>")
        if thought >= 0 and text[thought + 8 :].strip():
            text = text[thought + 8 :]
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        text = _UNSEEN.sub("", text)
    text = text.rstrip()
    if text[-3:] in _RULES and (above := text.rstrip(text[-1]))[-1:] == "\n":
        text = above.rstrip()
    if text.endswith(_PROOF_ENDS) and (sign := _END_OF_PROOF.search(text, len(text) - 16)):
        text = text[: sign.start()]
    headings = _NEXT_PROBLEM.finditer(text) if _NEXT_PROBLEM.search(text) else ()
    for heading in islice(headings, _MAX_HEADINGS):
        before = text[: heading.start()]
        part = heading["number"] and _PATTERNS["numbered_part"].search(before)
        # "Question 2:" after "Question 1:" goes on with the parts of the same problem.
        if not part and (find_boxes(before) or last_announced(before)):
            return before
    return text


def _after_boxes(text: str, boxes: list[Box]) -> ExtractedAnswer | None:
    """Return what a response concludes after its last box; None if the box stands."""
    rest = text[boxes[-1].end :]
    if len(rest) < 12:
        return None
    if retractions.end_of_retraction(rest) is not None or _is_denied(boxes[-1].content, rest):
        return _find_correction(rest)
    if doubt := _DOUBTS.search(rest):
        return _find_conclusion(rest[doubt.end() :])
    said = last_announced(rest)
    if said is None or not _PATTERNS["value"].search(said.answer):
        return None
    before = text[max(boxes[-1].start - _APART, 0) : boxes[-1].start]
    if said.rule != "final-answer" and not _PATTERNS["would_be"].search(before):
        return None
    return ExtractedAnswer(said.answer, said.rule)


def _is_denied(answer: str, rest: str) -> bool:
    """Whether a text says of an answer that it is none: "so 18 is not a solution"."""
    answer = answer.rstrip("$) ")
    denials = _PATTERNS["is_none"].finditer(rest) if " not " in rest and answer else ()
    before = [rest[: each.start()].rstrip("$) \n") for each in denials]
    return any(x.endswith(answer) and not x[: -len(answer)][-1:].isalnum() for x in before)


def _find_correction(rest: str) -> ExtractedAnswer:
    """Return the answer that follows one taken back; there may be none."""
    rest = rest[retractions.end_of_retraction(rest) or 0 :]
    answer = retractions.replacement_answer(rest)
    other = None if answer is None else ExtractedAnswer(answer, "corrected")
    return _find_conclusion(rest) or other or ExtractedAnswer(None, "none")


def _find_conclusion(rest: str) -> ExtractedAnswer | None:
    """Return the answer that a text announces, or that its last sentence draws."""
    said, sentence = last_announced(rest), last_sentence(rest)
    if said is None and not _SETTLES.search(sentence):
        return None
    return ExtractedAnswer(said.answer if said else concluding_clause(sentence), "corrected")


def _from_boxes(text: str, boxes: list[Box]) -> ExtractedAnswer:
    """Take the last box, or the run of boxes that ends the answer as one list."""
    run = [boxes[-1]]
    if len(boxes) > 1 and (refers := CONFIRMATION.fullmatch(last_sentence(text[boxes[-1].end :]))):
        two = len({box.content for box in boxes}) == 2
        run = boxes if two or not (refers["both"] or refers["two"]) else run
    for box in reversed(boxes[: -len(run)]):
        if not _one_answer(text[box.end : run[0].start]):
            break
        run.insert(0, box)
    distinct = list(dict.fromkeys(box.content for box in run))
    return ExtractedAnswer(" , ".join(distinct), "boxed" if len(distinct) == 1 else "boxed-list")


def _one_answer(between: str) -> bool:
    """Whether the text between two boxes makes them one answer, or two candidates."""
    if len(between) > _APART:
        return False
    if _PATTERNS["listed"].fullmatch(between) or (_OTHER_CASE.search(between) and "=" in between):
        return True
    joined = JOINING_TEXT.fullmatch(between) and CONJUNCTION.search(between)
    return bool(
        joined or (_PATTERNS["one_more"].fullmatch(between) and _PATTERNS["offer"].search(between))
    )
