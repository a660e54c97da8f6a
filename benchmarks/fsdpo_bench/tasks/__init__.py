"""Benchmarks: their rows, their golds, how their answers are judged."""
