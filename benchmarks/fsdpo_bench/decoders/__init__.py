"""Decoders: choices among the solutions of a problem, and their distribution over subsets."""
