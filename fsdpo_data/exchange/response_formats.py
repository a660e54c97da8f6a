"""Recorded model responses in the formats of their publishers.

A publisher is the project or library that wrote the file. :class:`ResponseFields` lists names of
fields, and the first field that is present and not null counts. ``doc.question`` is a nested field,
and ``body + question`` joins two texts. ``formats.toml`` has the formats.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple, Self

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.finish_reasons import (
    describe_unknown_finish_reasons,
    is_missing,
    list_by_count,
    read_finish_reason,
    unknown_finish_reason,
)
from fsdpo_data.core.input_files import parse_json
from fsdpo_data.core.options import Option
from fsdpo_data.core.row_errors import UnusableRowError
from fsdpo_data.core.sampling import Completion
from fsdpo_data.problems.golds import GoldReading, means_no_gold, read_gold
from fsdpo_data.problems.row_formats import (
    ROWS_PANEL,
    FieldName,
    RowReading,
    is_solution_row,
    refuse_solution_row,
)

Fields = Mapping[str, Any]


class ResponseReading(RowReading):
    """How to read the rows of files with responses."""

    response_field: FieldName = None
    """Field with the response, or with the list of responses."""
    series: Annotated[str | None, Option(panel=ROWS_PANEL, default_text="all")] = None
    """Name of the model whose responses are read, if a file has the responses of several models."""

    def selects(self, response: "RecordedResponse") -> bool:
        """Return whether the response is of the model ``series``, if the user names one."""
        return self.series in (None, response.model)

    def unknown_series_error(self, location: str, models: Iterable[str]) -> InputError:
        """Return the error for a source that has only responses of other models.

        Args:
            location: The source.
            models: The models of its responses; an empty name is unknown.
        """
        names = ", ".join(sorted({*models} - {""})) or "unnamed"
        return self.field_error(
            "series", f"{location} has no response of this model. Its models are {names}."
        )


DEFAULT_RESPONSE_READING = ResponseReading()  #: The reading without names of fields.


#: The completion of a response that cannot be used, or whose steps are not joined to a text.
NO_COMPLETION = Completion("", "stop")


@dataclass(frozen=True, slots=True)
class RecordedResponse:
    """One response of a row with its gold answer, and what its publisher states about it."""

    gold: str  #: Gold answer; empty if the format has none.
    #: The response, with the publisher's verdict and step labels. The finish reason is
    #: ``length`` if the row marks the response as truncated, states an unknown reason, or if its
    #: labels end before its steps.
    completion: Completion
    unknown_verdict: str = ""  #: The verdict as in the row, if its meaning is unknown.
    #: Model or sample index within the row; empty for a single response. The responses of all rows
    #: with the same series are evaluated together.
    series: str = ""
    question: str = ""  #: Question; empty if unknown.
    model: str = ""  #: Model of the response; empty if unknown.
    row: int = 0  #: Number of the row in its file.
    has_finish_reason: bool = False  #: Whether the row has a finish reason of the response.
    unknown_finish_reason: str = ""  #: The finish reason as in the row, if its name is unknown.
    prompt: str = ""  #: Prompt of the model; empty if unknown.
    request: str = ""  #: Id of the request, if the prompts are in another file (batch APIs).
    steps: Any = None  #: Steps as listed in the row, not checked; None without a list.
    step_scores: Any = None  #: Scores of the steps as in the row, not checked; None without scores.
    goes_on: bool = False  #: Whether the original solution has steps after the labelled ones.
    #: Values that identify the response in a file of step scores; empty if the format has none.
    key: tuple[Any, ...] = ()
    #: Columns of the row that no format reads, such as a difficulty.
    unread_columns: Mapping[str, Any] = field(default_factory=dict)
    #: Reason why this response of several cannot be used; empty for a usable one.
    error: str = ""


class DocumentKey(NamedTuple):
    """Identifies responses that several rows repeat, each with another reading of the answer."""

    responses: str  #: Hash of the document and its responses.
    reading: str  #: Name of the reading, such as a filter; empty without a name.


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFields:
    """The names of the fields in which one publisher stores a response and its data.

    The attributes are the keys of a table ``responses`` in ``formats.toml``.
    """

    publisher: str  #: Publisher of the format, for messages.
    needs: Sequence[str]  #: Fields that identify the format; ``a|b`` for either.
    responses: Sequence[str]  #: Fields with the responses.
    is_list: bool = False  #: Whether the responses must be a list.
    #: Fields with the text of a response.
    text: Sequence[str] = ("text", "response", "content", "message.content")
    question: Sequence[str] = ("question", "problem")  #: Fields with the question.
    #: Whether no other field may contain a part of the question.
    has_complete_question: bool = False
    question_in: str = ""  #: Pattern whose first group is the question; empty for all text.
    prompt: Sequence[str] = ("prompt",)  #: Fields with the prompt.
    request: Sequence[str] = ()  #: Fields with the id of the request.
    gold: Sequence[str] = ()  #: Fields with the gold answer.
    gold_index: Sequence[str] = ()  #: Fields with the index of the gold answer in a list.
    gold_in: str = ""  #: Pattern whose first group is the gold answer; empty for all text.
    model: Sequence[str] = ()  #: Fields with the name of the model.
    by_model: bool = False  #: Whether the row has one column per model.
    correct: Sequence[str] = ()  #: Fields with the publisher's verdict.
    #: Fields with the number of generated tokens.
    n_tokens: Sequence[str] = ("n_tokens", "num_generated_tokens")
    steps: Sequence[str] = ()  #: Fields with the steps of a response, a list of texts.
    step_scores: Sequence[
        str
    ] = ()  #: Fields with the step scores of a response, a list of numbers.
    #: Whether a single number instead of step scores is the score of the response. It is not
    #: imported then; otherwise it is an error.
    has_response_scores: bool = False
    step_separator: str = ""  #: Text between the scored steps of a response that lists no steps.
    #: Pattern of a chat prompt that the first listed steps contain before the response.
    chat_prompt: str = ""
    key: Sequence[str] = ()  #: Fields that identify a response in a file of step scores.
    not_text: str = ""  #: Error message for a list instead of a text.
    #: Fields that identify a problem whose responses several rows repeat, as lm-evaluation-harness
    #: writes one row per filter. Empty if each row has responses of its own.
    repeats: Sequence[str] = ()
    repeated_by: str = ""  #: Field that differs between the rows that repeat responses.
    gold_reading: GoldReading = "auto"  #: How to read the gold answer; not a key of the table.
    is_named: bool = False  #: Whether the user names the field of the responses; no key either.

    def matches(self, fields: Fields) -> bool:
        """Return whether a row has all fields that the format needs.

        With ``by_model``, the row also needs at least one column with a response.
        """
        for alternatives in self.needs:
            if not any(name in fields for name in alternatives.split("|")):
                return False
        return not self.by_model or any(self._columns(fields))

    def with_reading(self, reading: ResponseReading) -> Self:
        """Return these fields with the names and the reading of golds that a user gives."""
        changes: dict[str, Any] = {
            attribute: (name,)
            for attribute, name in (
                ("question", reading.question_field),
                ("gold", reading.gold_field),
                ("responses", reading.response_field),
            )
            if name is not None
        }
        if reading.gold != self.gold_reading:
            changes["gold_reading"] = reading.gold
        if reading.response_field is not None:
            changes["is_named"] = True
        return replace(self, **changes) if changes else self

    def unread_columns(self, fields: Fields) -> dict[str, Any]:
        """Return the columns of a row that no format reads; empty for formats of other tools."""
        if not self.has_complete_question:
            return {}
        return {name: value for name, value in fields.items() if name not in self._read_columns}

    @property
    def _read_columns(self) -> set[str]:
        """The columns of a row that the format reads."""
        alternatives = [*self.needs, *self.responses, *self.question, *self.prompt, *self.gold]
        alternatives += [*self.model, *self.correct, *self.n_tokens, *self.steps, *self.step_scores]
        names = {name for text in alternatives for name in re.split(r" \+ |\|", text)}
        names |= {*_FINISH_REASON_FIELDS, *_REASONING_FIELDS, _FINISH_REASONS_FIELD}
        return {name.partition(".")[0] for name in names}

    def find_step_scores(self, fields: Fields) -> Any:
        """Return the step scores in a row of a file of step scores; None if there are none."""
        return _first(fields, self.step_scores)

    def document_key(self, fields: Fields) -> DocumentKey | None:
        """Return the key of the responses of a row and of their reading; None without repeats.

        The hash includes the content of the document, because its number is not unique in
        concatenated files, and the responses, because another run has others.
        """
        if not self.repeats or self.repeats[0] not in fields:
            return None
        values = [fields.get(name) for name in (*self.repeats, *self.responses)]
        text = json.dumps(values, sort_keys=True, default=str)
        reading = str(fields.get(self.repeated_by) or "")
        return DocumentKey(hashlib.sha256(text.encode()).hexdigest(), reading)

    def _columns(self, row: Fields) -> Iterator[tuple[str, Fields]]:
        """Yield the model name and the fields of each column with a response."""
        for name, value in row.items():
            if isinstance(value, Mapping) and self.responses[0] in value:
                yield name, value

    def read(self, row: Fields) -> Iterator[RecordedResponse]:
        """Yield the responses of a row, of all models in it.

        Raises:
            UnusableRowError: If a value of the row is invalid. A row of another format may also
                raise a LookupError, TypeError, AttributeError, ValueError or OverflowError.
        """
        if "answer" in self.gold:
            refuse_solution_row(row)
        question = self._require_text("question", _first(row, self.question) or "")
        if self.question_in:
            match = re.search(self.question_in, question, re.S)
            question = match[1] if match else ""
        prompt = _first(row, self.prompt)
        base = RecordedResponse(
            self._gold(row),
            NO_COMPLETION,
            question=question,
            # A prompt that is a list of messages is left out, because its chat template is unknown.
            prompt=prompt if isinstance(prompt, str) else "",
            request=str(_first(row, self.request) or ""),
            model=str(_first(row, self.model) or ""),
            key=response_key(row, self.key),
            unread_columns=self.unread_columns(row),
        )
        if not self.by_model:
            yield from self._read_completions(row, base)
            return
        for name, fields in self._columns(row):
            yield from self._read_completions(fields, replace(base, model=name, series=name))

    def _gold(self, row: Fields) -> str:
        """Return the gold answer of a row; empty without one, or with "N/A" instead.

        A response with an empty gold is never graded, and a problem cannot have one.
        """
        gold = _first(row, self.gold)
        if self.gold_index:
            index = _first(row, self.gold_index)
            gold = gold[index[0] if isinstance(index, list) else index]
        if self.gold_in and (match := re.search(self.gold_in, str(gold), re.S)):
            gold = match[1].strip()
        if gold is None or gold == "":
            return ""
        gold = read_gold(gold, self.gold_reading)
        return "" if means_no_gold(gold) else gold

    def _read_completions(
        self, fields: Fields, base: RecordedResponse
    ) -> Iterator[RecordedResponse]:
        """Yield the responses of one model; ``base`` has the values that they share."""
        value = self._find_responses(fields)
        if self.is_list and not isinstance(value, list):
            raise TypeError(f"{value!r} is not a list")
        responses = self._list_responses(value) if isinstance(value, list) else [value]
        verdicts = _per_response(_first(fields, self.correct), len(responses))
        token_counts = _per_response(_first(fields, self.n_tokens), len(responses))
        steps = _lists_per_response(_first(fields, self.steps), value, len(responses))
        step_scores = _lists_per_response(_first(fields, self.step_scores), value, len(responses))
        finish_reasons = _find_finish_reasons(fields, len(responses))
        for index, response in enumerate(responses):
            response_fields = response if isinstance(response, Mapping) else {}
            text = _first(response_fields, self.text) if response_fields else response
            series = f"sample {index}" if isinstance(value, list) else base.series
            reasoning = _first(response_fields, _REASONING_FIELDS)
            if text is None and reasoning:
                # A response that was truncated during its thinking has no text, as when
                # ``fsdpo-data build`` samples from a server.
                text = ""
            if text is None and len(responses) > 1:
                yield replace(base, series=series, error="the response is null; expected text")
                continue
            n_tokens = token_counts[index]
            if n_tokens is None:
                n_tokens = _first(response_fields, self.n_tokens)
            verdict = verdicts[index]
            recorded_reason = _first_or(
                response_fields, _FINISH_REASON_FIELDS, finish_reasons[index]
            )
            finish_reason = read_finish_reason(recorded_reason)
            if finish_reason is None:
                error = f"the response is not finished: its finish reason is {recorded_reason}"
                yield replace(base, series=series, error=error)
                continue
            completion = Completion(
                self._require_text("response", text),
                finish_reason,
                _token_count(n_tokens),
                reasoning=reasoning or "",
                imported_correct=read_verdict(verdict),
            )
            yield replace(
                base,
                completion=completion,
                unknown_verdict=unknown_verdict(verdict),
                series=series,
                has_finish_reason=not is_missing(recorded_reason),
                unknown_finish_reason=unknown_finish_reason(recorded_reason),
                steps=_first_or(response_fields, self.steps, steps[index]),
                step_scores=_first_or(response_fields, self.step_scores, step_scores[index]),
            )

    def _find_responses(self, fields: Fields) -> Any:
        """Return the response or the list of responses; CSV files have lists as JSON text.

        A chat is one response: the last message of the assistant.

        Raises:
            UnusableRowError: if the row has the steps of a solution in place of responses.
        """
        for name in self.responses:
            value = _first(fields, (name,))
            if value is not None:
                if self.has_complete_question and name == _STEPS_FIELD:
                    self._refuse_steps(fields)
                is_single = not self.is_list and name not in _LIST_FIELDS
                if not is_single or _is_chat_text(value):
                    value = _parse_list(value)
                is_chat = isinstance(value, list) and _is_chat(value, is_single=is_single)
                return _last_answer(value) if is_chat else value
        return None

    def _refuse_steps(self, fields: Fields) -> None:
        """Raise an UnusableRowError if ``completions`` has the steps of one solution.

        Rows with step labels have as many labels as steps, and no other verdict.
        """
        if is_solution_row(fields):
            raise UnusableRowError(
                "`completions` of a row of solutions has the steps of one solution: join them in a "
                "field `response`"
            )
        steps, labels = (_parse_list(fields.get(name)) for name in (_STEPS_FIELD, "labels"))
        are_lists = isinstance(steps, list) and isinstance(labels, list)
        if self.is_named or not are_lists or fields.get("correct") is not None:
            return
        if len(steps) == len(labels) and all(map(_is_step_label, labels)):
            raise UnusableRowError(
                "`completions` may have the steps of one solution, with `labels`: read them with "
                "`from=trl-stepwise`. If they are several responses, set "
                "`response_field=completions`"
            )

    def _list_responses(self, values: list[Any]) -> list[Any]:
        """Return the responses in a list, which may have a list for each request, or chats.

        Raises:
            UnusableRowError: if a chat has no answer, or if a plain row has lists of several texts,
                which may be the steps of a response.
        """
        responses = []
        for value in values:
            if not isinstance(value, list):
                responses.append(value)
            elif _is_chat(value):
                responses.append(_last_answer(value))
            elif not self.is_list and sum(isinstance(item, str) for item in value) > 1:
                raise UnusableRowError(
                    f"a response is a list of {len(value)} texts; expected one text. Join its steps"
                )
            else:
                responses += value
        return responses

    def _require_text(self, name: str, value: Any) -> str:
        """Return a value that is text, or raise an UnusableRowError."""
        if isinstance(value, str):
            return value
        if isinstance(value, list) and self.not_text:
            raise UnusableRowError(self.not_text)
        if value is None:
            raise UnusableRowError(f"the {name} is missing")
        raise UnusableRowError(f"the {name} is {value!r}; expected text")


_STEPS_FIELD = "completions"  #: The field of responses that has steps in rows with step labels.
#: Fields of responses in which a JSON list as text, as in CSV files, is a list of responses.
_LIST_FIELDS = ("responses", "completions", "outputs", "samples", "generations")
_FINISH_REASONS_FIELD = "finish_reasons"
_FINISH_REASON_FIELDS = ("finish_reason.type", "finish_reason", "stop_reason")
_REASONING_FIELDS = ("message.reasoning_content", "message.reasoning", "reasoning")
#: The meaning of verdicts. In CSV files all values are text, and judges write words.
_VERDICTS = {
    **dict.fromkeys(("true", "1", "1.0", "correct", "right", "yes"), True),
    **dict.fromkeys(("false", "0", "0.0", "incorrect", "wrong", "no"), False),
}
_MAX_VERDICT_CHARS = 40  #: Characters of a verdict in a warning.


def read_verdict(value: Any) -> bool | None:
    """Return whether a recorded verdict means "correct"; None without a verdict that is known."""
    return _VERDICTS.get(str(value).strip().lower())


def unknown_verdict(value: Any) -> str:
    """Return the text of a verdict with an unknown meaning; empty for a known or missing one."""
    text = "" if value is None else " ".join(str(value).split())
    return "" if text.lower() in _VERDICTS else text[:_MAX_VERDICT_CHARS]


class UnknownValues:
    """The finish reasons and verdicts of responses whose meaning is unknown, with their numbers."""

    def __init__(self) -> None:
        """Start with no responses."""
        self._finish_reasons: Counter[str] = Counter()
        self._verdicts: Counter[str] = Counter()

    def add(self, response: RecordedResponse) -> None:
        """Count the values of a response."""
        if response.unknown_finish_reason:
            self._finish_reasons[response.unknown_finish_reason] += 1
        if response.unknown_verdict:
            self._verdicts[response.unknown_verdict] += 1

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each kind of unknown values."""
        if unknown := describe_unknown_finish_reasons(self._finish_reasons):
            yield f"the rows have {unknown}"
        if self._verdicts:
            counts = list_by_count(self._verdicts)
            yield f"the rows have unknown verdicts, which count as no verdict: {counts}."


