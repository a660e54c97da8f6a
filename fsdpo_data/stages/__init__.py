"""What makes a sealed dataset: each stage is one file with its spec, its run and its command."""
