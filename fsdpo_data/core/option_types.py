"""The types of option fields: checks, words for messages, and types for plain signatures."""

import functools
import numbers
import operator
import os
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from fsdpo_data.core.urls import is_url

_TYPE_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text",
    Path: "a path",
    type(None): "None",
}


def convert_value(value: Any, field_type: Any) -> Any:
    """Convert text and paths to a tuple of one item, and to each other, as the type asks.

    The items of sequences are converted too. URLs stay texts, because a path would lose one of
    their slashes.
    """
    if isinstance(value, str | Path) and typing.get_origin(field_type) in (tuple, Sequence):
        value = (value,)
    if isinstance(value, tuple | list):
        items = [convert_value(item, item_type(field_type)) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, Path) and _accepts_type(field_type, str):
        return value if _accepts_type(field_type, Path) else str(value)
    if isinstance(value, str) and _accepts_type(field_type, Path) and not is_url(value):
        return Path(value)
    return value


def is_path_type(field_type: Any) -> bool:
    """Return whether a type accepts paths, or sequences of paths."""
    return _accepts_type(field_type, Path) or _accepts_type(item_type(field_type), Path)


def _accepts_type(field_type: Any, plain_type: type) -> bool:
    return plain_type in (field_type, *typing.get_args(field_type))


def matches_type(value: Any, field_type: Any) -> bool:
    """Return whether a value has the type of a field; types without words match everything."""
    origin = typing.get_origin(field_type)
    if origin in (typing.Union, types.UnionType):
        return any(matches_type(value, part) for part in typing.get_args(field_type))
    if origin in (tuple, list, Sequence):
        return isinstance(value, tuple | list)
    if origin is Literal or field_type not in _TYPE_WORDS:
        return True  # the choices of the field decide
    if field_type is bool:
        return isinstance(value, bool)
    if field_type is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if field_type is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    return isinstance(value, os.PathLike | str if field_type is Path else field_type)


def item_type(field_type: Any) -> Any:
    """Return the type of the items of a sequence type; Any for other types."""
    for part in (field_type, *typing.get_args(field_type)):
        if typing.get_origin(part) in (list, Sequence):
            return typing.get_args(part)[0]
        if typing.get_origin(part) is tuple and Ellipsis in typing.get_args(part):
            return typing.get_args(part)[0]
    return Any


def describe_type(field_type: Any) -> str:
    """Describe the values of a type, such as ``a whole number or None``."""
    origin = typing.get_origin(field_type)
    if origin in (typing.Union, types.UnionType):
        words = dict.fromkeys(describe_type(part) for part in typing.get_args(field_type))
        return " or ".join(words)
    if origin in (tuple, list, Sequence):
        return "a list"
    return _TYPE_WORDS.get(field_type, getattr(field_type, "__name__", str(field_type)))


def plain_type(field_type: Any) -> Any:
    """Return a type without ``Annotated``, for a signature that people read."""
    origin = typing.get_origin(field_type)
    arguments = typing.get_args(field_type)
    if origin is typing.Annotated:
        return plain_type(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, map(plain_type, arguments))
    if origin in (tuple, list, Sequence):
        return origin[tuple(map(plain_type, arguments))]
    return field_type
