"""Measurements of process reward models: ranking, best-of-N, first errors and wrong steps."""
