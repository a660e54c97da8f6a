"""Formats of problem rows in published datasets: the question, the gold answer and the metadata."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import orjson

from fsdpo_data.core.entities import Problem, check_gold_metadata
from fsdpo_data.core.input_files import parse_json
from fsdpo_data.core.options import Option, Options
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import SourceRow
from fsdpo_data.problems.golds import (
    GoldReading,
    gold_text,
    has_mark,
    means_no_gold,
    parse_boxed_gold,
    read_gold,
)

ROWS_PANEL = "Rows of files"  #: Title of the options that read rows, in the help.
#: The name of a field of rows, as an option.
FieldName = Annotated[
    str | None, Option(panel=ROWS_PANEL, metavar="FIELD", default_text="by format")
]

#: Fields with model solutions, which are large and do not belong to the problem.
_SOLUTION_FIELDS = {"initial_reason_steps", "chosen", "rejected", "full_chosen", "full_rejected"}


#: Fields that certainly contain a gold answer. A model may have written an ``answer`` next to them.
GOLD_FIELDS = ("ground_truth", "expected_answer")
#: Fields with a part of the question that no format knows how to combine with it.
PART_FIELDS = ("choices", "options", "context", "passage", "image", "images")


class RowReading(Options):
    """How to read the rows of files."""

    question_field: FieldName = None
    """Field with the complete question."""
    gold_field: FieldName = None
    """Field with the gold answer."""
    gold: Annotated[GoldReading, Option(panel=ROWS_PANEL)] = "auto"
    r"""How to read golds. `auto` takes the answer that a gold marks by \boxed or `####`, and other
    golds as they are. `extract` also leaves out complete solutions without a mark. `as-given` takes
    all golds as they are.
    """


DEFAULT_READING = RowReading()  #: The reading without names of fields.


@dataclass(frozen=True, slots=True)
class ProblemFormat:
    """The fields of a problem in a dataset."""

    question: tuple[str, ...]  #: The fields that form the question.
    answer: str  #: The field with the gold answer.
    description: str  #: Description of the format, for error messages.
    separator: str = " "  #: Text between the fields of the question.
    #: Extracts the gold answer from that field; None reads it as the reading of golds says.
    parse_gold: Callable[[Any], str] | None = None

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

    def gold_answer(
        self, fields: Mapping[str, Any], name: str, reading: GoldReading = "auto"
    ) -> str:
        """Return the gold answer in the field ``name``.

        Raises:
            UnusableRowError: if the field contains no gold answer.
        """
        value = fields[name]
        return self.parse_gold(value) if self.parse_gold else read_gold(value, reading)


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


def refuse_words_without_gold(gold: str) -> None:
    """Raise an UnusableRowError for a text such as N/A in place of a gold answer."""
    if means_no_gold(gold):
        raise UnusableRowError(f"{gold.strip()!r} in place of a gold answer")


#: The format of rows without any known field, whose fields a user may name.
_QUESTION = ProblemFormat(("question",), "answer", "question + answer")
#: All formats; the first one that matches the fields of a row reads it.
PROBLEM_FORMATS = (
    # ASDiv: the question without its body would lack the facts.
    ProblemFormat(("body", "question"), "answer", "body + question + answer"),
    ProblemFormat(("problem",), "answer", "problem + answer"),
    ProblemFormat(
        ("problem",),
        "solution",
        "problem + solution with a \\boxed answer",
        parse_gold=parse_boxed_gold,
    ),
    _QUESTION,
    ProblemFormat(("prompt",), "answer", "prompt + answer"),
    # Alpaca: an empty input is not a part of the question.
    ProblemFormat(("instruction", "input"), "answer", "instruction + input + answer", "\n"),
    ProblemFormat(("instruction",), "answer", "instruction + answer"),
    ProblemFormat(("input",), "target", "input + target"),
)
#: The columns of our own ``problems`` config.
_OWN_COLUMNS = {"problem_id", "source", "split", "question", "answer", "metadata"}
#: Columns by which a row of our own ``solutions`` config is known.
_SOLUTION_COLUMNS = {"solution_id", "outcome"}


def is_solution_row(fields: Mapping[str, Any]) -> bool:
    """Return whether a row is of the ``solutions`` of a dataset."""
    return fields.keys() >= _SOLUTION_COLUMNS


def refuse_solution_row(fields: Mapping[str, Any]) -> None:
    """Raise an UnusableRowError for a row of solutions, whose answer is not the gold."""
    if is_solution_row(fields):
        raise UnusableRowError(
            "a row of the solutions of a dataset: its `answer` is the model's. The rows of "
            "`problems` have the gold answers"
        )


def is_own_row(fields: Mapping[str, Any]) -> bool:
    """Return whether a row is of the ``problems`` of a dataset, which have no other format."""
    return fields.keys() >= _OWN_COLUMNS


def mark_most_golds(records: Sequence[SourceRow], reading: RowReading) -> bool:
    """Return whether most golds of a source mark their final answer, as in GSM8K and MATH.

    All rows decide together. A row without its mark is then quarantined, and its solution does not
    become the gold answer.
    """
    n_golds = 0
    n_marked = 0
    for record in records:
        row_format = _find_format(record.fields, reading)
        if row_format is not None and row_format.parse_gold is None:
            gold = record.fields[find_gold_field(record.fields, row_format, reading)]
            n_golds += 1
            n_marked += has_mark(gold)
    return n_marked * 2 > n_golds


def read_problem(
    record: SourceRow,
    source: str,
    split: str,
    reading: RowReading,
    *,
    needs_mark: bool = False,
) -> Problem:
    """Return the problem of a row.

    Args:
        record: The row.
        source: The file or dataset of the row.
        split: The split of the row.
        reading: How to read the row.
        needs_mark: Whether the gold must mark its answer.

    Raises:
        UnusableRowError: if the row is not a problem, with the reason.
    """
    if record.error:
        raise UnusableRowError(record.error)
    fields = record.fields
    refuse_solution_row(fields)
    if is_own_row(fields):
        return _own_problem(fields)
    row_format = _find_format(fields, reading)
    if row_format is None:
        raise UnusableRowError(_missing_fields(fields, reading))
    if reading.question_field is None:
        refuse_unread_parts(fields, row_format.question)
    gold_field = find_gold_field(fields, row_format, reading)
    if needs_mark and row_format.parse_gold is None and not has_mark(fields[gold_field]):
        raise UnusableRowError("the answer does not mark its gold, as most others do")
    gold = row_format.gold_answer(fields, gold_field, reading.gold)
    refuse_words_without_gold(gold)
    problem = Problem(
        question=row_format.question_text(fields),
        answer=gold,
        source=source,
        split=split,
        metadata=_collect_metadata(fields, row_format, gold_field, gold),
    )
    return require_usable(problem)


def _find_format(fields: Mapping[str, Any], reading: RowReading) -> ProblemFormat | None:
    """Return the first format that matches a row, with the fields that the user names."""
    row_format = next((entry for entry in PROBLEM_FORMATS if entry.matches(fields)), None)
    if reading.question_field is None and reading.gold_field is None:
        return row_format
    row_format = row_format or _QUESTION
    if reading.question_field is not None:
        row_format = replace(row_format, question=(reading.question_field,))
    if reading.gold_field is not None:
        row_format = replace(row_format, answer=reading.gold_field, parse_gold=None)
    return row_format if row_format.matches(fields) else None


def find_gold_field(
    fields: Mapping[str, Any], row_format: ProblemFormat, reading: RowReading = DEFAULT_READING
) -> str:
    """Return the field with the gold answer: the named one, a certain one, or the format's."""
    if reading.gold_field is None and row_format.answer == "answer":
        for name in GOLD_FIELDS:
            if fields.get(name) is not None:
                return name
    return row_format.answer


