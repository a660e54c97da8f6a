"""The ``fsdpo-train`` command line."""
