"""Runs: decode every problem, durably, and keep what came out."""
