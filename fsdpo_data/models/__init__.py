"""Models: names, checkpoints and prompt templates."""