def _missing_fields(fields: Mapping[str, Any], reading: RowReading) -> str:
    """Return why a row has no format."""
    for name in (reading.question_field, reading.gold_field):
        if name is not None and fields.get(name) is None:
            return f"the field `{name}` is missing"
    question_fields = {name for entry in PROBLEM_FORMATS for name in entry.question}
    has_question = any(fields.get(name) is not None for name in question_fields)
    return "no answer" if has_question else "neither question nor answer"


def _own_problem(fields: Mapping[str, Any]) -> Problem:
    """Return the problem of a row of our own ``problems`` config, with its original source.

    Columns that this release does not know become fields of the metadata.
    """
    try:
        metadata = parse_json(fields["metadata"] or "{}")
    except (TypeError, ValueError):
        raise UnusableRowError("metadata is not JSON") from None
    if not isinstance(metadata, dict):
        raise UnusableRowError("metadata is not a JSON object")
    further = {name: value for name, value in fields.items() if name not in _OWN_COLUMNS}
    problem = Problem(
        question=_QUESTION.question_text(fields),
        answer=gold_text(fields["answer"]),
        source=str(fields["source"]),
        split=str(fields["split"]),
        metadata=_plain_fields(further) | metadata,
    )
    return require_usable(problem)


def _collect_metadata(
    fields: Mapping[str, Any], row_format: ProblemFormat, gold_field: str, gold: str
) -> dict[str, Any]:
    """Return all other fields of a row, and the solution that contained the gold."""
    used_fields = {*row_format.question, gold_field, *_SOLUTION_FIELDS} - {"solution"}
    metadata = {name: value for name, value in fields.items() if name not in used_fields}
    text = fields[gold_field]
    if isinstance(text, str) and text != gold:
        metadata.setdefault("solution", text)
    return _plain_fields(metadata)


def _plain_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a row as JSON values.

    Raises:
        UnusableRowError: if a field cannot be stored as JSON.
    """
    try:
        plain: dict[str, Any] = orjson.loads(orjson.dumps(fields, default=str))
    except TypeError as error:
        raise UnusableRowError(f"a field cannot be stored as JSON ({error})") from None
    return plain


def require_usable(problem: Problem) -> Problem:
    """Return the problem.

    Raises:
        UnusableRowError: if its text cannot be encoded as UTF-8, or grading cannot read its
            metadata.
    """
    try:
        check_gold_metadata(problem.metadata)
    except ValueError as error:
        raise UnusableRowError(str(error)) from None
    try:
        f"{problem.question}{problem.answer}".encode()
    except UnicodeEncodeError:
        raise UnusableRowError(
            "the text holds half a surrogate pair, which is no character"
        ) from None
    return problem
