"""Decoders: procedures that produce one solution per problem from samples and step rewards."""
