"""What step rewards buy: best-of-N and votes of recorded samples, at every N."""
