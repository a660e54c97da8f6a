"""Comparison of two parsed answers."""
