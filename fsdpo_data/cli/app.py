"""The ``fsdpo-data`` command line. Heavy libraries load inside the commands that need them."""

from pathlib import Path
from typing import get_type_hints

from fsdpo_data.cli import build_commands, exchange_commands, inspect_commands
from fsdpo_data.cli.console import new_app, run_app
from fsdpo_data.cli.launch import DATA_SCRIPTS
from fsdpo_data.cli.options import command
from fsdpo_data.core.toml_tables import read_toml
from fsdpo_data.stages.merge import ShardedOptions

_MAKE = (
    *(build_commands.demo, build_commands.build, build_commands.label, build_commands.score),
    *(
        build_commands.grade,
        build_commands.pair,
        build_commands.merge,
        build_commands.decontaminate,
    ),
)
_LOOK = (
    inspect_commands.inspect,
    inspect_commands.view,
    inspect_commands.validate,
    inspect_commands.diff,
    inspect_commands.models,
    inspect_commands.templates,
)
_SHARE = (
    inspect_commands.migrate,
    exchange_commands.push,
    exchange_commands.pull,
    exchange_commands.export,
    exchange_commands.import_,
)
_EXAMPLES = read_toml(Path(__file__).with_name("examples"))

app = new_app("fsdpo-data", "Step-annotated maths reasoning data: build it, check it, look at it.")
for panel, commands in (("Make", _MAKE), ("Look", _LOOK), ("Share", _SHARE)):
    for run in commands:
        kind, name = get_type_hints(run)["options"], run.__name__.rstrip("_")
        examples = _EXAMPLES[name] + exchange_commands.FORMAT_HELP.get(name, "")
        launch = DATA_SCRIPTS if issubclass(kind, ShardedOptions) else None
        command(app, kind, name=name, examples=examples, panel=panel, launch=launch)(run)


def main() -> None:
    """Run ``fsdpo-data``."""
    run_app(app)
