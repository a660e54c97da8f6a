"""Code that all stages share: trainer, batching, models, checkpoints and run directories."""
