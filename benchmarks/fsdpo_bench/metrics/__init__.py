"""Choices among the samples of a problem, and the estimators of their accuracy."""
