"""Responses that were made elsewhere."""
