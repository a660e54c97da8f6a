"""Check the names of the arguments of a call, with errors that speak of the call."""

import inspect
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fsdpo_data.core.errors import InputError, suggest_names

_POSITIONAL_KINDS = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def check_call(
    signature: inspect.Signature,
    callee: str,
    arguments: Sequence[Any],
    values: Mapping[str, Any],
    help_texts: Mapping[str, str] = MappingProxyType({}),
    prefix: str = "",
) -> None:
    """Check the names of the arguments of a call; see :func:`check_arguments`."""
    parameters = signature.parameters
    positional = [name for name, item in parameters.items() if item.kind in _POSITIONAL_KINDS]
    for name, value in values.items():
        if name not in parameters:
            raise InputError(
                f"{callee} has no parameter with this name.{suggest_names(name, parameters)} "
                f"`help({callee})` lists all parameters.",
                field=f"{prefix}{name}",
                value=value,
            )
    if len(arguments) > len(positional):
        accepted = f"only {', '.join(positional)}" if positional else "no value"
        raise InputError(
            f"{callee} takes {accepted} without a name. Write the value as NAME=VALUE; "
            f"`help({callee})` lists the names.",
            field=f"argument {len(positional) + 1} of {callee}",
            value=arguments[len(positional)],
        )
    given_names = [*positional[: len(arguments)], *values]
    for name, parameter in parameters.items():
        if given_names.count(name) > 1:
            raise InputError(f"{callee} got `{name}` twice. Leave one of the values out.")
        if parameter.default is inspect.Parameter.empty and name not in given_names:
            text = help_texts.get(name, "").rstrip(".")
            description = f" ({text[0].lower()}{text[1:]})" if text else ""
            raise InputError(f"{callee} needs the argument `{name}`{description}. Add it.")
