"""Rows of the paper's tables as command lines."""
