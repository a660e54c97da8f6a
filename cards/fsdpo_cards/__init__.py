"""Cards: what a dataset, a model or a result is, rendered from its manifest."""
