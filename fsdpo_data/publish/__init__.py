"""Datasets to the Hub and back."""
