"""Entry point of ``python -m fsdpo_train``, which is the same as ``fsdpo-train``."""

from fsdpo_train.cli.app import main

main()
