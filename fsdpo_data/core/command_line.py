"""The parameters of the command line of an option class.

The members of groups become parameters of their own: ``sampling.n`` is ``--samples``.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.options import (
    Group,
    Option,
    Options,
    field_choices,
    field_group,
    field_option,
    input_error,
)

OptionsT = TypeVar("OptionsT", bound=Options)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandParameter:
    """A parameter of a command: a field of its options, or a member of a group."""

    name: str  #: Name on the command line, with underscores.
    path: tuple[str, ...]  #: Fields that lead to the value, such as ``("sampling", "n")``.
    info: FieldInfo  #: Type and checks of the field.
    option: Option  #: Command-line settings.
    default: Any  #: Default value; None if the parameter is required.
    help: str  #: Help text; empty if the class does not document the field.

    @property
    def choices(self) -> Collection[Any]:
        """The valid values, read now, because plug-ins add some; empty for no choices."""
        return field_choices(self.info)

    @property
    def flag(self) -> str:
        """The flag, such as ``--max-tokens``; the name in capitals for a value without a flag."""
        if self.option.positional:
            return self.name.upper()
        return self.option.flags[0] if self.option.flags else f"--{self.name.replace('_', '-')}"

    def value_in(self, options: Any) -> Any:
        """Return the value of the parameter in options."""
        for field_name in self.path:
            options = getattr(options, field_name)
        return options


def off_flag(flag: str) -> str:
    """Return the flag that turns a switch off, such as ``--no-lora`` for ``--lora``."""
    return f"--no-{flag[2:]}"


def command_parameters(options_class: type[Options]) -> Mapping[str, CommandParameter]:
    """Return the parameters of a command by name, the members of groups included."""
    return {parameter.name: parameter for parameter in _iterate_parameters(options_class)}


def _iterate_parameters(
    options_class: type[Options],
    group: Group | None = None,
    defaults: Options | None = None,
    path: tuple[str, ...] = (),
) -> Iterator[CommandParameter]:
    """Yield the parameters of an option class, which may be the type of a group.

    Args:
        options_class: The option class.
        group: Settings of the group; None for the options of a command.
        defaults: Options with the defaults of the group; None for the defaults of the class.
        path: Fields that lead to the group.
    """
    group = group or Group()
    for name, info in options_class.model_fields.items():
        option = field_option(info)
        default = None if info.is_required() else info.default
        if defaults is not None:
            default = getattr(defaults, name)
        if name in group.without or not option.has_flag:
            continue
        inner_group = field_group(info)
        if inner_group is not None:
            yield from _iterate_parameters(
                info.annotation,  # type: ignore[arg-type]
                inner_group,
                default,
                (*path, name),
            )
            continue
        panel = option.panel or group.panel
        default_text = option.default_text or (group.default_text if default is None else "")
        yield CommandParameter(
            name=group.flags.get(name, name),
            path=(*path, name),
            info=info,
            option=dataclasses.replace(
                option, panel=group.panels.get(name, panel), default_text=default_text
            ),
            default=default,
            help=group.help.get(name, info.description or ""),
        )


def make_options(options_class: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    """Create options from the values of parameters by name, which may be texts.

    Raises:
        InputError: if a value is not valid.
    """
    parameters = command_parameters(options_class)
    fields: dict[str, Any] = {}
    for name, value in values.items():
        *groups, field_name = parameters[name].path
        members = fields
        for group in groups:
            members = members.setdefault(group, {})
        members[field_name] = value
    return parse_fields(options_class, fields)


def parse_fields(options_class: type[OptionsT], fields: Mapping[str, Any]) -> OptionsT:
    """Create options from the values of fields, which may be texts; a group is a dictionary.

    Raises:
        InputError: if a value is not valid.
    """
    try:
        return options_class.model_validate(fields, strict=False)
    except ValidationError as error:
        raise input_error(error, options_class) from None


def given_values(options: Options, always: Collection[str] = ()) -> dict[str, Any]:
    """Return the values that differ from their defaults, and those in ``always``, by parameter."""
    return {
        name: value
        for name, parameter in command_parameters(type(options)).items()
        if (value := parameter.value_in(options)) != parameter.default or name in always
    }


def check_read_options(
    options: Options,
    kind: str,
    chosen: Collection[str],
    read_options: Mapping[str, Collection[str]],
) -> None:
    """Check that the options that no chosen thing reads have their defaults.

    Args:
        options: Options, whose parameters include those that only some things read.
        kind: Kind of the things, such as ``loss``.
        chosen: Names of the things that run.
        read_options: For each thing of the kind, the parameters that it reads and others do not.

    Raises:
        InputError: if an option that nothing reads has another value; it names the readers.
    """
    readers: dict[str, list[str]] = {}
    for name, option_names in read_options.items():
        for option_name in option_names:
            readers.setdefault(option_name, []).append(name)
    for parameter in command_parameters(type(options)).values():
        names = readers.get(parameter.name)
        if names is None or not {*names}.isdisjoint(chosen):
            continue
        value = parameter.value_in(options)
        if value != parameter.default:
            is_one = len(chosen) == 1
            raise InputError(
                f"the {kind}{'' if is_one else 's'} {', '.join(chosen)} "
                f"{'does' if is_one else 'do'} not read this option. Leave it out, or use one that "
                f"reads it: {', '.join(names)}.",
                field=".".join((type(options).__name__, *parameter.path)),
                value=value,
            )
