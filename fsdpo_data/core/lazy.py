"""Libraries that take long to import, by their usual names, imported where they are first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["hf", "hf_errors", "pa", "pl", "pq"]


class _Lazy:
    """A module that is imported when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


if TYPE_CHECKING:
    import huggingface_hub as hf
    import huggingface_hub.errors as hf_errors
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    hf, hf_errors = map(_Lazy, ("huggingface_hub", "huggingface_hub.errors"))
    pl, pa, pq = map(_Lazy, ("polars", "pyarrow", "pyarrow.parquet"))
