"""Models: names, checkpoints, prompt templates and thinking markers."""
