"""Datasets on disk: schema, run directory, manifest, stages, checks, card and page."""
