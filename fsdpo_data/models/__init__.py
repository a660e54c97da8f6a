"""Which weights, and how to ask them."""
