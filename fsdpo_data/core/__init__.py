"""Shared foundations: errors, ids, entities, files, logs, row readers and statistics."""
