"""Functions whose keyword arguments are the fields of an option class: signature, help, errors."""

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, get_type_hints

from fsdpo_data.core.call_arguments import check_call
from fsdpo_data.core.command_line import CommandParameter, command_parameters
from fsdpo_data.core.errors import FsdpoError, InputError
from fsdpo_data.core.option_types import describe_type, matches_type
from fsdpo_data.core.options import (
    Options,
    check_arguments,
    declared_fields,
    field_help,
    plain_signature,
)

P = ParamSpec("P")
ResultT = TypeVar("ResultT")

_EXAMPLE = re.compile(r"\n+Example:\n")
_COMMAND_FLAG = re.compile(r"`--([a-z0-9-]+)( \w+)?`")


def document_function(
    function: Callable[..., Any],
    options_class: type,
    *,
    returns: Any,
    first: inspect.Parameter | None = None,
    without: Collection[str] = (),
) -> None:
    """Give a function the signature of an option class, and a list of its arguments as help.

    Args:
        function: The function. Its docstring is a summary, then ``Example:`` with lines of Python.
        options_class: The option class, whose docstring documents the arguments.
        returns: Type of the result.
        first: A parameter before the fields of the class, such as ``self``; None for none.
        without: Fields of the class that are not arguments of the function.
    """
    signature = plain_signature(options_class)
    field_parameters = [
        parameter for name, parameter in signature.parameters.items() if name not in without
    ]
    parameters = [*([first] if first else []), *field_parameters]
    summary, *example = _EXAMPLE.split(inspect.cleandoc(function.__doc__ or ""), maxsplit=1)
    help_texts = field_help(options_class)
    lines = [summary, "", "Args:"]
    for parameter in field_parameters:
        text = _COMMAND_FLAG.sub(_field_of_flag, help_texts.get(parameter.name, ""))
        entry = f"{parameter.name}: {text}"
        lines += textwrap.wrap(
            entry, 96, initial_indent="    ", subsequent_indent=" " * 8, break_on_hyphens=False
        )
    if example:
        lines += ["", "Example:", textwrap.indent(inspect.cleandoc(f"\n{example[0]}"), "    ")]
    function.__doc__ = "\n".join(lines)
    function.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation=returns
    )


def _field_of_flag(match: re.Match[str]) -> str:
    """Return the field of a flag in a help text, such as ``prm_format`` of ``--prm-format``."""
    return f"`{match[1].replace('-', '_')}`"


def make_keyword_options(
    options_class: Callable[..., Any],
    function_name: str,
    arguments: Sequence[Any],
    values: Mapping[str, Any],
) -> Any:
    """Create the options of a function from the arguments of its call.

    Raises:
        InputError: if an argument is unknown or missing, or a value is not valid. The error names
            the argument, and not the class of the options.
    """
    try:
        _check_member_names(options_class, function_name, values)
        check_arguments(options_class, function_name, arguments, values)  # type: ignore[arg-type]
        return options_class(*arguments, **values)
    except FsdpoError as error:
        raise rename_field(error, options_class) from None


def rename_field(error: FsdpoError, options_class: Any) -> FsdpoError:
    """Return an error about a field of an option class as an error about an argument."""
    class_name, _, name = error.field.rpartition(".")
    if class_name == options_class.__name__:
        return error.for_field(name)
    return error


def _check_member_names(options_class: Any, function_name: str, values: Mapping[str, Any]) -> None:
    """Refuse arguments with the names that members of groups have on the command line.

    Raises:
        InputError: with the group that has the member, for example ``sampling``.
    """
    field_names = declared_fields(options_class)
    members = command_parameters(options_class)
    for name, value in values.items():
        if name not in field_names and name in members:
            example = _group_expression(options_class, members[name], value)
            raise InputError(
                f"{function_name} takes this value in a group. Write `{example}`.",
                field=name,
                value=value,
            )


def _group_expression(options_class: Any, member: CommandParameter, value: Any) -> str:
    """Return the Python text that sets a member, such as ``sampling=SamplingSpec(n=4)``."""
    *groups, field_name = member.path
    classes = []
    for group in groups:
        options_class = declared_fields(options_class)[group].type
        classes.append(options_class.__name__)
    text = f"{field_name}={value!r}"
    for group, class_name in zip(reversed(groups), reversed(classes), strict=True):
        text = f"{group}={class_name}({text})"
    return text


def checks_arguments(function: Callable[P, ResultT]) -> Callable[P, ResultT]:
    """Return the function with a check of its arguments: their names, and their plain types."""
    # The types of annotations may be imported after the function, so the first call reads them.
    read_signature = functools.cache(functools.partial(inspect.signature, function, eval_str=True))

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> ResultT:
        signature = read_signature()
        name = function.__qualname__
        check_call(signature, name, args, kwargs)
        for argument, value in signature.bind(*args, **kwargs).arguments.items():
            expected_type = signature.parameters[argument].annotation
            is_options = isinstance(expected_type, type) and issubclass(expected_type, Options)
            if not matches_type(value, expected_type) or (
                is_options and not isinstance(value, expected_type)
            ):
                raise InputError(
                    f"{name} expected {describe_type(expected_type)}.", field=argument, value=value
                )
        return function(*args, **kwargs)

    return call


def checks_fields(advice: str) -> Callable[[type[ResultT]], type[ResultT]]:
    """Return a decorator of a dataclass, which then refuses values that are not of its types.

    Args:
        advice: The usual way to get an object of the class, for the error.
    """

    def decorate(record_class: type[ResultT]) -> type[ResultT]:
        initialize = record_class.__init__
        signature = inspect.signature(record_class)
        name = record_class.__name__
        defaults = {
            parameter.name: parameter.default
            for parameter in signature.parameters.values()
            if parameter.default is not parameter.empty
        }

        @functools.wraps(initialize)
        def check_and_initialize(self: Any, *args: Any, **kwargs: Any) -> None:
            values = {**defaults, **dict(zip(signature.parameters, args, strict=False)), **kwargs}
            for field, field_type in get_type_hints(record_class).items():
                value = values.get(field)
                if not isinstance(value, field_type):
                    raise InputError(
                        f"{name} expected {describe_type(field_type)}. {advice}",
                        field=field,
                        value=value,
                    )
            check_call(signature, name, args, kwargs)
            initialize(self, *args, **kwargs)

        record_class.__init__ = check_and_initialize  # type: ignore[method-assign]
        return record_class

    return decorate
