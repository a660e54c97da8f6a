"""Runs: decode all problems, grade, and store records that survive an interruption."""
