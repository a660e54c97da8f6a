"""Publish results on the Hub, and export responses for other evaluation libraries."""
