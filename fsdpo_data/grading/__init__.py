"""Grading calls: one response at once, or many of them in worker processes."""
