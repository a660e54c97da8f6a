"""``python -m fsdpo_bench`` is the command line."""

from fsdpo_bench.cli.app import main

main()
