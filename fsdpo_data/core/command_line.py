"""The command lines of option classes: their parameters, and the command line of given options.

The members of groups become parameters of their own: ``sampling.n`` is ``--samples``.
"""

import dataclasses
import re
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fsdpo_data.core.errors import FsdpoError
from fsdpo_data.core.options import (
    Group,
    Option,
    Options,
    declared_fields,
    field_choices,
    field_help,
)
from fsdpo_data.core.plugins import plugin_arguments

OptionsT = TypeVar("OptionsT")
#: A field in a text, in backquotes, with or without a value.
_QUOTED_NAME = re.compile(r"(?<!`)`(\w+)(?=(?:=[^`]+)?`(?!`))")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandParameter:
    """A parameter of a command: a field of its options, or a member of a group."""

    name: str  #: Name on the command line, with underscores.
    path: tuple[str, ...]  #: Fields that lead to the value, such as ``("sampling", "n")``.
    type: Any  #: Type of the value.
    option: Option  #: Bounds and command-line settings.
    default: Any  #: Default value; ``dataclasses.MISSING`` if the parameter is required.
    help: str  #: Help text; empty if the class does not document the field.
    #: Field of the options with the names of the members that the user set; empty for none.
    stated_field: str = ""

    @property
    def field_name(self) -> str:
        """Name of the field in its class."""
        return self.path[-1]

    @property
    def choices(self) -> Collection[Any]:
        """The valid values, read now, because plug-ins add some; empty for no choices."""
        return field_choices(self.type, self.option)

    @property
    def flag(self) -> str:
        """The flag, such as ``--max-tokens``."""
        return self.option.flag or "--" + self.name.replace("_", "-")

    @property
    def off_flag(self) -> str:
        """The flag that turns a switch off, such as ``--no-lora``."""
        return "--no-" + self.flag[2:]

    def value_in(self, options: Any) -> Any:
        """Return the value of the parameter in options."""
        for field_name in self.path:
            options = getattr(options, field_name)
        return options


def command_parameters(options_class: type) -> dict[str, CommandParameter]:
    """Return the parameters of a command by name, the members of groups included."""
    parameters = _iterate_parameters(options_class, Group(), defaults=None, path=())
    return {parameter.name: parameter for parameter in parameters}


def _iterate_parameters(
    options_class: type, group: Group, defaults: Any, path: tuple[str, ...]
) -> Iterator[CommandParameter]:
    """Yield the parameters of an option class, which may be the type of a group.

    Args:
        options_class: The option class.
        group: Settings of the group.
        defaults: Options with the defaults of the group; None for the defaults of the class.
        path: Fields that lead to the group.
    """
    help_texts = {**field_help(options_class), **group.help}
    if group.prefix:
        member_names = field_names(options_class)
        help_texts = {
            name: _add_prefix(text, group.prefix, member_names) for name, text in help_texts.items()
        }
    declarations = declared_fields(options_class)
    for field in dataclasses.fields(options_class):
        declaration = declarations[field.name]
        default = field.default if defaults is None else getattr(defaults, field.name)
        member_path = (*path, field.name)
        if field.name in group.without or not declaration.option.has_flag:
            continue
        if declaration.group is not None:
            inner_group = declaration.group
            if group.prefix:
                prefix = group.prefix + inner_group.prefix
                inner_group = dataclasses.replace(inner_group, prefix=prefix, panel=group.panel)
            yield from _iterate_parameters(declaration.type, inner_group, default, member_path)
            continue
        yield CommandParameter(
            name=group.prefix + group.flags.get(field.name, field.name),
            path=member_path,
            type=declaration.type,
            option=_member_option(declaration.option, field.name, group, default),
            default=default,
            help=help_texts.get(field.name, ""),
            stated_field=group.stated_field,
        )


def _member_option(option: Option, name: str, group: Group, default: Any) -> Option:
    """Return the option of a field with the settings of its group."""
    default_text = option.default_text
    if default is None and not default_text:
        default_text = group.default_text
    panel = group.panel if group.prefix else option.panel or group.panel
    return dataclasses.replace(
        option,
        panel=group.panels.get(name, panel),
        default_text=default_text,
    )


def field_names(options_class: type) -> set[str]:
    """Return the names of the fields of an option class, and of the fields of its groups."""
    names = set()
    for name, declaration in declared_fields(options_class).items():
        names.add(name)
        if declaration.group is not None:
            names |= field_names(declaration.type)
    return names


def _add_prefix(text: str, prefix: str, names: Collection[str]) -> str:
    """Return a text in which the names in backquotes have a prefix, if they are fields."""

    def replace_name(match: re.Match[str]) -> str:
        """Return the backquote and the name with its prefix."""
        return f"`{prefix if match[1] in names else ''}{match[1]}"

    return _QUOTED_NAME.sub(replace_name, text)


