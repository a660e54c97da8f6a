"""Tables of rows in TOML files, each stored next to the Python module that uses it."""

from collections import UserDict
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from fsdpo_data.core.input_files import read_toml_file

Row = TypeVar("Row")


def read_module_table(module: str | Path) -> dict[str, Any]:
    """Read the TOML file of a module: its path with the suffix ``.toml``."""
    return read_toml_file(Path(module).with_suffix(".toml"))


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
            name: self._make_row(name, **fields)
            for name, fields in read_module_table(self._module).items()
        }
