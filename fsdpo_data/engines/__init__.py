"""What runs models: samplers, scorers, and where they are placed."""
