"""Recorded model responses in the formats of their publishers."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fsdpo_data.core.row_files import SourceRow
from fsdpo_data.core.sampling import LENGTH_FINISH_REASONS, FinishReason
from fsdpo_data.core.toml_tables import TomlTable
from fsdpo_data.problems.row_formats import (
    UnusableRowError,
    gold_text,
    parse_boxed_gold,
    parse_gsm8k_gold,
)

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedResponse:
    """One recorded response with its gold answer and the data of its publisher."""

    gold: str  #: Gold answer; empty if the format has none.
    response: str  #: Text of the response.
    correct: bool | None  #: The publisher's verdict; None if there is none.
    series: str = ""  #: Model or sample within the row; empty for a single response.
    question: str = ""  #: Question; empty if unknown.
    model: str = ""  #: Model of the response; empty if unknown.
    reward: float | None = None  #: Reward of a reward model, in [0, 1]; None without one.
    row: int = 0  #: Number of the row in its file.
    #: ``length`` if the row marks the response as truncated.
    finish_reason: FinishReason = "stop"
    prompt: str = ""  #: Prompt of the model; empty if unknown.
    request: str = ""  #: Id of the request, if requests are in another file.
    n_tokens: int | None = None  #: Number of generated tokens; None if unknown.
    reasoning: str = ""  #: Thinking before the response, if recorded separately.


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFormat:
    """The fields of a recorded response; the keys of ``recorded_responses.toml``."""

    publisher: str  #: Publisher of the format, for messages.
    needs: Sequence[str]  #: Fields that identify the format; ``a|b`` for either.
    responses: Sequence[str]  #: Fields with the responses.
    is_list: bool = False  #: Whether the responses are always a list.
    #: Fields with the text of a response.
    text: Sequence[str] = ("text", "response", "content", "message.content")
    question: Sequence[str] = ("question", "problem")  #: Fields with the question.
    question_in: str = ""  #: Pattern whose first group is the question; empty for all text.
    prompt: Sequence[str] = ("prompt",)  #: Fields with the prompt.
    request: Sequence[str] = ()  #: Fields with the id of the request.
    gold: Sequence[str] = ()  #: Fields with the gold answer.
    gold_index: Sequence[str] = ()  #: Fields with the index of the gold answer in a list.
    gold_is: str = ""  #: Name of the parser of the gold answer, in ``_GOLDS``.
    model: Sequence[str] = ()  #: Fields with the name of the model.
    by_model: bool = False  #: Whether the row has one column per model.
    correct: Sequence[str] = ()  #: Fields with the publisher's verdict.
    logit: Sequence[str] = ()  #: Fields with the reward before the sigmoid.
    #: Fields with the number of generated tokens.
    n_tokens: Sequence[str] = ("n_tokens", "num_generated_tokens")
    not_text: str = ""  #: Error message for a response that is a list.
    repeats: Sequence[str] = ()  #: Fields that identify a document with several equal rows.

    def matches(self, fields: Fields) -> bool:
        """Return whether a row has all fields that the format needs."""
        told = all(any(name in fields for name in each.split("|")) for each in self.needs)
        return told and (not self.by_model or any(self._columns(fields)))

    def document_key(self, fields: Fields) -> str:
        """Return the id of a row's document; empty if rows do not repeat.

        The id covers all fields, because joined files repeat document numbers.
        """
        if not self.repeats or self.repeats[0] not in fields:
            return ""
        told = json.dumps([fields.get(name) for name in self.repeats], sort_keys=True, default=str)
        return hashlib.sha256(told.encode()).hexdigest()

    def read_responses(self, record: SourceRow) -> list[RecordedResponse]:
        """Return the responses of a row.

        Raises:
            UnusableRowError: if the row has no responses, with the reason.
        """
        try:
            found = [replace(each, row=record.row_number) for each in self._read(record.fields)]
        except UnusableRowError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise UnusableRowError(f"not the form of {self.publisher} ({error!r})") from None
        if not found:
            raise UnusableRowError(
                f"no response in it, expected one in the form of {self.publisher}"
            )
        return found

    def _columns(self, row: Fields) -> Iterator[tuple[str, Fields]]:
        """Yield the model name and the fields of each column with a response."""
        for name, value in row.items():
            if isinstance(value, Mapping) and self.responses[0] in value:
                yield name, value

    def _read(self, row: Fields) -> Iterator[RecordedResponse]:
        asked = self._text("question", _first(row, self.question) or "")
        if self.question_in:
            inner = re.search(self.question_in, asked, re.S)
            asked = inner[1] if inner else ""
        prompt = _first(row, self.prompt)
        about = RecordedResponse(
            self._text("gold", self._gold(row)),
            response="",
            correct=None,
            question=asked,
            # The template that rendered a conversation for the model is unknown.
            prompt=prompt if isinstance(prompt, str) else "",
            request=str(_first(row, self.request) or ""),
            model=str(_first(row, self.model) or ""),
        )
        if not self.by_model:
            yield from self._responses(row, about)
            return
        for name, part in self._columns(row):
            yield from self._responses(part, replace(about, model=name, series=name))

    def _gold(self, row: Fields) -> Any:
        found = _first(row, self.gold)
        if self.gold_index:
            index = _first(row, self.gold_index)
            found = found[index[0] if isinstance(index, list) else index]
        return _GOLDS[self.gold_is](found) if self.gold else ""

    def _responses(self, part: Fields, about: RecordedResponse) -> Iterator[RecordedResponse]:
        listed = _first(part, self.responses)
        if self.is_list and not isinstance(listed, list):
            raise TypeError(f"{listed!r} is no list")
        found = _flat(listed) if isinstance(listed, list) else [listed]
        corrects, logits, tokens = (
            _each(_first(part, fields), len(found))
            for fields in (self.correct, self.logit, self.n_tokens)
        )
        ended = _first(part, _ENDED)
        for index, (response, right) in enumerate(zip(found, corrects, strict=True)):
            own = response if isinstance(response, Mapping) else {}
            n_tokens = _first(own, self.n_tokens) if tokens[index] is None else tokens[index]
            n_tokens = len(n_tokens) if isinstance(n_tokens, list) else n_tokens
            text, reasoning = _first(own, self.text) if own else response, _first(own, _REASONING)
            # A response that was truncated during its thinking has no text, as in a build.
            text = "" if text is None and reasoning else text
            yield replace(
                about,
                response=self._text("response", text),
                correct=None if right in (None, "") else str(right).lower() in _RIGHT,
                series=f"sample {index}" if isinstance(listed, list) else about.series,
                reward=None if logits[index] is None else 1 / (1 + math.exp(-logits[index][0])),
                finish_reason="length"
                if (_first(own, _ENDED) or ended) in LENGTH_FINISH_REASONS
                else "stop",
                n_tokens=n_tokens if type(n_tokens) is int and 0 <= n_tokens < 2**31 else None,
                reasoning=reasoning or "",
            )

    def _text(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            told = self.not_text if isinstance(value, list) else ""
            raise UnusableRowError(told or f"the {name} is {value!r}, expected text")
        return value


_ENDED = ("finish_reason.type", "finish_reason", "stop_reason")
_RIGHT = ("true", "1", "1.0")  #: Spellings of true; in CSV files all values are text.
_REASONING = ("message.reasoning_content", "message.reasoning", "reasoning")


def _of_solution(value: Any) -> str:
    return parse_boxed_gold(value) if "\\boxed" in value else parse_gsm8k_gold(value)


_GOLDS: Mapping[str, Callable[[Any], Any]] = {
    "": lambda value: value,
    "text": lambda value: (
        gold_text(value) if value != "" else ""
    ),  # an empty gold answer is never graded
    # A solution may contain "at Job A: …" before the final "A: 8400".
    "last line": lambda value: str(value).rpartition("\nA:")[2].strip(),
    "solution": _of_solution,
    "first solution": lambda value: _of_solution(value[0]),
}


def _first(fields: Fields, names: Sequence[str]) -> Any:
    """Return the value of the first field that is present and not null, else None."""
    for name in names:
        values = [_within(fields, part) for part in name.split(" + ")]
        if None not in values:
            return values[0] if len(values) == 1 else " ".join(map(str, values))
    return None


def _within(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _flat(values: list[Any]) -> list[Any]:
    """Flatten lists of lists by one level, because the requests of a document belong together."""
    lists = [value if isinstance(value, list) else [value] for value in values]
    return [each for some in lists for each in some]


def _each(value: Any, count: int) -> list[Any]:
    """Return one value per response; a single value does not apply to several responses."""
    if isinstance(value, list) and len(value) == count:
        return value
    if isinstance(value, list):
        raise ValueError(f"{len(value)} values for {count} responses")
    return [value if count == 1 else None] * count


#: Formats of recorded responses by name; the first match counts.
RESPONSE_FORMATS = TomlTable(__file__, lambda _, **told: ResponseFormat(**told))


def find_response_format(fields: Fields, requires_gold: bool = False) -> ResponseFormat | None:
    """Return the format of a row, or None if no format matches."""
    known = (form for form in RESPONSE_FORMATS.values() if form.gold or not requires_gold)
    return next((form for form in known if form.matches(fields)), None)


def unknown_format_message(fields: Fields, requires_gold: bool = False) -> str:
    """Say what fields a row has of which :func:`find_format` knows no form, and what it knows."""
    known = (form for form in RESPONSE_FORMATS.values() if form.gold or not requires_gold)
    needs = "; ".join(f"{form.publisher} ({', '.join(form.needs)})" for form in known)
    return f"fields {', '.join(sorted(map(str, fields)))}. Expected one of: {needs}"


def question_key(question: str) -> str:
    """Return the text of a question without white space, for matching."""
    return "".join(question.split())
