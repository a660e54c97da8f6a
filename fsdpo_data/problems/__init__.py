"""Where problems come from, and what their rows mean."""
