"""Benchmarks: their rows and gold answers."""
