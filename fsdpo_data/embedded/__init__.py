"""The embedded world: word problems made by a seeded generator, and a small model that solves them."""
