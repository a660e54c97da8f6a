"""Decoders: from a sampler and a scorer to one solution per problem, and what it cost."""
