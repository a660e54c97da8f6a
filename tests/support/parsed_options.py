"""The options of a command line, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsdpo_data.cli.options import OptionsCommand
from fsdpo_data.core.command_line import make_options
from fsdpo_data.core.options import Options


def values_on_line(command: Any, words: Sequence[str]) -> dict[str, Any]:
    """Return the values that are on a command line, by parameter, as typer splits it."""
    context = command.make_context(command.name, [*words])
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {
        name: value
        for name, value in context.params.items()
        if sources[name] is not None and sources[name].name == "COMMANDLINE"
    }


def parse_options(command: Any, words: Sequence[str]) -> Options | None:
    """Return the checked options of a command line.

    None for a command without options, and for names of plug-ins, which are not loaded.
    """
    values = values_on_line(command, words)
    if not isinstance(command, OptionsCommand):
        return None
    return make_options(command.options_class, values)
