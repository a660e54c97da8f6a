"""Formats of published step labels: each reads a row as solutions with one label per step.

The fields of a row, or a function of :mod:`~fsdpo_data.exchange.step_label_rows`, give the steps.
:class:`StepLabelFields` then cuts a solution, and sets the text between its steps.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.row_files import replace_surrogates
from fsdpo_data.exchange import step_label_rows
from fsdpo_data.exchange.response_formats import Fields, RecordedResponse
from fsdpo_data.exchange.step_label_rows import labelled_solution, parse_label, split_problem
from fsdpo_data.stages.import_labels import ImportSettings
from fsdpo_data.steps.first_error import NO_ERROR, RIGHT_STEP_LABEL, find_first_below
from fsdpo_data.steps.segment import (
    choose_segmenter,
    remove_step_marker,
    split_at_step_markers,
)

_NOTHING = "nothing"  #: Data that a format drops which keeps the complete row.
#: Texts between two steps, by the name that users give them.
STEP_SEPARATORS = {"newline": "\n", "blank-line": "\n\n"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLabelFields:
    """How to read step labels; most formats need only the names of their fields.

    The attributes are the keys of a table ``step_labels`` in ``formats.toml``; its keys
    ``label_meaning`` and ``drops`` are in ``settings``.
    """

    settings: ImportSettings  #: The meaning of the labels, and the data that are not imported.
    #: Yields the solutions of a row; None if the fields below describe the format completely.
    read_row: Callable[[Fields], Iterator[RecordedResponse]] | None = None
    #: Field of the problem; empty if the steps start with the problem. Dots lead into objects, and
    #: into the objects of lists: ``steps.text`` is the text of each step.
    problem: str = ""
    steps: str = ""  #: Field of the steps: a list, or one text.
    label: Sequence[str] = ()  #: Possible fields of the labels; the first one in the row is used.
    right_labels: Sequence[str] = ()  #: Labels that mean right, as texts; empty for the usual ones.
    wrong_labels: Sequence[str] = ()  #: Labels that mean wrong, as texts; all others are invalid.
    wrong_steps: str = ""  #: Field with the numbers of the wrong steps, from 1.
    #: Field with the number of the first wrong step; null, -1 or a word such as "none" without one.
    first_error: str = ""
    first_step: int = 0  #: Number of the first step in ``first_error``.
    answer: str = ""  #: Field of the gold answer; empty if the format has none.
    answer_on_last_line: bool = False  #: Whether the gold is the last line of this field.
    #: Possible step tags after each step of a text; the first one in the text is used.
    step_tags: Sequence[str] = ()
    #: Prefix and suffix around the problem in that text; both are removed.
    problem_affixes: Sequence[str] = ("", "")
    summary: str = ""  #: Origin and labels in a few words, for ``--help``.
    #: Whether the text has a step after each "Step k:", or without such markers on each line.
    has_step_lines: bool = False
    ends_at_first_error: bool = False  #: Whether the steps after the first wrong step are dropped.
    #: Name of the text between two steps; empty if the steps stay as they are.
    step_separator: str = "newline"
    #: Whether each row is a preference pair, read as the chosen and then the rejected solution.
    has_pairs: bool = False

    @classmethod
    def from_toml(
        cls, name: str, *, label_meaning: str, drops: str, read_row: str = "", **fields: Any
    ) -> Self:
        """Make the fields of a format from its table, which may name a function of the rows."""
        settings = ImportSettings(format=name, meaning=label_meaning, drops=drops)
        return cls(
            settings=settings,
            read_row=getattr(step_label_rows, read_row) if read_row else None,
            **fields,
        )

    def with_options(self, step_separator: str | None, *, first_error_only: bool) -> Self:
        """Return the format with the options of a user.

        Args:
            step_separator: Name of the text between two steps, which also replaces step markers;
                None keeps the separator of the format.
            first_error_only: Whether to drop the steps after the first wrong step.
        """
        first_error_only = first_error_only and not self.ends_at_first_error
        drops = []
        if first_error_only:
            drops.append("the steps after the first wrong step")
        if step_separator is not None:
            drops.append("step markers")
            if not self.step_separator:
                drops.append("the white space around steps, even in the middle of a sentence")
        if not drops or self.settings.drops != _NOTHING:
            drops.append(self.settings.drops)
        settings = self.settings.model_copy(
            update={
                "drops": ", ".join(drops),
                "step_separator": step_separator,
                "first_error_only": first_error_only,
            }
        )
        return replace(
            self,
            settings=settings,
            ends_at_first_error=self.ends_at_first_error or first_error_only,
            step_separator=step_separator or self.step_separator,
        )

    def as_published(self) -> Self:
        """Return the format with complete solutions, and with the steps as in the row."""
        return replace(self, ends_at_first_error=False, step_separator="")

    def matches(self, fields: Fields) -> bool:
        """Return whether the format reads at least one solution of a row."""
        try:
            return any(self.read(fields))
        except (UnusableRowError, LookupError, TypeError, AttributeError):
            return False

    def read(self, fields: Fields) -> Iterator[RecordedResponse]:
        """Yield the solutions of a row.

        Raises:
            UnusableRowError: If a value of the row is invalid. A row of another format may also
                raise a LookupError, TypeError or AttributeError.
        """
        solutions = self._read_fields(fields) if self.read_row is None else self.read_row(fields)
        return map(self._finish, solutions)

    def _finish(self, solution: RecordedResponse) -> RecordedResponse:
        """Cut a solution, and set the text between its steps.

        Raises:
            UnusableRowError: if there is not one label per step.
        """
        n_steps = len(solution.steps)
        n_labels = len(solution.completion.imported_labels or ())
        if self.ends_at_first_error:
            solution = _cut_after_first_error(solution)
        # Labels may end with the first wrong step. Otherwise another number of labels shows that
        # the steps were split otherwise, so that a label could belong to another step.
        labels = solution.completion.imported_labels or ()
        is_labelled_part = 0 < n_labels == len(solution.steps) == len(labels)
        if n_steps == 0 or (n_labels != n_steps and not is_labelled_part):
            raise UnusableRowError(f"{n_steps} steps and {n_labels} labels")
        steps = solution.steps
        goes_on = solution.goes_on or len(steps) < n_steps
        if self.step_separator:
            steps = self._separate_steps(steps, goes_on=goes_on)
        _check_texts(solution.question, solution.gold, steps)
        completion = replace(
            solution.completion,
            text="".join(steps),
            finish_reason="length" if goes_on else "stop",
            step_chars=tuple(map(len, steps)),
        )
        return replace(solution, steps=tuple(steps), completion=completion)

    def _separate_steps(self, steps: Sequence[str], *, goes_on: bool) -> list[str]:
        """Return stripped steps with a separator after each step but the last.

        A reward is read at the last token of a step, and this token contains the separator. If the
        last step had none although the solution goes on, a reward model could tell by it where the
        labels end, and so where the first error is.
        """
        if self.settings.step_separator is not None:
            # A marker alone stays, because a step must not be blank.
            steps = [remove_step_marker(step.strip()) or step for step in steps]
        separator = STEP_SEPARATORS[self.step_separator]
        *ended_steps, last_step = (step.strip() + separator for step in steps)
        return [*ended_steps, last_step if goes_on else last_step.removesuffix(separator)]

    def _read_fields(self, fields: Fields) -> Iterator[RecordedResponse]:
        """Yield the solution of a row whose fields describe the format completely."""
        steps = _read_field(fields, self.steps)
        if isinstance(steps, str):
            steps = self._split_steps(steps)
        if self.problem:
            problem = _read_field(fields, self.problem)
        else:
            problem, steps = split_problem(steps)
        prefix, suffix = self.problem_affixes
        problem = problem.strip().removeprefix(prefix).removesuffix(suffix).strip()
        labels = self._read_labels(fields, len(steps))
        yield labelled_solution(problem, steps, labels, self._read_answer(fields))

    def _read_answer(self, fields: Fields) -> str:
        """Return the gold answer of a row; empty without one."""
        if not self.answer:
            return ""
        value = _read_field(fields, self.answer)
        answer = "" if value is None else str(value).strip()
        return answer.split("\n")[-1].strip() if self.answer_on_last_line else answer

    def _split_steps(self, text: str) -> list[str]:
        """Split a text into steps, at its lines or step tags."""
        if self.has_step_lines:
            if choose_segmenter(text) == "step-marker@1":  # such a step may have several lines
                return split_at_step_markers(text)
            return [line for line in text.split("\n") if line.strip()]
        step_tag = next((tag for tag in self.step_tags if tag in text), "")
        if not step_tag:
            raise UnusableRowError("the text has no step tag")
        *steps, text_after = text.split(step_tag)
        if text_after.strip():
            raise UnusableRowError("there is text after the last step tag")
        return steps

    def _read_labels(self, fields: Fields, count: int) -> list[float]:
        """Return the labels of a row with ``count`` steps."""
        if self.first_error:
            index = self._first_error_index(_read_field(fields, self.first_error), count)
            return [number != index for number in range(count)]
        if not self.wrong_steps:
            name = next((name for name in self.label if name in fields), self.label[0])
            labels = _read_field(fields, name)
            if isinstance(labels, str):
                raise UnusableRowError("the labels are one text, expected a list")
            return [self._parse_label(label) for label in labels]
        wrong_steps = fields[self.wrong_steps]
        if set(wrong_steps) - set(range(1, count + 1)):
            raise UnusableRowError(f"{self.wrong_steps} {wrong_steps} of {count} steps")
        return [number not in wrong_steps for number in range(1, count + 1)]

    def _parse_label(self, value: Any) -> float:
        """Return the label of a step, from 0 (wrong) to 1 (right)."""
        if not self.right_labels and not self.wrong_labels:
            return parse_label(value)
        text = _label_text(value)
        is_right = text in self.right_labels
        if is_right == (text in self.wrong_labels):
            expected = ", ".join((*self.right_labels, *self.wrong_labels))
            raise UnusableRowError(f"label {value!r}, expected one of {expected}")
        return is_right

    def _first_error_index(self, value: Any, count: int) -> int:
        """Return the position of the first wrong step, from 0; -1 without one."""
        text = _label_text(value).lower()
        if text in _NO_ERROR or value == -1:
            return -1
        try:
            index = int(text) - self.first_step
        except ValueError:
            index = -1
        if isinstance(value, bool) or index not in range(count):
            raise UnusableRowError(
                f"{self.first_error} {value!r} of {count} steps, which start at {self.first_step}"
            )
        return index


def _cut_after_first_error(solution: RecordedResponse) -> RecordedResponse:
    """Return a solution without the steps after the first wrong one."""
    completion = solution.completion
    labels = completion.imported_labels or ()
    first_error = find_first_below(labels, RIGHT_STEP_LABEL)
    if first_error == NO_ERROR:
        return solution
    end = first_error + 1
    ratings = completion.imported_ratings
    # The verdict of another grader is about an answer that the shorter solution does not have.
    has_answer = end == len(solution.steps)
    completion = replace(
        completion,
        imported_correct=completion.imported_correct if has_answer else None,
        imported_labels=labels[:end],
        imported_ratings=None if ratings is None else ratings[:end],
    )
    return replace(solution, steps=solution.steps[:end], completion=completion)


def _check_texts(question: str, gold: str, steps: Sequence[str]) -> None:
    """Raise an UnusableRowError if a text is blank, or cannot be written to a file."""
    for text in (question, gold, *steps):
        if not isinstance(text, str):
            raise UnusableRowError(f"expected a text, found {text!r}")
        if text != replace_surrogates(text):
            raise UnusableRowError("the text contains half a surrogate pair, which is invalid")
    if not all(text.strip() for text in (question, *steps)):
        raise UnusableRowError("the problem or a step is blank")


#: Words for the absence of a wrong step, in lower case.
_NO_ERROR = ("null", "none", "n/a", "")


def _label_text(value: Any) -> str:
    """Return a label as the text that users write for it: JSON's words, and 1 for 1.0."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value).strip()


def _read_field(fields: Fields, path: str) -> Any:
    """Return a field of a row; dots lead into objects, and into the objects of lists."""
    if path in fields:
        return fields[path]
    name, _, inner_path = path.partition(".")
    value = fields[name]
    if not inner_path:
        return value
    if isinstance(value, list):
        return [_read_field(item, inner_path) for item in value]
    return _read_field(value, inner_path)
