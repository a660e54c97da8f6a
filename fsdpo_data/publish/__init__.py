"""Push datasets to the Hub and pull them."""
