"""Entry point of ``python -m fsdpo_bench``."""

from fsdpo_bench.cli.app import main

main()
