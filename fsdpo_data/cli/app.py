"""The ``fsdpo-data`` command line. Heavy libraries load inside the commands that need them."""

from fsdpo_data.cli import commands
from fsdpo_data.cli.commands import app
from fsdpo_data.cli.console import run_app
from fsdpo_data.core.plugins import import_submodules

import_submodules(commands.__name__)


def main() -> None:
    """Run ``fsdpo-data``."""
    run_app(app)
