"""Recorded completions: this module alone writes them as JSON values, and reads and checks them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from fsdpo_data.core.errors import StoreError
from fsdpo_data.core.jsonl_log import LineSpan, read_spans
from fsdpo_data.core.sampling import Completion

#: Fields of a completion with one number per step.
_STEP_VALUE_FIELDS = ("step_rewards", "imported_labels", "imported_ratings")
#: Fields that every record has; its cost would be unknown without them.
_COST_FIELDS = ("n_tokens", "seconds")
#: Fields of a completion that are recorded only if they have a value.
_OPTIONAL_FIELDS = (
    "reasoning",
    "step_chars",
    *_STEP_VALUE_FIELDS,
    "imported_correct",
    "search_cost",
)


@dataclass(frozen=True, slots=True)
class CompletionRecord:
    """The completions of one prompt, which are one line of a file."""

    problem_id: str  #: Id of the problem, or of the prompt if the prompt continues a solution.
    prompt: str  #: The prompt.
    completions: Sequence[Completion]  #: The completions, in the order of their samples.


def dump_record(record: CompletionRecord) -> dict[str, Any]:
    """Return a record as JSON values."""
    return {
        "problem_id": record.problem_id,
        "prompt": record.prompt,
        "completions": [dump_completion(completion) for completion in record.completions],
    }


def dump_completion(completion: Completion) -> dict[str, Any]:
    """Return a completion as JSON values."""
    values: dict[str, Any] = {
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "n_tokens": completion.n_tokens,
        "seconds": round(completion.seconds, 6),
    }
    for name in _OPTIONAL_FIELDS:
        value = getattr(completion, name)
        if value not in ("", None):
            values[name] = asdict(value) if name == "search_cost" else value
    return values


def has_separate_thinking(path: Path) -> bool:
    """Return whether a completion of a file has its thinking in a field of its own."""
    with path.open("rb") as file:
        # In a text, the quotes have backslashes.
        return any(b'"reasoning":' in line for line in file)


def read_records(path: Path, line_spans: Iterable[LineSpan]) -> Iterator[CompletionRecord]:
    """Yield the records of a file at ``line_spans``, in that order.

    Raises:
        StoreError: if a sampler, such as a plug-in, returned a completion that is invalid.
    """
    for values in read_spans(path, line_spans):
        try:
            yield load_record(values)
        except ValidationError as error:
            [reason, *_] = error.errors()
            field = ".".join(map(str, reason["loc"]))
            raise StoreError(
                f"{path}: a completion of {values['problem_id']} is invalid, {field}: "
                f"{reason['msg']}. Correct the sampler, and sample again into a new `out`."
            ) from None


def load_record(values: Mapping[str, Any]) -> CompletionRecord:
    """Return the record of JSON values.

    Raises:
        ValueError: if a completion lacks a field, or has a field of another type.
        KeyError, TypeError: if another field is missing, or is not a text.
    """
    for name in ("problem_id", "prompt"):
        if not isinstance(values[name], str):
            raise TypeError(f"the {name} is not a text")
    completions = load_completions(values["completions"])
    return CompletionRecord(values["problem_id"], values["prompt"], completions)


def load_completions(values: Any) -> list[Completion]:
    """Return the completions of JSON values.

    Raises:
        ValueError: if a completion lacks a field, or has a field of another type.
    """
    return _COMPLETIONS.validate_python(values)


def _check_cost_fields(values: Any) -> Any:
    """Refuse a record without the fields of its cost, which have defaults in a completion."""
    missing = [name for name in _COST_FIELDS if isinstance(values, Mapping) and name not in values]
    if missing:
        raise ValueError(f"{' and '.join(missing)} missing")
    return values


def _check_token_ids(completion: Completion) -> Completion:
    """Refuse token ids, which are never recorded."""
    if completion.token_ids is not None:
        raise ValueError("token ids are not recorded")
    return completion


def _check_steps(completion: Completion) -> Completion:
    """Refuse steps that do not join to the text, and numbers that are not one per step."""
    step_chars = completion.step_chars
    if step_chars is not None and (0 in step_chars or sum(step_chars) != len(completion.text)):
        raise ValueError("the steps do not join to the text")
    n_steps = None if step_chars is None else len(step_chars)
    for name in _STEP_VALUE_FIELDS:
        values = getattr(completion, name)
        if values is not None and len(values) != n_steps:
            raise ValueError(f"{name} does not have one number per step")
    return completion


_CheckedCompletion: TypeAlias = Annotated[
    Completion,
    BeforeValidator(_check_cost_fields),
    AfterValidator(_check_token_ids),
    AfterValidator(_check_steps),
]
_COMPLETIONS = TypeAdapter(
    list[_CheckedCompletion],
    # Few commands read completions, so the check is built when it is needed.
    config=ConfigDict(defer_build=True),
)
