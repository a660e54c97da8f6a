"""Names of options in other tools, for suggestions."""

from pathlib import Path

from fsdpo_data.core.input_files import read_toml_file


def find_own_name(name: str) -> str:
    """Return the field that another tool calls ``name``, maybe with a value; empty without one."""
    names = read_toml_file(Path(__file__).with_suffix(".toml"))
    own_name: str = names["fields"].get(name, "")
    return own_name
