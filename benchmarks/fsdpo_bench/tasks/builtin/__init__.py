"""The built-in benchmarks: one TOML file each, and a Python file if the rows need hooks."""
