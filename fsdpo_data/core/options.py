"""Option dataclasses: one declaration gives the fields, their checks and the ``--help`` texts.

Library users see plain frozen dataclasses. An :class:`Option` in the annotation of a field adds
bounds and command-line settings: ``top: Annotated[int, Option(min=1, panel="Pairs")] = 4``.
The ``Attributes:`` section of the class docstring gives the help texts. An ``Examples:`` section
after it gives the command lines at the end of the help.

Options are composed. A field whose type is an option class is a group, such as
``sampling: SamplingSpec``. On the command line, the members of groups are options like all others
(:mod:`fsdpo_data.core.command_line`). A :class:`Group` in the annotation renames them.
"""

import inspect
import math
import operator
import re
import sys
import textwrap
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fsdpo_data.core.call_arguments import check_call
from fsdpo_data.core.errors import InputError, unknown_name_error
from fsdpo_data.core.option_types import (
    convert_value,
    describe_type,
    is_path_type,
    item_type,
    matches_type,
    plain_type,
)
from fsdpo_data.core.urls import check_url, hide_credentials, is_url

_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8,}.*)*)", re.M)


@dataclass(frozen=True, slots=True)
class Option:
    """Bounds, choices and command-line settings of one option field."""

    panel: str = ""  #: Heading of the group in ``--help``; empty for the main group.
    min: float | None = None  #: Lower bound, inclusive; None for no bound.
    max: float | None = None  #: Upper bound, inclusive; None for no bound.
    exclusive_min: float | None = None  #: Lower bound that the value must exceed.
    exclusive_max: float | None = None  #: Upper bound that the value must stay below.
    allow_infinity: bool = False  #: Whether infinity is a valid value. NaN never is.
    positional: bool = False  #: Whether the command line takes the value without a flag.
    flag: str = ""  #: Name of the flag if it differs from the field name.
    default_text: str = ""  #: Text in ``--help`` for a computed default, e.g. ``by engine``.
    #: Whether the value determines the result. Stored command lines contain only such options.
    in_digest: bool = True
    has_flag: bool = True  #: Whether the command line has the option.
    #: Whether the value is a dataset or a shard that the command reads or writes; empty for other
    #: values. Such a value may be a URL (:mod:`fsdpo_data.dataset.remote`).
    dataset: Literal["", "input", "output"] = ""
    metavar: str = ""  #: Placeholder of the value in ``--help``; empty for a name from the type.
    #: Valid words, for fields whose type is not a ``Literal``. A registry is read when it is used.
    choices: Collection[str] | None = None
    #: Names that a value combines, such as ``greedy,sc``. The help describes them.
    names_in_value: Collection[str] | None = None

    def describe_violation(self, value: float) -> str:
        """Describe the values that the bounds allow; empty if ``value`` is within the bounds."""
        comparisons = (
            ("at least", operator.ge, self.min),
            ("at most", operator.le, self.max),
            ("more than", operator.gt, self.exclusive_min),
            ("less than", operator.lt, self.exclusive_max),
        )
        bounds = [
            (words, is_within, bound)
            for words, is_within, bound in comparisons
            if bound is not None
        ]
        is_number = math.isfinite(value) or (self.allow_infinity and math.isinf(value))
        if is_number and all(is_within(value, bound) for _, is_within, bound in bounds):
            return ""
        if not math.isfinite(value):
            return "a finite number"
        return " and ".join(f"{words} {bound}" for words, _, bound in bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Command-line settings of a group, for its members by field name."""

    flags: Mapping[str, str] = field(default_factory=dict)  #: Other names of members.
    help: Mapping[str, str] = field(default_factory=dict)  #: Other help texts of members.
    panels: Mapping[str, str] = field(default_factory=dict)  #: Other panels of members.
    panel: str = ""  #: Panel of members that have none.
    default_text: str = ""  #: Text in ``--help`` for the default None of members.
    without: Collection[str] = ()  #: Members that the command line does not have.
    #: Field next to the group with the names of the members that the user set; empty for none.
    stated_field: str = ""
    #: Text before the names of all members, also of groups inside, for a second group of a class.
    #: All these members are in ``panel``.
    prefix: str = ""


class DeclaredField(NamedTuple):
    """The declaration of one option field."""

    type: Any  #: The type annotation without ``Annotated``.
    option: Option  #: The :class:`Option` of the annotation, or the default one.
    group: Group | None  #: The :class:`Group` of a group; None for other fields.

    @property
    def choices(self) -> Collection[Any]:
        """The valid values; empty if the type alone decides."""
        return field_choices(self.type, self.option)


class OptionsType(type):
    """Type of option classes: plain signatures, and errors about the arguments of a call."""

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of the class, without ``Annotated``."""
        return plain_signature(cls)

    def __call__(cls, *arguments: Any, **values: Any) -> Any:
        """Create the options.

        Raises:
            InputError: if an argument is unknown or missing, or a value is not valid.
        """
        try:
            return super().__call__(*arguments, **values)
        except TypeError:
            check_arguments(cls, cls.__name__, arguments, values, prefix=f"{cls.__name__}.")
            raise


def plain_signature(options_class: type) -> inspect.Signature:
    """Return the signature of an option class with the types of its fields, unannotated."""
    declarations = declared_fields(options_class)
    parameters = []
    for option_field in fields(options_class):
        default = option_field.default
        if option_field.default_factory is not MISSING:
            default = option_field.default_factory()
        if isinstance(default, Options):
            default = _GroupDefault(default)
        if option_field.init:
            parameters.append(
                inspect.Parameter(
                    option_field.name,
                    inspect.Parameter.KEYWORD_ONLY
                    if option_field.kw_only
                    else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=inspect.Parameter.empty if default is MISSING else default,
                    annotation=plain_type(declarations[option_field.name].type),
                )
            )
    parameters.sort(key=lambda parameter: parameter.kind)
    return inspect.Signature(parameters)


class _GroupDefault:
    """The default of a group in a signature: the call that creates it, without default values."""

    def __init__(self, options: Any) -> None:
        self._options = options

    def __repr__(self) -> str:
        """Return the call, such as ``DeclaredSampling(temperature=0.7)``."""
        values = [
            f"{option_field.name}={getattr(self._options, option_field.name)!r}"
            for option_field in fields(self._options)
            if getattr(self._options, option_field.name) != option_field.default
        ]
        return f"{type(self._options).__name__}({', '.join(values)})"


def check_arguments(
    options_class: type,
    callee: str,
    arguments: Sequence[Any],
    values: Mapping[str, Any],
    *,
    prefix: str = "",
) -> None:
    """Check that a call names every argument correctly.

    Args:
        options_class: The option class, whose fields are the parameters.
        callee: Name of the function or class that is called.
        arguments: The arguments without a name.
        values: The arguments with a name.
        prefix: Text before the name of a parameter in errors, such as ``SamplingSpec.``.

    Raises:
        InputError: if an argument is unknown, missing, or given twice.
    """
    help_texts = field_help(options_class)
    check_call(plain_signature(options_class), callee, arguments, values, help_texts, prefix)


class Options(metaclass=OptionsType):
    """Base class of option dataclasses; it checks types, bounds and choices, and converts paths.

    Raises:
        InputError: with class, field and value, e.g. ``SamplingSpec.n = 0``.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, declaration in declared_fields(type(self)).items():
            value = convert_value(getattr(self, name), declaration.type)
            object.__setattr__(self, name, value)
            field_name = f"{type(self).__name__}.{name}"
            if declaration.group is not None and not isinstance(value, declaration.type):
                raise InputError(
                    f"expected {declaration.type.__name__}(…).", field=field_name, value=value
                )
            _check_type(field_name, declaration.type, value)
            items = value if isinstance(value, tuple | list) else (value,)
            for item in items:
                if items is value:
                    _check_type(field_name, item_type(declaration.type), item)
                _check_value(field_name, declaration, item)
                if is_path_type(declaration.type) and is_url(item):
                    _check_url_value(field_name, declaration, item)

    def field_error(self, field: str, message: str) -> InputError:
        """Return the error for a field that contradicts other fields."""
        return InputError(
            message, field=f"{type(self).__name__}.{field}", value=getattr(self, field)
        )


def check_read_options(
    options: Options,
    kind: str,
    chosen: Collection[str],
    read_options: Mapping[str, Collection[str]],
) -> None:
    """Check that the options that no chosen thing reads have their defaults.

    Args:
        options: Options, whose fields include those that only some things read.
        kind: Kind of the things, such as ``loss``.
        chosen: Names of the things that run.
        read_options: For each thing of the kind, the fields that it reads and others do not.

    Raises:
        InputError: if an option that nothing reads has another value; it names the readers.
    """
    readers: dict[str, list[str]] = {}
    for name, option_names in read_options.items():
        for option_name in option_names:
            readers.setdefault(option_name, []).append(name)
    for option_field in fields(options):  # type: ignore[arg-type]
        names = readers.get(option_field.name)
        if names is None or not {*names}.isdisjoint(chosen):
            continue
        if getattr(options, option_field.name) != option_field.default:
            is_one = len(chosen) == 1
            raise options.field_error(
                option_field.name,
                f"the {kind}{'' if is_one else 's'} {', '.join(chosen)} "
                f"{'does' if is_one else 'do'} not read this option. Leave it out, or use one that "
                f"reads it: {', '.join(names)}.",
            )


def _check_type(field: str, field_type: Any, value: Any) -> None:
    """Raise an InputError for a value of another type than its field."""
    if not matches_type(value, field_type):
        raise InputError(f"expected {describe_type(field_type)}.", field=field, value=value)


def _check_value(field: str, declaration: DeclaredField, value: Any) -> None:
    """Raise an InputError for a value outside the choices or bounds of its field."""
    if isinstance(value, str | Path) and not _is_utf8(str(value)):
        encoding = sys.getfilesystemencoding()
        advice = "Rename the file or folder, or give another one."
        if encoding != "utf-8":
            advice = f"Python reads {encoding} here: set PYTHONUTF8=1."
        raise InputError(
            f"expected valid UTF-8, because parquet files need such paths. {advice}",
            field=field,
            value=value,
        )
    choices = declaration.choices
    if choices and value is not None and value not in choices:
        raise unknown_name_error(field, value, choices)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and (requirement := declaration.option.describe_violation(value)):
        raise InputError(f"expected {requirement}.", field=field, value=value)


def _check_url_value(field: str, declaration: DeclaredField, url: str) -> None:
    """Refuse a URL with credentials, and a URL in a field that takes only local paths."""
    if not declaration.option.dataset:
        raise InputError(
            "expected a local path; this option takes no URL.",
            field=field,
            value=hide_credentials(url),
        )
    check_url(url, field)


def _is_utf8(text: str) -> bool:
    """Return whether a text can be encoded; undecodable bytes of a path are lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def field_choices(field_type: Any, option: Option) -> Collection[Any]:
    """Return the valid values of a field; empty if the type alone decides."""
    return literal_choices(field_type) if option.choices is None else option.choices


def literal_choices(field_type: Any) -> tuple[Any, ...]:
    """Return the values of a ``Literal``, also inside a union or a sequence type."""
    if typing.get_origin(field_type) is Literal:
        return typing.get_args(field_type)
    return tuple(choice for part in typing.get_args(field_type) for choice in literal_choices(part))


def declared_fields(options_class: type) -> dict[str, DeclaredField]:
    """Return the type and the :class:`Option` of each field of a dataclass."""
    hints = typing.get_type_hints(options_class, include_extras=True)
    declarations = {}
    for option_field in fields(options_class):
        hint = hints[option_field.name]
        if typing.get_origin(hint) is typing.Annotated:
            field_type, *annotations = typing.get_args(hint)
        else:
            field_type = hint
            annotations = []
        option = next((item for item in annotations if isinstance(item, Option)), Option())
        group = None
        if isinstance(field_type, type) and issubclass(field_type, Options):
            group = next((item for item in annotations if isinstance(item, Group)), Group())
        declarations[option_field.name] = DeclaredField(field_type, option, group)
    return declarations


def class_summary(options_class: type) -> str:
    """Return the docstring of an option class without its sections."""
    docstring = inspect.cleandoc(options_class.__doc__ or "")
    return re.split(r"\n(?:Attributes|Examples):\n", docstring)[0].strip()


def field_help(options_class: type) -> dict[str, str]:
    """Return the help text of each field, from the docstrings of the class and its bases."""
    help_texts: dict[str, str] = {}
    for base in reversed(options_class.__mro__):
        docstring = inspect.cleandoc(base.__doc__ or "")
        _, _, attributes = docstring.partition("\nAttributes:\n")
        section = re.split(r"\n(?=\w+:\n)", attributes)[0]
        for name, text in _ATTRIBUTE.findall(section):
            help_texts[name] = " ".join(text.split())
    return help_texts


def class_examples(options_class: type) -> str:
    """Return the ``Examples:`` section of an option class as Markdown; empty without one.

    Command lines are indented below a sentence. In a section without sentences, they are not.
    """
    docstring = inspect.cleandoc(options_class.__doc__ or "")
    _, _, section = docstring.partition("\nExamples:\n")
    text = inspect.cleandoc(f"\n{section}")
    if not text:
        return ""
    if any(line.startswith("    ") for line in text.splitlines()):
        return f"{text}\n"
    return f"**Examples**\n\n{textwrap.indent(text, '    ')}\n"
