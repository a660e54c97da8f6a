"""Where a response says its answer: boxes, announced answers, unannounced ones."""
