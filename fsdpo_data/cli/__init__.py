"""The ``fsdpo-data`` command line."""
