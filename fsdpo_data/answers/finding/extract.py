r"""Find the answer in a response: the last ``\boxed``, then spoken markers, then the last number.

Every scan is linear and looks at the end of the text first, so a megabyte of braces costs the
same as a page. Nothing here decides whether an answer is right.
"""

import re
from itertools import islice
from typing import NamedTuple

from fsdpo_data.answers.finding import concluding
from fsdpo_data.answers.finding.boxes import Box, end_of, find_boxes, truncated_box
from fsdpo_data.answers.finding.phrases import phrases
from fsdpo_data.answers.finding.several import closing_list
from fsdpo_data.answers.finding.spoken import last_announced
from fsdpo_data.answers.finding.unmarked import (
    CONJUNCTION,
    JOINT,
    REFERS,
    conclusion,
    last_sentence,
    settled_value,
    unmarked,
)

_SAID = phrases("extract")
_NEXT_PROBLEM = _SAID["next_problem"]

#: The rules by which a response marks its answer; their result is the strict one.
MARKED = frozenset(
    ("boxed", "boxed-list", "hash", "final-answer", "answer-is", "choice", "label", "corrected")
)
#: Most characters between two boxes that can be one answer.
_APART = 80
#: Headings looked at; a text of nothing but headings costs no more.
_HEADINGS_TRIED = 8
#: Where a turn ended, for samplers that keep the token.
_END_TOKENS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>"),
    "<｜end▁of▁sentence｜>",
)
_TAG = re.compile("<[/|｜]")  #: What a token of the sampler and the end of a thought begin with.
#: Zero-width characters and marks of writing direction.
_UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
_OTHER_CASE = _SAID["other_case"]
_END_OF_PROOF = re.compile(r"\s*(?:\$?\\(?:blacksquare|square|qed)\$?|[∎■□])\Z")
_PROOF_ENDS = ("square", "square$", "qed", "qed$", "∎", "■", "□")  #: How such a sign ends.
_RULES = ("---", "***", "___")  #: Lines drawn below an answer.
_DOUBTS, _SETTLES = _SAID["doubts"], _SAID["settles"]


class Extraction(NamedTuple):
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
    lost: str | None = None  #: The words by which it gives up.

    @property
    def value(self) -> str | None:
        """What the answer's words settle on, a formula or a number: 5 of "5 apples are left".

        To be tried where the words are not the gold; None if they offer several.
        """
        return self.lost or settled_value(self.answer or "")

    @property
    def strict(self) -> str | None:
        """The answer if the response marks it as such (a rule of ``MARKED``)."""
        return self.answer if self.rule in MARKED else None


def extract(response: str) -> Extraction:
    """Find the answer of ``response``; never raises, whatever the text holds."""
    text = own_part(response)
    boxes = [box for box in find_boxes(text) if box.content]
    if boxes:
        return _after_boxes(text, boxes) or _from_boxes(text, boxes)
    said = last_announced(text)
    if said is not None and concluding.taken_back(text[said.end :]) is not None:
        return _corrected(text[said.end :])
    cut_off = truncated_box(text) if said is None or "box" in said.answer else None
    if said is not None and cut_off is None:
        listed = closing_list(text) if said.answer[:2] in ("- ", "* ", "1.", "1)", "| ") else None
        if listed is not None:
            return Extraction(listed, said.rule)
        return Extraction(said.answer, said.rule)
    sentence = last_sentence(text)
    if (rest := concluding.standing(sentence)) != sentence:
        text = sentence = rest
    if not cut_off and sentence and concluding.goes_on(text, sentence):
        return Extraction(None, "none")
    if not cut_off and sentence and (lost := concluding.gives_up(text)):
        return Extraction(sentence, "last-sentence", sentence=sentence, lost=lost)
    answer, rule = (cut_off, "boxed-truncated") if cut_off else unmarked(text, sentence)
    return Extraction(answer, rule, sentence=sentence)


def is_marked(rule: str) -> bool:
    """Whether a verdict's rule, e.g. ``boxed/number``, rests on an answer marked as such."""
    return rule.partition("/")[0] in MARKED


def own_part(response: str) -> str:
    """Return the end of a response, without what follows a finished answer as another problem."""
    text = end_of(response)
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
    for heading in islice(headings, _HEADINGS_TRIED):
        before = text[: heading.start()]
        part = heading["number"] and _SAID["numbered_part"].search(before)
        # "Question 2:" after "Question 1:" goes on with the parts of the same problem.
        if not part and (find_boxes(before) or last_announced(before)):
            return before
    return text


def _after_boxes(text: str, boxes: list[Box]) -> Extraction | None:
    """Return what a response concludes after its last box; None if the box stands."""
    rest = text[boxes[-1].end :]
    if len(rest) < 12:
        return None
    if concluding.taken_back(rest) is not None or _denied(boxes[-1].content, rest):
        return _corrected(rest)
    if doubt := _DOUBTS.search(rest):
        return _concluded(rest[doubt.end() :])
    said = last_announced(rest)
    if said is None or not _SAID["value"].search(said.answer):
        return None
    before = text[max(boxes[-1].start - _APART, 0) : boxes[-1].start]
    if said.rule != "final-answer" and not _SAID["would_be"].search(before):
        return None
    return Extraction(said.answer, said.rule)


def _denied(answer: str, rest: str) -> bool:
    """Whether a text says of an answer that it is none: "so 18 is not a solution"."""
    answer = answer.rstrip("$) ")
    denials = _SAID["is_none"].finditer(rest) if " not " in rest and answer else ()
    before = [rest[: each.start()].rstrip("$) \n") for each in denials]
    return any(x.endswith(answer) and not x[: -len(answer)][-1:].isalnum() for x in before)


def _corrected(rest: str) -> Extraction:
    """Return the answer that follows one taken back; there may be none."""
    rest = rest[concluding.taken_back(rest) or 0 :]
    answer = concluding.instead(rest)
    other = None if answer is None else Extraction(answer, "corrected")
    return _concluded(rest) or other or Extraction(None, "none")


def _concluded(rest: str) -> Extraction | None:
    """Return the answer that a text announces, or that its last sentence draws."""
    said, sentence = last_announced(rest), last_sentence(rest)
    if said is None and not _SETTLES.search(sentence):
        return None
    return Extraction(said.answer if said else conclusion(sentence), "corrected")


def _from_boxes(text: str, boxes: list[Box]) -> Extraction:
    """Take the last box, or the run of boxes that ends the answer as one list."""
    run = [boxes[-1]]
    if len(boxes) > 1 and (refers := REFERS.fullmatch(last_sentence(text[boxes[-1].end :]))):
        two = len({box.content for box in boxes}) == 2
        run = boxes if two or not (refers["both"] or refers["two"]) else run
    for box in reversed(boxes[: -len(run)]):
        if not _one_answer(text[box.end : run[0].start]):
            break
        run.insert(0, box)
    distinct = list(dict.fromkeys(box.content for box in run))
    return Extraction(" , ".join(distinct), "boxed" if len(distinct) == 1 else "boxed-list")


def _one_answer(between: str) -> bool:
    """Whether the text between two boxes makes them one answer, or two candidates."""
    if len(between) > _APART:
        return False
    if _SAID["listed"].fullmatch(between) or (_OTHER_CASE.search(between) and "=" in between):
        return True
    joined = JOINT.fullmatch(between) and CONJUNCTION.search(between)
    return bool(joined or (_SAID["one_more"].fullmatch(between) and _SAID["offer"].search(between)))
