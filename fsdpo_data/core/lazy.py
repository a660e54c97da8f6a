"""Lazy imports: slow libraries under their usual names, imported at their first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "LazyModule",
    "fsspec",
    "hf",
    "hf_constants",
    "hf_errors",
    "np",
    "pa",
    "pl",
    "pq",
    "ray",
    "torch",
    "transformers",
]


class LazyModule:
    """A stand-in for a module, which imports the module at the first attribute access."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


if TYPE_CHECKING:
    import fsspec
    import huggingface_hub as hf
    import huggingface_hub.constants as hf_constants
    import huggingface_hub.errors as hf_errors
    import numpy as np
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray
    import torch
    import transformers
else:
    fsspec = LazyModule("fsspec")
    hf = LazyModule("huggingface_hub")
    hf_constants = LazyModule("huggingface_hub.constants")
    hf_errors = LazyModule("huggingface_hub.errors")
    np = LazyModule("numpy")
    pa = LazyModule("pyarrow")
    pl = LazyModule("polars")
    pq = LazyModule("pyarrow.parquet")
    ray = LazyModule("ray")
    torch = LazyModule("torch")
    transformers = LazyModule("transformers")
