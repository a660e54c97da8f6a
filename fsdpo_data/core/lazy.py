"""Libraries that take long to import, by their usual names, imported where they are first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["LazyModule", "hf", "hf_constants", "hf_errors"]
__all__ += ["pa", "pl", "pq", "ray", "torch", "transformers"]


class LazyModule:
    """A module that is imported when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


if TYPE_CHECKING:
    import huggingface_hub as hf
    import huggingface_hub.constants as hf_constants
    import huggingface_hub.errors as hf_errors
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray
    import torch
    import transformers
else:
    hf = LazyModule("huggingface_hub")
    hf_constants, hf_errors = map(
        LazyModule, ("huggingface_hub.constants", "huggingface_hub.errors")
    )
    pl, pa, pq = map(LazyModule, ("polars", "pyarrow", "pyarrow.parquet"))
    ray, torch, transformers = map(LazyModule, ("ray", "torch", "transformers"))
