"""Benchmarks: their rows, gold answers and grading."""
