"""Runs: decode all problems, and store records that survive an interruption."""
