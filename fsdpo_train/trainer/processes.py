"""The processes of a distributed run, as ``torchrun`` describes them."""

import os


def is_main_process() -> bool:
    """Return whether this process writes the output: exactly one process does under torchrun."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> str:
    """Return the number of processes of the run."""
    return os.environ.get("WORLD_SIZE", "1")
