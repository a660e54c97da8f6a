"""Option models: one declaration gives a field, its checks, its flag and its help.

    top: Annotated[int, Field(ge=1), Option(panel="Pairs")] = 4
    "Best and worst solutions per problem that form pairs."

The string below a field is its help. A type that several classes share has the help in ``Field``.
The docstring of a class is the help of its command, and ends with ``Examples:``. Values are strict
in Python; the command line converts texts.

Options are composed. A field whose type is an option class is a group. On the command line, its
members are options like all others (:mod:`fsdpo_data.core.command_line`).
"""

import inspect
import typing
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from fsdpo_data.core.errors import FsdpoError, InputError, suggest_names, unknown_name_error
from fsdpo_data.core.other_names import find_own_name
from fsdpo_data.core.urls import check_url, hide_credentials, is_url

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)  # it has no public name


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The use of a field outside Python: on the command line, in digests and as a dataset."""

    panel: str = ""  #: Heading of the group in ``--help``; empty for the main group.
    positional: bool = False  #: Whether the command line takes the value without a flag.
    flags: Sequence[str] = ()  #: The flags, if they differ from the name of the field.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Command-line settings of a group, for its members by field name."""

    flags: Mapping[str, str] = field(default_factory=dict)  #: Other names of members.
    help: Mapping[str, str] = field(default_factory=dict)  #: Other help texts of members.
    panels: Mapping[str, str] = field(default_factory=dict)  #: Other panels of members.
    panel: str = ""  #: Panel of members that have none.
    default_text: str = ""  #: Text in ``--help`` for the default None of members.
    without: Collection[str] = ()  #: Members that the command line does not have.


class _Condition(ABC):
    """Metadata of a field that a call reads only under a condition on other fields.

    Args:
        fields: Other fields of the class.
    """

    def __init__(self, *fields: str) -> None:
        self.fields = fields

    @abstractmethod
    def find_conflict(self, given_values: Mapping[str, Any]) -> str:
        """Return why a call does not read the field, and the next step; empty if it reads it.

        Args:
            given_values: The values of the class that are not the defaults, by field.
        """


class OnlyWith(_Condition):
    """Metadata of a field that a call reads only if one of some other fields is given."""

    def find_conflict(self, given_values: Mapping[str, Any]) -> str:
        """Return an error message if none of the other fields is given."""
        if any(field in given_values for field in self.fields):
            return ""
        readers = " or ".join(f"`{field}`" for field in self.fields)
        return f"only {readers} reads this option. Give {readers}, or leave this option out."


class NotWith(_Condition):
    """Metadata of a field that a call does not read if one of some other fields is given."""

    def find_conflict(self, given_values: Mapping[str, Any]) -> str:
        """Return an error message if one of the other fields is given."""
        conflicts = [
            f"`{field}=False`" if given_values[field] is False else f"`{field}`"
            for field in self.fields
            if field in given_values
        ]
        if not conflicts:
            return ""
        return f"with {' and '.join(conflicts)}, nothing reads this option. Leave one of them out."


#: Validation context of options in a file, which may name things of absent plug-ins.
FROM_FILE = "from file"


def split_docstring(options_class: type) -> tuple[str, str]:
    """Return the summary of an option class, and its section ``Examples:``."""
    docstring = inspect.cleandoc(options_class.__doc__ or "")
    text, _, _ = docstring.partition("\nAttributes:\n")
    summary, _, examples = text.partition("\nExamples:\n")
    summary, _, _ = summary.partition("\nRaises:\n")
    return summary.strip(), inspect.cleandoc(f"\n{examples}").strip()


