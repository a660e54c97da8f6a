"""The ``fsdpo-data`` command line. Heavy libraries load inside the commands that need them."""

from __future__ import annotations

from pathlib import Path

from fsdpo_data.cli import look, make, share
from fsdpo_data.cli.console import new_app, run_app
from fsdpo_data.core.tables import read_table

_EXAMPLES = read_table(Path(__file__).with_name("examples"))

app = new_app("fsdpo-data", "Step-annotated maths reasoning data: build it, check it, look at it.")
make.register(app, _EXAMPLES)
look.register(app, _EXAMPLES)
share.register(app, _EXAMPLES)


def main() -> None:
    """Run ``fsdpo-data``."""
    run_app(app)
