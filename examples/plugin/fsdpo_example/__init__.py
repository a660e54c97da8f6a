"""A plug-in with one thing of each kind: each module registers one or two things."""