class OptionsType(ModelMetaclass):
    """Type of option classes, whose errors are of type :class:`InputError`."""

    model_fields: dict[str, FieldInfo]

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of the class, without the metadata of the fields."""
        annotations = typing.get_type_hints(cls)  # without the metadata of ``Annotated``
        return inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if info.is_required() else info.default,
                    annotation=annotations[name],
                )
                for name, info in cls.model_fields.items()
            ]
        )

    @__signature__.setter
    def __signature__(cls, signature: inspect.Signature) -> None:
        """Ignore the signature of pydantic, which shows the metadata."""

    def __call__(cls, *arguments: Any, **values: Any) -> Any:
        """Create the options.

        Raises:
            InputError: if a field is unknown or missing, or a value is not valid.
        """
        try:
            return super().__call__(*arguments, **values)
        except ValidationError as error:
            raise input_error(error, cast(type[Options], cls)) from None


class Options(BaseModel, metaclass=OptionsType):
    """Base class of options, which are frozen and checked once.

    ``model_fields_set`` has the names of the fields that were stated. A class checks its fields
    together in ``model_post_init``. ``OnlyWith`` and ``NotWith`` in the metadata of a field state
    the fields without or with which a call does not read it.

    Raises:
        InputError: with class, field and value, e.g. ``SamplingSpec.n = 0``.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
        defer_build=True,
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **settings: Any) -> None:
        """Add the help of the fields to the docstring, for ``help(SamplingSpec)``."""
        lines = [inspect.cleandoc(cls.__doc__ or ""), "\nAttributes:"]
        for name, info in cls.model_fields.items():
            text = (info.description or "").strip().replace("\n", "\n        ")
            lines.append(f"    {name}: {text}")
        cls.__doc__ = "\n".join(lines)

    @model_validator(mode="before")
    @classmethod
    def _ignore_newer_fields(cls, values: Any, info: ValidationInfo) -> Any:
        """Ignore the fields of a file that this release does not know."""
        if info.context != FROM_FILE or not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if name in cls.model_fields}

    @field_validator("*", mode="before")
    @classmethod
    def _convert_field(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[str(info.field_name)]
        # Members of a group that are not given keep the default of the group.
        if isinstance(value, dict) and isinstance(field.default, Options):
            return field.default._stated_values | value
        return _convert_value(value, field.annotation, field_option(field))

    @field_validator("*")
    @classmethod
    def _check_value(cls, value: Any, info: ValidationInfo) -> Any:
        option = field_option(cls.model_fields[str(info.field_name)])
        if info.context == FROM_FILE:
            return value
        for item in value if isinstance(value, tuple) else (value,):
            if option.choices is not None and item is not None and item not in option.choices:
                raise unknown_name_error("", item, option.choices)
        return value

    @model_validator(mode="after")
    def _check_conditions(self) -> Self:
        """Refuse a field that is given and that the call does not read."""
        differences = {
            name: difference
            for name, info in type(self).model_fields.items()
            if (difference := _find_difference(getattr(self, name), info.default, name))
        }
        values = {name: value for name, (_, value) in differences.items()}
        for name, (path, value) in differences.items():
            conditions = type(self).model_fields[name].metadata
            for condition in (item for item in conditions if isinstance(item, _Condition)):
                if conflict := condition.find_conflict(values):
                    raise InputError(conflict, field=f"{type(self).__name__}.{path}", value=value)
        return self

    def __repr_args__(self) -> list[tuple[str, Any]]:
        """Return the values that differ from their defaults."""
        fields = type(self).model_fields
        return [(name, value) for name, value in self if value != fields[name].default]

    @property
    def _stated_values(self) -> dict[str, Any]:
        """The values that were stated, even if they are the defaults."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    def replace(self, **changes: Any) -> Self:
        """Return the options with other values, which are checked."""
        return type(self)(**self._stated_values | changes)

    def field_error(self, field: str, message: str) -> InputError:
        """Return the error for a field that contradicts other fields."""
        return InputError(
            message, field=f"{type(self).__name__}.{field}", value=getattr(self, field)
        )


def _find_difference(value: Any, default: Any, path: str) -> tuple[str, Any] | None:
    """Return path and value of the first field that has not its default; None without one."""
    if not isinstance(value, Options):
        return None if value == default else (path, value)
    differences = (
        _find_difference(getattr(value, name), getattr(default, name), f"{path}.{name}")
        for name in type(value).model_fields
    )
    return next(filter(None, differences), None)


def field_option(info: FieldInfo) -> Option:
    """Return the :class:`Option` of a field, or the default one."""
    return next((item for item in info.metadata if isinstance(item, Option)), Option())


def field_group(info: FieldInfo) -> Group | None:
    """Return the settings of a group; None for a field that is not a group."""
    if not is_options_class(info.annotation):
        return None
    return next((item for item in info.metadata if isinstance(item, Group)), Group())


def is_options_class(value: Any) -> bool:
    """Return whether a type is an option class."""
    return isinstance(value, type) and issubclass(value, Options)


def field_choices(info: FieldInfo) -> Collection[Any]:
    """Return the valid values of a field; empty if the type alone decides."""
    choices = field_option(info).choices
    if choices is not None:
        return choices
    # The other parts are types.
    return [part for part in type_parts(info.annotation) if isinstance(part, str)]


def item_type(field_type: Any) -> Any:
    """Return the type of the items of a sequence type; None for other types."""
    if typing.get_origin(field_type) in (list, tuple, Sequence):
        return typing.get_args(field_type)[0]
    return None


def type_parts(field_type: Any) -> Iterator[Any]:
    """Yield the types in a union or a sequence type, and the values of a ``Literal``."""
    parts = typing.get_args(field_type)
    yield from chain.from_iterable(map(type_parts, parts)) if parts else [field_type]


def _convert_value(value: Any, field_type: Any, option: Option) -> Any:
    """Return a value as its field has it: tuples, paths, and numbers of Python.

    One text or path stands for a sequence of one item. URLs stay texts, because a path would lose
    one of their slashes; only datasets may be URLs.
    """
    item = item_type(field_type)
    if item is not None:
        items = (value,) if isinstance(value, str | Path) else value
        is_sequence = isinstance(items, tuple | list)
        return tuple(_convert_value(part, item, option) for part in items) if is_sequence else value
    if isinstance(value, str | Path):
        _check_encoding(str(value))
    types = (field_type, *typing.get_args(field_type))
    if isinstance(value, Path) and str in types and Path not in types:
        return str(value)
    if isinstance(value, str) and Path in types:
        return _convert_path(value, option)
    if type(value).__module__ == "numpy":
        return value.item()
    return value


def _convert_path(text: str, option: Option) -> str | Path:
    """Return a path, or the URL of a dataset.

    Raises:
        InputError: if the URL contains credentials, or the option is not a dataset.
    """
    if not is_url(text):
        return Path(text)
    if not option.dataset:
        message = "expected a local path; this option takes no URL."
        raise InputError(message, value=hide_credentials(text))
    check_url(text, "")
    return text


def _check_encoding(text: str) -> None:
    """Raise an InputError for undecodable bytes of a path, which are lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            "expected valid UTF-8, because parquet files need such paths. Rename the file or "
            "folder, or set PYTHONUTF8=1 if the locale is not UTF-8.",
            value=text,
        ) from None


