"""Tables of rows in TOML files, each stored next to the Python module that uses it."""

from collections import UserDict
from collections.abc import Callable, Collection, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from fsdpo_data.core.errors import FsdpoError, InputError, unknown_name_error
from fsdpo_data.core.input_files import read_toml_file

if TYPE_CHECKING:  # option models load pydantic, which a table does not need
    from fsdpo_data.core.options import Options

Row = TypeVar("Row")
FormatT = TypeVar("FormatT", bound="Options")


def read_toml(module: str | Path) -> dict[str, Any]:
    """Read the TOML file with the path of a module and the suffix ``.toml``."""
    return read_toml_file(Path(module).with_suffix(".toml"))


def fill_placeholders(template: Any, values: Mapping[str, Any]) -> Any:
    """Replace every string ``{name}`` in nested lists and dicts by the value of ``name``.

    A placeholder is a complete string, so its value may have any type.
    """
    if isinstance(template, str):
        return values[template.strip("{}")] if template.startswith("{") else template
    if isinstance(template, list):
        return [fill_placeholders(item, values) for item in template]
    if isinstance(template, dict):
        return {name: fill_placeholders(item, values) for name, item in template.items()}
    return template


def check_types(record_class: Callable[..., Any], fields: Mapping[str, Any]) -> None:
    """Check the values of a TOML table against the types of a class.

    Args:
        record_class: A dataclass, or a function, with annotations.
        fields: The values by field; unknown fields are ignored.

    Raises:
        ValueError: if a value has another type than its field, or is NaN or infinite.
    """
    from pydantic import ValidationError

    for name, field_type in get_type_hints(record_class).items():
        if name not in fields:
            continue
        try:
            _type_adapter(field_type).validate_python(fields[name])
        except ValidationError as error:
            first_error = error.errors(include_url=False)[0]
            raise ValueError(f"{name}: {first_error['msg']}") from None


@cache
def _type_adapter(field_type: Any) -> Any:
    """Return the pydantic adapter of a type, which converts nothing."""
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(field_type, config=ConfigDict(strict=True, allow_inf_nan=False))


class TomlTable(UserDict[str, Row]):
    """Rows by name, in the order of their TOML file; the first access reads the file."""

    def __init__(self, module: str, make_row: Callable[..., Row]) -> None:
        """Set up the table without reading its file.

        Args:
            module: Path of the module next to the TOML file, usually ``__file__``.
            make_row: Makes a row from its name (positional) and its fields (keywords).
        """
        self._module = module
        self._make_row = make_row

    @cached_property
    def data(self) -> dict[str, Row]:  # type: ignore[override]
        """The rows; all dictionary methods use them."""
        return {
            name: self._make_row(name, **fields) for name, fields in read_toml(self._module).items()
        }


class FormatTable(TomlTable[FormatT]):
    """Formats by name: rows that may be based on one another, and files of users."""

    def __init__(
        self,
        module: str,
        format_class: type[FormatT],
        *,
        title: str,
        field: str,
        not_inherited: Collection[str],
    ) -> None:
        """Set up the table without reading its file.

        Args:
            module: Path of the module next to the TOML file, usually ``__file__``.
            format_class: Option class with a field for each key of a row, and ``name``.
            title: Name of such a format in errors, such as "PRM format".
            field: Option that names a format, for errors.
            not_inherited: Keys that a row with ``based_on`` does not take from its base.
        """
        super().__init__(module, self.build)
        self._format_class = format_class
        self._title = title
        self._field = field
        self._not_inherited = not_inherited

    def build(self, name: str, based_on: str = "", **keys: Any) -> FormatT:
        """Build a format from a row; a row with ``based_on`` contains only its differences.

        Raises:
            InputError: if the base does not exist, or a key is unknown.
        """
        keys = {**keys, "name": name}
        while based_on:
            rows = read_toml(self._module)
            if based_on not in rows:
                raise unknown_name_error(f"{name}.based_on", based_on, rows)
            base = rows[based_on]
            inherited = {key: base[key] for key in base if key not in self._not_inherited}
            keys = inherited | keys
            based_on = keys.pop("based_on", "")
        known_keys = self._format_class.model_fields.keys()
        if unknown_keys := sorted(keys.keys() - known_keys):
            raise InputError(
                f"the {self._title} {name} has unknown keys: {', '.join(unknown_keys)}. Expected "
                f"{', '.join(sorted(known_keys))}, or `based_on` with the name of a format.",
                field=self._field,
                value=name,
            )
        return self._format_class(**keys)

    def get_row_or_file(self, name: str) -> FormatT:
        """Return a format by its name, or from a TOML file.

        Raises:
            InputError: if the format does not exist, or the file is invalid.
        """
        if name in self:
            return self[name]
        file = Path(name)
        if file.suffix != ".toml":
            raise InputError(
                f"expected one of {', '.join(self)}, or a .toml file of your own.",
                field=self._field,
                value=name,
            )
        try:
            return self.build(**{**read_toml_file(file), "name": file.name})
        except FsdpoError as error:
            if error.field in ("", self._field):
                raise error.for_field(self._field) from None
            # The field is a key of the file, so the message keeps it.
            raise InputError(str(error), field=self._field, value=name) from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(
                f"the file cannot be read: {error}.", field=self._field, value=name
            ) from error
