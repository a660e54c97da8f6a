"""Preference training on prompt groups."""
