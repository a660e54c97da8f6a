"""The benchmarks that come with the harness: one TOML file each, with Python where rows need it."""
