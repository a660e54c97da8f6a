"""A benchmark: a TOML file, with its problems next to it."""

from pathlib import Path

SUMS = Path(__file__).with_name("sums.toml")
