"""What a row of somebody's dataset means: its question, its gold answer, and what else it says."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from fsdpo_data.answers.extraction.boxes import last_box_content
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.row_files import SourceRow

_HASHES = "####"

# Solutions written by models: bulky, and labelled by others. Only the problem is wanted.
_LEFT_OUT = {"initial_reason_steps", "chosen", "rejected", "full_chosen", "full_rejected"}


class UnusableRowError(ValueError):
    """A row that is no problem; the message is the reason it is set aside."""


@dataclass(frozen=True, slots=True)
class ProblemFormat:
    """One way to write a problem down."""

    question: tuple[str, ...]  #: The fields the question is made of.
    answer: str  #: The field the gold answer is in.
    parse_gold: Callable[[Any], str]  #: Takes the gold out of that field.
    description: str  #: The form in words, for error messages.

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Whether the row has all fields of this form."""
        return all(fields.get(name) is not None for name in (*self.question, self.answer))

    def question_text(self, fields: Mapping[str, Any]) -> str:
        """Return the question, to the character as the row has it."""
        parts = [fields[name] for name in self.question]
        for part in parts:
            if not isinstance(part, str):
                raise UnusableRowError(f"the question is a {type(part).__name__}, not text")
        text = " ".join(parts)
        if not text.strip():
            raise UnusableRowError("the question is empty")
        return text


def gold_text(value: Any) -> str:
    """Write a gold answer as text: ``145.0`` is ``145``, a list of one is its element.

    Raises:
        UnusableRowError: if it is empty, or nothing an answer can be.
    """
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise UnusableRowError(f"the answer is {value}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnusableRowError(f"the answer is a {type(value).__name__}, not text or a number")
    text = str(value)
    if not text.strip():
        raise UnusableRowError("the answer is empty")
    return text


def _after_hashes(value: Any) -> str:
    if _HASHES not in str(value):
        raise UnusableRowError(f"the answer has no {_HASHES} before its gold")
    return parse_gsm8k_gold(value)


def parse_gsm8k_gold(value: Any) -> str:
    """Take GSM8K's gold: what follows the last ``####``, or all of it where there is none."""
    if isinstance(value, str):
        value = value.rpartition(_HASHES)[2].strip()
    return gold_text(value)


def parse_boxed_gold(value: Any) -> str:
    """Take the gold out of a solution: its last box; UnusableRowError if that is none, or empty."""
    gold = last_box_content(str(value))
    if gold is None:
        raise UnusableRowError("the solution has no \\boxed answer")
    if not gold.strip():
        raise UnusableRowError("the solution's \\boxed is empty")
    return gold


_GSM8K = ProblemFormat(
    ("question",), "answer", _after_hashes, "question + answer ending in '#### gold'"
)
_QUESTION = ProblemFormat(("question",), "answer", gold_text, "question + answer")

#: Tried in this order; the first that fits the row's fields reads it.
PROBLEM_FORMATS = (
    # ASDiv: the question alone would lack its facts.
    ProblemFormat(("body", "question"), "answer", gold_text, "body + question + answer"),
    ProblemFormat(("problem",), "answer", gold_text, "problem + answer"),
    ProblemFormat(
        ("problem",), "solution", parse_boxed_gold, "problem + solution with a \\boxed answer"
    ),
    _QUESTION,
    ProblemFormat(("prompt",), "answer", gold_text, "prompt + answer"),
    ProblemFormat(("instruction",), "answer", gold_text, "instruction + answer"),
    ProblemFormat(("input",), "target", gold_text, "input + target"),
)
_OWN = {"problem_id", "source", "split", "question", "answer", "metadata"}


def is_gsm8k(records: Sequence[SourceRow]) -> bool:
    """Whether these are GSM8K's own rows: most answers end in ``#### gold``.

    Judged over all of them, so that a row which lost its last line is set aside instead of
    having its whole solution taken for the gold.
    """
    answers = [row.fields["answer"] for row in records if _QUESTION.matches(row.fields)]
    marked = sum(isinstance(answer, str) and _HASHES in answer for answer in answers)
    return marked * 2 > len(answers)


def read_problem(record: SourceRow, source: str, split: str, *, gsm8k: bool) -> Problem:
    """Read one row, or raise UnusableRowError with the reason."""
    if record.error:
        raise UnusableRowError(record.error)
    fields = record.fields
    if set(fields) == _OWN:
        return _own_problem(fields)
    form = next((form for form in PROBLEM_FORMATS if form.matches(fields)), None)
    if form is None:
        questions = {name for form in PROBLEM_FORMATS for name in form.question}
        asked = any(fields.get(name) is not None for name in questions)
        raise UnusableRowError("no answer" if asked else "neither question nor answer")
    if form is _QUESTION and gsm8k:
        form = _GSM8K
    question, answer = form.question_text(fields), form.parse_gold(fields[form.answer])
    return require_encodable(Problem(question, answer, source, split, _metadata(fields, form)))


def _own_problem(fields: Mapping[str, Any]) -> Problem:
    """Read a row of our own ``problems`` config, which keeps where it first came from."""
    try:
        metadata = json.loads(fields["metadata"] or "{}")
    except (TypeError, ValueError):
        raise UnusableRowError("metadata is not JSON") from None
    question, answer = _QUESTION.question_text(fields), gold_text(fields["answer"])
    source, split = str(fields["source"]), str(fields["split"])
    return require_encodable(Problem(question, answer, source, split, metadata))


def _metadata(fields: Mapping[str, Any], form: ProblemFormat) -> dict[str, Any]:
    """Return what else the row says. GSM8K's answer holds its solution, so that stays."""
    used = {*form.question, form.answer, *_LEFT_OUT} - {"solution"}
    kept = {name: value for name, value in fields.items() if name not in used}
    if form is _GSM8K:
        kept["solution"] = fields["answer"]
    try:
        plain: dict[str, Any] = orjson.loads(orjson.dumps(kept, default=str))
    except TypeError as error:
        raise UnusableRowError(f"a field cannot be stored as JSON ({error})") from None
    return plain


def require_encodable(problem: Problem) -> Problem:
    """Return the problem, or raise UnusableRowError if UTF-8 cannot hold it."""
    try:
        f"{problem.question}{problem.answer}".encode()
    except UnicodeEncodeError:
        raise UnusableRowError(
            "the text holds half a surrogate pair, which is no character"
        ) from None
    return problem
