"""``python -m fsdpo_train`` is the command line."""

from fsdpo_train.cli.app import main

main()
