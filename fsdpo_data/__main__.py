"""``python -m fsdpo_data`` is the command line."""

from fsdpo_data.cli.app import main

main()
