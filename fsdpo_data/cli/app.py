"""The ``fsdpo-data`` command line. Heavy libraries load inside the commands that need them."""

from pathlib import Path
from typing import get_type_hints

from fsdpo_data.cli import look, make, share
from fsdpo_data.cli.console import new_app, run_app
from fsdpo_data.cli.launch import DATA
from fsdpo_data.cli.options import command
from fsdpo_data.core.tables import read_table
from fsdpo_data.stages.merge import ShardedOptions

_MAKE = (
    *(make.demo, make.build, make.label, make.score),
    *(make.grade, make.pair, make.merge, make.decontaminate),
)
_LOOK = (look.inspect, look.view, look.validate, look.diff, look.models, look.templates)
_SHARE = (look.migrate, share.push, share.pull, share.export, share.import_)
_EXAMPLES = read_table(Path(__file__).with_name("examples"))

app = new_app("fsdpo-data", "Step-annotated maths reasoning data: build it, check it, look at it.")
for panel, commands in (("Make", _MAKE), ("Look", _LOOK), ("Share", _SHARE)):
    for run in commands:
        kind, name = get_type_hints(run)["options"], run.__name__.rstrip("_")
        examples = _EXAMPLES[name] + share.FORMATS_OF.get(name, "")
        launch = DATA if issubclass(kind, ShardedOptions) else None
        command(app, kind, name=name, examples=examples, panel=panel, launch=launch)(run)


def main() -> None:
    """Run ``fsdpo-data``."""
    run_app(app)
