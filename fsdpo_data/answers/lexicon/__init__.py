"""Vocabulary of answers: numbers, units, dates, function names."""