def _token_count(value: Any) -> int | None:
    """Return a number of tokens, or the length of a list of tokens; None for other values."""
    count = len(value) if isinstance(value, list) else value
    return count if type(count) is int and 0 <= count < 2**31 else None


def _first(fields: Fields, names: Sequence[str]) -> Any:
    """Return the value of the first field that is present and not null, else None."""
    for name in names:
        values = [_nested_value(fields, path) for path in name.split(" + ")]
        if None not in values:
            return values[0] if len(values) == 1 else " ".join(map(str, values))
    return None


def _nested_value(value: Any, path: str) -> Any:
    """Return the value at a path such as ``doc.question`` or ``prompt.-1.content``, or None."""
    for name in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and value and re.fullmatch(r"-1|0", name):
            value = value[int(name)]
        else:
            value = None
    return value


def _is_step_label(value: Any) -> bool:
    """Return whether a value may be the label of a step."""
    return value is None or isinstance(value, bool | int | float) or value in ("+", "-")


def _is_chat_text(value: Any) -> bool:
    """Return whether a value is the JSON text of a chat."""
    return isinstance(value, str) and re.match(r'\s*\[\s*\{\s*"role"', value) is not None


def _is_chat(values: list[Any], *, is_single: bool = False) -> bool:
    """Return whether a list has the messages of a chat, and not several answers.

    Args:
        values: The list.
        is_single: Whether the field has one response, so that a list of one message is a chat.
    """
    roles = [value.get("role") if isinstance(value, Mapping) else None for value in values]
    if None in roles:
        return False
    return any(role != "assistant" for role in roles) or (is_single and len(roles) == 1)


