"""Formats of problem rows in published datasets: the question, the gold answer and the metadata."""

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from fsdpo_data.answers.extraction.boxes import last_box_content
from fsdpo_data.core.entities import Problem
from fsdpo_data.core.input_files import parse_json
from fsdpo_data.core.row_files import SourceRow

_HASHES = "####"

#: Fields with model solutions, which are large and do not belong to the problem.
_SOLUTION_FIELDS = {"initial_reason_steps", "chosen", "rejected", "full_chosen", "full_rejected"}


#: Fields that certainly contain a gold answer. A model may have written an ``answer`` next to them.
GOLD_FIELDS = ("ground_truth", "expected_answer")
#: Fields with a part of the question that no format knows how to combine with it.
PART_FIELDS = ("choices", "options", "context", "passage", "image", "images")
#: Texts in place of a gold answer, in lower case. ``None`` is an answer in GSM-Plus.
NO_GOLD_TEXTS = frozenset({"n/a", "nan", "null", "proof", "notfound", "not found"})


class UnusableRowError(ValueError):
    """A row cannot be used; the message is the reason for its quarantine."""


@dataclass(frozen=True, slots=True)
class ProblemFormat:
    """The fields of a problem in a dataset."""

    question: tuple[str, ...]  #: The fields that form the question.
    answer: str  #: The field with the gold answer.
    parse_gold: Callable[[Any], str]  #: Extracts the gold answer from that field.
    description: str  #: Description of the format, for error messages.
    separator: str = " "  #: Text between the fields of the question.

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a row has all fields of this format, and further parts with a text."""
        has_all = all(fields.get(name) is not None for name in (*self.question, self.answer))
        return has_all and all(fields[name] != "" for name in self.question[1:])

    def question_text(self, fields: Mapping[str, Any]) -> str:
        """Return the question, exactly as in the row.

        Raises:
            UnusableRowError: if the question is empty or not a text.
        """
        parts = [fields[name] for name in self.question]
        for part in parts:
            if not isinstance(part, str):
                raise UnusableRowError(f"the question is a {type(part).__name__}, not text")
        text = self.separator.join(parts)
        if not text.strip():
            raise UnusableRowError("the question is empty")
        return text


def gold_text(value: Any) -> str:
    """Return a gold answer as text: ``145.0`` as ``145``, a list of one element as that element.

    Raises:
        UnusableRowError: if the answer is empty, or neither a text nor a number.
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


def means_no_gold(text: str) -> bool:
    """Return whether a text, such as "N/A", is in place of a gold answer."""
    return text.strip().lower() in NO_GOLD_TEXTS


def refuse_unread_parts(fields: Mapping[str, Any], used: Container[str] = ()) -> None:
    """Raise an UnusableRowError if a row has parts of the question that would be dropped.

    Args:
        fields: The fields of the row.
        used: Fields that belong to the question already.
    """
    for name in PART_FIELDS:
        value = fields.get(name)
        if name not in used and value is not None and value != "" and value != []:
            raise UnusableRowError(
                f"the field `{name}` may be a part of the question: add it to the question, or "
                "remove it"
            )


def _parse_marked_gold(value: Any) -> str:
    """Return GSM8K's gold answer; UnusableRowError without ``####``."""
    if _HASHES not in str(value):
        raise UnusableRowError(f"the answer has no {_HASHES} before its gold")
    return parse_gsm8k_gold(value)


def parse_gsm8k_gold(value: Any) -> str:
    """Return GSM8K's gold answer: the text after the last ``####``, or the full text."""
    if isinstance(value, str):
        value = value.rpartition(_HASHES)[2].strip()
    return gold_text(value)


def parse_boxed_gold(value: Any) -> str:
    """Return the content of a solution's last box.

    Raises:
        UnusableRowError: if the solution has no box, or its last box is empty.
    """
    content = last_box_content(str(value))
    if content is None:
        raise UnusableRowError("the solution has no \\boxed answer")
    if not content.strip():
        raise UnusableRowError("the solution's \\boxed is empty")
    return content


_GSM8K = ProblemFormat(
    ("question",), "answer", _parse_marked_gold, "question + answer ending in '#### gold'"
)
_QUESTION = ProblemFormat(("question",), "answer", gold_text, "question + answer")

