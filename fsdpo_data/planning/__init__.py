"""Estimates of the computation, time and memory of a command before it runs."""
