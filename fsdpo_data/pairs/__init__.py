"""Preference pairs as pure functions of solutions: how they are chosen, what they are like."""