def _last_answer(messages: list[Any]) -> Any:
    """Return the last message of the assistant; UnusableRowError without one."""
    for message in reversed(messages):
        if message["role"] == "assistant":
            return message
    raise UnusableRowError("the response is a chat without a message of the assistant")


def _parse_list(value: Any) -> Any:
    """Return a value of a row; a list that a CSV file has as JSON text becomes a list.

    Raises:
        UnusableRowError: if the text is a list of another notation, such as Python's.
    """
    if not isinstance(value, str) or not re.match(r"\s*\[", value):
        return value
    try:
        parsed = parse_json(value)
    except ValueError:
        if re.fullmatch(r"\s*\['.*'\]\s*", value, re.S):
            raise UnusableRowError("a list is not JSON: write its texts in double quotes") from None
        return value
    return parsed if isinstance(parsed, list) else value


def _per_response(value: Any, count: int) -> list[Any]:
    """Return one value per response; a single value does not apply to several responses."""
    value = _parse_list(value)
    if isinstance(value, list) and len(value) == count:
        return value
    if isinstance(value, list):
        raise ValueError(f"{len(value)} values for {count} responses")
    return [value if count == 1 else None] * count


def _find_finish_reasons(fields: Fields, count: int) -> list[Any]:
    """Return the recorded finish reason of each response; a single value holds for all."""
    value = _first(fields, (_FINISH_REASONS_FIELD, *_FINISH_REASON_FIELDS))
    values = _per_response(value, count) if isinstance(value, list) else [value] * count
    return [_first({"finish_reason": value}, _FINISH_REASON_FIELDS) for value in values]


def _lists_per_response(value: Any, responses: Any, count: int) -> list[Any]:
    """Return one list per response; a single response that is not in a list has the list itself.

    Args:
        value: The value of the field; None if it is missing.
        responses: The value of the field with the responses.
        count: Number of responses.
    """
    if value is None:
        return [None] * count
    value = _parse_list(value)
    return _per_response(value, count) if isinstance(responses, list) else [value]


def _first_or(fields: Fields, names: Sequence[str], default: Any) -> Any:
    """Return the value of the first field that is present and not null, else a default."""
    value = _first(fields, names)
    return default if value is None else value


def response_key(fields: Fields, names: Sequence[str]) -> tuple[Any, ...]:
    """Return the values that identify a response; empty if one of the fields is missing."""
    values = tuple(_first(fields, (name,)) for name in names)
    return () if None in values else values
