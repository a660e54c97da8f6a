"""Libraries that take long to import, by their usual names, imported where they are first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["pa", "pl", "pq"]


class _Lazy:
    """A module that is imported when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pl, pa, pq = map(_Lazy, ("polars", "pyarrow", "pyarrow.parquet"))
