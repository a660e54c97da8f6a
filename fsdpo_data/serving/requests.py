"""The bodies of requests: two JSON forms, each checked field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.input_files import parse_json

#: Fields of vLLM's ``/pooling`` that change nothing here, or have one supported value.
_POOLING_FIELDS = {
    "model",
    "input",
    "task",
    "encoding_format",
    "add_special_tokens",
    "use_activation",
    "user",
    "request_id",
}


@dataclass(frozen=True, slots=True)
class StepRewardsRequest:
    """The body of ``POST /step_rewards``: one solution."""

    steps: Sequence[str]  #: The steps; joined, they give the text of the solution.
    question: str | None  #: The question without a template.
    prompt: str | None  #: The prompt of the policy, with the template applied.


@dataclass(frozen=True, slots=True)
class PoolingRequest:
    """The body of ``POST /pooling`` in vLLM's form: texts whose tokens are classified."""

    texts: Sequence[str | Sequence[int]]  #: Texts, or their token ids.
    add_special_tokens: bool  #: Whether the tokenizer adds its special tokens to a text.
    use_activation: bool  #: Whether the answer has probabilities instead of logits.


def parse_step_rewards(body: bytes, model: str) -> StepRewardsRequest:
    """Return the solution of a body.

    Args:
        body: The body.
        model: Name of the model, which the body may repeat.

    Raises:
        InputError: if the body does not have the form of ``POST /step_rewards``.
    """
    fields = _parse_object(body, {"model", "question", "prompt", "steps"})
    _check_model(fields, model)
    steps = fields.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        raise InputError("`steps` must be a list of strings, the steps of one solution.")
    for name in ("question", "prompt"):
        if not isinstance(fields.get(name), str | None):
            raise InputError(f"`{name}` must be a string.")
    return StepRewardsRequest(steps, fields.get("question"), fields.get("prompt"))


def parse_pooling(body: bytes, model: str) -> PoolingRequest:
    """Return the texts of a body.

    Args:
        body: The body.
        model: Name of the model, which the body may repeat.

    Raises:
        InputError: if the body does not have vLLM's form, or asks for another task.
    """
    fields = _parse_object(body, _POOLING_FIELDS)
    _check_model(fields, model)
    for name, expected in (("task", "token_classify"), ("encoding_format", "float")):
        if fields.get(name) not in (None, expected):
            raise InputError(f'`{name}` must be "{expected}".')
    for name in ("add_special_tokens", "use_activation"):
        if not isinstance(fields.get(name), bool | None):
            raise InputError(f"`{name}` must be true or false.")
    return PoolingRequest(
        texts=_parse_texts(fields.get("input")),
        add_special_tokens=fields.get("add_special_tokens") is not False,
        use_activation=fields.get("use_activation") is not False,
    )


def _parse_texts(value: Any) -> list[str | list[int]]:
    """Return the texts of ``input``: a text or token ids, or a list of them."""
    texts = [value] if isinstance(value, str) or _is_token_ids(value) else value
    is_list = isinstance(texts, list) and bool(texts)
    if not is_list or not all(isinstance(text, str) or _is_token_ids(text) for text in texts):
        raise InputError("`input` must be a text, a list of token ids, or a list of either.")
    return list(texts)


def _is_token_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int for token in value)


def _parse_object(body: bytes, field_names: set[str]) -> Mapping[str, Any]:
    try:
        fields = parse_json(body, orjson.loads)
    except ValueError as error:
        raise InputError(f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InputError("the body must be a JSON object.")
    if unknown := sorted(fields.keys() - field_names):
        names = ", ".join(sorted(field_names))
        raise InputError(f"unknown field {unknown[0][:80]!r}. The fields are {names}.")
    return fields


def _check_model(fields: Mapping[str, Any], model: str) -> None:
    if fields.get("model") not in (None, model):
        raise InputError(f"the server has the model {model!r}. Send its name, or no `model`.")
