"""The ``fsdpo-data`` command line. Heavy libraries load inside the commands that need them."""

import sys

from fsdpo_data.cli import commands
from fsdpo_data.cli.commands import app
from fsdpo_data.cli.console import run_app
from fsdpo_data.cli.stage_commands import add_plugin_stages
from fsdpo_data.core.plugins import import_submodules

import_submodules(commands.__name__)


def main() -> None:
    """Run ``fsdpo-data``."""
    run_app(_run_arguments)


def _run_arguments() -> None:
    """Run the command of the process, which may be a stage of a plug-in."""
    add_plugin_stages(app, sys.argv[1:])
    app()
