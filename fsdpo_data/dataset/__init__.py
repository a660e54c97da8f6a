"""A dataset on disk: manifest, run directory, parquet, seal, checks."""
