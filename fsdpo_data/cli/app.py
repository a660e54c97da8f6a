"""The ``fsdpo-data`` command line. Heavy libraries load inside the commands that need them."""

from __future__ import annotations

from fsdpo_data.cli import look, make, share
from fsdpo_data.cli.console import new_app, run_app

app = new_app("fsdpo-data", "Step-annotated maths reasoning data: build it, check it, look at it.")
make.register(app)
look.register(app)
share.register(app)


def main() -> None:
    """Run ``fsdpo-data``."""
    run_app(app)
