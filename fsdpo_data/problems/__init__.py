"""Sources of problems, and the formats of their rows."""
