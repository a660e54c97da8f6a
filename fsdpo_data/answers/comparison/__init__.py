"""From two trees to a verdict."""