#: All formats; the first one that matches the fields of a row reads it.
PROBLEM_FORMATS = (
    # ASDiv: the question without its body would lack the facts.
    ProblemFormat(("body", "question"), "answer", gold_text, "body + question + answer"),
    ProblemFormat(("problem",), "answer", gold_text, "problem + answer"),
    ProblemFormat(
        ("problem",), "solution", parse_boxed_gold, "problem + solution with a \\boxed answer"
    ),
    _QUESTION,
    ProblemFormat(("prompt",), "answer", gold_text, "prompt + answer"),
    # Alpaca: an empty input is not a part of the question.
    ProblemFormat(
        ("instruction", "input"), "answer", gold_text, "instruction + input + answer", "\n"
    ),
    ProblemFormat(("instruction",), "answer", gold_text, "instruction + answer"),
    ProblemFormat(("input",), "target", gold_text, "input + target"),
)
#: The columns of our own ``problems`` config.
_OWN_COLUMNS = {"problem_id", "source", "split", "question", "answer", "metadata"}


def is_gsm8k(records: Sequence[SourceRow]) -> bool:
    """Return whether the rows come from GSM8K: most answers end in ``#### gold``.

    All rows decide together. A row without its last line is then quarantined, and its complete
    solution does not become the gold answer.
    """
    answers = [row.fields["answer"] for row in records if _QUESTION.matches(row.fields)]
    n_marked = sum(isinstance(answer, str) and _HASHES in answer for answer in answers)
    return n_marked * 2 > len(answers)


def read_problem(record: SourceRow, source: str, split: str, *, gsm8k: bool) -> Problem:
    """Return the problem of a row.

    Args:
        record: The row.
        source: The file or dataset of the row.
        split: The split of the row.
        gsm8k: Whether the rows come from GSM8K.

    Raises:
        UnusableRowError: if the row is not a problem, with the reason.
    """
    if record.error:
        raise UnusableRowError(record.error)
    fields = record.fields
    if set(fields) == _OWN_COLUMNS:
        return _own_problem(fields)
    problem_format = next((entry for entry in PROBLEM_FORMATS if entry.matches(fields)), None)
    if problem_format is None:
        question_fields = {name for entry in PROBLEM_FORMATS for name in entry.question}
        has_question = any(fields.get(name) is not None for name in question_fields)
        raise UnusableRowError("no answer" if has_question else "neither question nor answer")
    refuse_unread_parts(fields, problem_format.question)
    if problem_format is _QUESTION and gsm8k:
        problem_format = _GSM8K
    parse_gold = problem_format.parse_gold
    gold_field = problem_format.answer
    if gold_field == "answer":
        certain_field = next((name for name in GOLD_FIELDS if fields.get(name) is not None), None)
        if certain_field is not None:
            parse_gold, gold_field = gold_text, certain_field
    gold = parse_gold(fields[gold_field])
    if means_no_gold(gold):
        raise UnusableRowError(f"{gold.strip()!r} in place of a gold answer")
    problem = Problem(
        question=problem_format.question_text(fields),
        answer=gold,
        source=source,
        split=split,
        metadata=_collect_metadata(fields, problem_format, gold_field),
    )
    return require_encodable(problem)


def _own_problem(fields: Mapping[str, Any]) -> Problem:
    """Return the problem of a row of our own ``problems`` config, with its original source."""
    try:
        metadata = parse_json(fields["metadata"] or "{}")
    except (TypeError, ValueError):
        raise UnusableRowError("metadata is not JSON") from None
    problem = Problem(
        question=_QUESTION.question_text(fields),
        answer=gold_text(fields["answer"]),
        source=str(fields["source"]),
        split=str(fields["split"]),
        metadata=metadata,
    )
    return require_encodable(problem)


def _collect_metadata(
    fields: Mapping[str, Any], problem_format: ProblemFormat, gold_field: str
) -> dict[str, Any]:
    """Return all other fields of a row. GSM8K's answer contains the solution, so it stays."""
    used_fields = {*problem_format.question, gold_field, *_SOLUTION_FIELDS} - {"solution"}
    metadata = {name: value for name, value in fields.items() if name not in used_fields}
    if problem_format is _GSM8K:
        metadata["solution"] = fields["answer"]
    try:
        plain: dict[str, Any] = orjson.loads(orjson.dumps(metadata, default=str))
    except TypeError as error:
        raise UnusableRowError(f"a field cannot be stored as JSON ({error})") from None
    return plain


def require_encodable(problem: Problem) -> Problem:
    """Return the problem; UnusableRowError if its text cannot be encoded as UTF-8."""
    try:
        f"{problem.question}{problem.answer}".encode()
    except UnicodeEncodeError:
        raise UnusableRowError(
            "the text holds half a surrogate pair, which is no character"
        ) from None
    return problem
