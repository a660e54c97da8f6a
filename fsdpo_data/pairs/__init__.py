"""Preference pairs as pure functions of solutions: selection, statistics and checks."""
