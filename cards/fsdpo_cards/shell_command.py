"""Command lines of cards."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any


def format_command(program: Sequence[str], options: Mapping[str, Any]) -> str:
    """Return a command line for the shell, with one option per line.

    Args:
        program: The program, its command and its arguments.
        options: Values by the name of the option. An option with a list is repeated for each item,
            and an option without a value is left out.
    """
    lines = [shlex.join(program)]
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        lines += [shlex.join([f"--{name}", str(item)]) for item in values if item not in (None, "")]
    return " \\\n  ".join(lines)


def sampling_options(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a sampling spec, without the number of samples."""
    names = ("temperature", "top_p", "max_tokens", "seed")
    return {name.replace("_", "-"): sampling[name] for name in names}


def template_option(template: Mapping[str, Any]) -> str:
    """Return the option of a prompt template: its name, or the name of its file."""
    name = str(template["name"])
    return f"{name}.txt" if "text" in template else name
