"""What a process reward model is worth."""