#: The expected value, by the first word of the type of pydantic's error, or by a class.
_EXPECTED_VALUES = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "True or False",
    "string": "a text",
    "Path": "a path",
    "Sequence": "a list",
    "sequence": "a list",
    "tuple": "a list",
}
_BOUNDS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}


def input_error(error: ValidationError, model: type[Options], callee: str = "") -> Exception:
    """Return the first problem of options as an error with field, value and expectation.

    Args:
        error: The error of pydantic.
        model: The class of the options.
        callee: Name of the called function; empty for the class.
    """
    details = error.errors(include_url=False)
    detail = details[0]
    path, info = _find_field(model, detail["loc"])
    field_name = ".".join((model.__name__, *path))
    callee = callee or model.__name__
    if detail["type"] == "extra_forbidden":
        name = str(detail["loc"][-1])
        return InputError(
            f"{callee} has no parameter with this name.{_suggest_field(name, model)} "
            f"`help({callee})` lists all parameters.",
            field=f"{field_name}.{name}",
            value=detail["input"],
        )
    if detail["type"] == "missing":
        text = (info.description or "").rstrip(".") if info else ""
        description = f" ({text[0].lower()}{text[1:]})" if text else ""
        return InputError(f"{callee} needs the argument `{path[-1]}`{description}. Add it.")
    if detail["type"] == "literal_error" and info:
        return unknown_name_error(field_name, detail["input"], field_choices(info))
    if "error" in detail.get("ctx", {}):
        return _locate_error(detail["ctx"]["error"], field_name, info, detail["input"])
    expected = dict.fromkeys(
        _describe_expected(other, info)
        for other in details
        if _find_field(model, other["loc"])[0] == path
    )
    return InputError(f"expected {' or '.join(expected)}.", field=field_name, value=detail["input"])


def _suggest_field(name: str, model: type[Options]) -> str:
    """Return a sentence with the field of the same meaning, or with similar names."""
    own_name = find_own_name(name)
    if own_name.partition("=")[0] in model.model_fields:
        return f" Here it is `{own_name}`."
    return suggest_names(name, model.model_fields)


def _find_field(model: Any, location: Iterable[Any]) -> tuple[list[str], FieldInfo | None]:
    """Return the names of the fields that lead to a problem, and the last field."""
    path = []
    info = None
    for name in location:
        if not is_options_class(model) or name not in model.model_fields:
            break
        info = model.model_fields[name]
        model = info.annotation
        path.append(name)
    return path, info


def _locate_error(error: Exception, field: str, info: FieldInfo | None, value: Any) -> Exception:
    """Return the error of a check with the field that was checked."""
    if info is None:  # a check of several fields of the class itself
        return error
    if not isinstance(error, FsdpoError):
        return InputError(f"{error}.", field=field, value=value)
    if not is_options_class(info.annotation):
        return type(error)(error.message, field=field, value=error.value)
    if not error.field:  # a check of several fields of the group
        return error
    name = error.field.rpartition(".")[2]
    return error.for_field(f"{field}.{name}")


def _describe_expected(detail: Any, info: FieldInfo | None) -> str:
    """Return the values that a field accepts, such as ``at least 1``."""
    if info and not _BOUNDS.keys().isdisjoint(detail.get("ctx", {})):
        parts = [info, *type_parts(info.annotation)]  # the items of a sequence have bounds, too
        checks = [check for part in parts for check in getattr(part, "metadata", ())]
        return " and ".join(
            f"{words} {getattr(check, name)}"
            for check in checks
            for name, words in _BOUNDS.items()
            if hasattr(check, name)
        )
    kind = detail["type"].partition("_")[0]
    if kind == "model":
        return f"{detail['ctx']['class_name']}(…)"
    if kind == "is":  # is_instance_of
        kind = detail["ctx"]["class"]
    return _EXPECTED_VALUES.get(kind, str(detail["msg"]))
