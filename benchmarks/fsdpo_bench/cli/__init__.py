"""The ``fsdpo-bench`` command line."""
