"""A cache for what is said about short texts; long ones are not worth keeping."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
#: Longest text that is kept.
MAX_KEPT = 400


def remember(
    maxsize: int,
) -> Callable[[Callable[Concatenate[str, P], T]], Callable[Concatenate[str, P], T]]:
    """Keep the last results of a pure function of a text, so that memory stays bounded.

    Args:
        maxsize: How many results are kept.
    """

    def decorate(function: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
        kept = lru_cache(maxsize)(function)

        def call(text: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
            if len(text) > MAX_KEPT:
                return function(text, *args, **kwargs)
            return kept(text, *args, **kwargs)  # type: ignore[arg-type]

        return update_wrapper(call, function)

    return decorate
