"""Grading of many responses in worker processes."""