def add_prefix_to_error(error: FsdpoError, prefix: str, options_class: type) -> FsdpoError:
    """Return an error about a member of a group with a prefix, as its users name the member."""
    names = field_names(options_class)
    name = error.field.rpartition(".")[2]
    field = prefix + name if name in names else error.field
    message = _add_prefix(error.message, prefix, names)
    return type(error)(message, field=field, value=error.value)


def make_options(options_class: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    """Create options from the values of parameters by name; others have their defaults.

    Raises:
        InputError: if a value is not valid.
    """
    parameters = command_parameters(options_class)
    members: dict[tuple[str, ...], dict[str, Any]] = {(): {}}
    for name, value in values.items():
        *group_path, field_name = parameters[name].path
        value = tuple(value) if isinstance(value, list) else value
        members.setdefault(tuple(group_path), {})[field_name] = value
        if stated_field := parameters[name].stated_field:
            stated_names = members[()].get(stated_field, ())
            members[()][stated_field] = (*stated_names, field_name)
    fields = _group_fields(options_class, members, path=())
    return options_class(**fields)


def _group_fields(
    options_class: Any, members: Mapping[tuple[str, ...], dict[str, Any]], path: tuple[str, ...]
) -> dict[str, Any]:
    """Return the values of the fields that differ from the defaults, groups included."""
    fields = dict(members.get(path, {}))
    declarations = declared_fields(options_class)
    for field in dataclasses.fields(options_class):
        declaration = declarations[field.name]
        if declaration.group is None:
            continue
        group_fields = _group_fields(declaration.type, members, (*path, field.name))
        if group_fields:
            try:
                fields[field.name] = dataclasses.replace(field.default, **group_fields)  # type: ignore[type-var]
            except FsdpoError as error:
                prefix = declaration.group.prefix
                if not prefix:
                    raise
                raise add_prefix_to_error(error, prefix, declaration.type) from None
    return fields


def given_values(options: Options) -> dict[str, Any]:
    """Return the values that differ from their defaults or that the user stated, by parameter.

    :func:`make_options` creates equal options from the values.
    """
    return {
        parameter.name: parameter.value_in(options)
        for parameter in command_parameters(type(options)).values()
        if _is_given(parameter, options)
    }


def _is_given(parameter: CommandParameter, options: Options) -> bool:
    """Return whether the value of a parameter differs from its default, or is stated."""
    if parameter.stated_field and parameter.field_name in getattr(options, parameter.stated_field):
        return True
    value = parameter.value_in(options)
    return bool((tuple(value) if isinstance(value, list) else value) != parameter.default)


def command_line(options: Options, program: str, command: str) -> list[str]:
    """Return the command line that gives the same result as options.

    The command line contains only options that determine the result and differ from their default.
    It has no output directory and nothing about the machine. Plug-ins come first, by file name or
    module name.

    Args:
        options: The options. Replace the names of models and data with pinned names first.
        program: Name of the program, such as ``fsdpo-data``.
        command: Name of the command, such as ``build``.
    """
    words = [program, command]
    for plugin in plugin_arguments():
        words += ["--plugin", Path(plugin).name if plugin.endswith(".py") else plugin]
    parameters = [
        parameter for parameter in _given_parameters(options) if parameter.option.in_digest
    ]
    for parameter in parameters:
        words += _parameter_words(parameter, parameter.value_in(options))
    return words


def local_command_line(options: Options, program: str, command: str) -> list[str]:
    """Return the command line of options on this machine, with all paths.

    Args:
        options: The options.
        program: Name of the program, such as ``fsdpo-bench``.
        command: Name of the command, such as ``inspect``.
    """
    words = [program, command]
    for plugin in plugin_arguments():
        words += ["--plugin", plugin]
    for parameter in _given_parameters(options):
        words += _parameter_words(parameter, parameter.value_in(options))
    return words


def _given_parameters(options: Options) -> list[CommandParameter]:
    """Return the parameters with given values; those without a flag come first."""
    parameters = [
        parameter
        for parameter in command_parameters(type(options)).values()
        if _is_given(parameter, options)
    ]
    return sorted(parameters, key=lambda parameter: not parameter.option.positional)


def _parameter_words(parameter: CommandParameter, value: Any) -> list[str]:
    """Return the words that set one parameter."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [parameter.flag if value else parameter.off_flag]
    is_repeated = typing.get_origin(parameter.type) in (tuple, Sequence)
    words: list[str] = []
    for item in value if is_repeated else [value]:
        text = str(item)
        if parameter.option.positional:
            words.append(text)
        elif text.startswith("-"):
            words.append(f"{parameter.flag}={text}")
        else:
            words += [parameter.flag, text]
    return words
