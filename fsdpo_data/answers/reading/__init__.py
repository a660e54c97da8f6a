"""From text to tree."""
