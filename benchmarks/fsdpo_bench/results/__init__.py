"""Summaries and comparisons of runs, with confidence intervals."""
