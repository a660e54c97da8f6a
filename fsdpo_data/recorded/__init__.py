"""Outputs that other programs recorded: their formats, grading, replay and import."""
