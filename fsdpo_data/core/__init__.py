"""What everything stands on: errors, identity, the nouns, files, logs, rows, statistics."""
