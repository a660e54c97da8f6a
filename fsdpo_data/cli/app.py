"""The ``fsdpo-data`` command line. Heavy libraries load inside the commands that need them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

from fsdpo_data.cli import build_commands, exchange_commands, inspect_commands
from fsdpo_data.cli.console import new_app, run_app
from fsdpo_data.cli.launch import DATA_SCRIPTS
from fsdpo_data.cli.options import command
from fsdpo_data.core.toml_tables import read_toml
from fsdpo_data.stages.merge import ShardedOptions

#: The commands by the heading under which the help lists them.
_PANELS: dict[str, tuple[Callable[[Any], None], ...]] = {
    "Create": (
        build_commands.demo,
        build_commands.build,
        build_commands.label,
        build_commands.score,
        build_commands.grade,
        build_commands.pair,
        build_commands.merge,
        build_commands.decontaminate,
    ),
    "Inspect": (
        inspect_commands.inspect,
        inspect_commands.view,
        inspect_commands.validate,
        inspect_commands.diff,
        inspect_commands.models,
        inspect_commands.templates,
    ),
    "Exchange": (
        exchange_commands.push,
        exchange_commands.pull,
        exchange_commands.export,
        exchange_commands.import_,
    ),
}
_EXAMPLES = read_toml(Path(__file__).with_name("examples"))

app = new_app("fsdpo-data", "Create, check and inspect step-annotated math reasoning data.")


def _register_command(run: Callable[[Any], None], panel: str) -> None:
    """Add the command of a function to ``app``; the options are the function's parameter."""
    options_class = get_type_hints(run)["options"]
    name = run.__name__.rstrip("_")
    command(
        app,
        options_class,
        name=name,
        examples=_EXAMPLES.get(name, "") + exchange_commands.FORMAT_HELP.get(name, ""),
        panel=panel,
        launch=DATA_SCRIPTS if issubclass(options_class, ShardedOptions) else None,
    )(run)


for _panel, _commands in _PANELS.items():
    for _command in _commands:
        _register_command(_command, _panel)


def main() -> None:
    """Run ``fsdpo-data``."""
    run_app(app)
