"""Records which options a call reads.

A read is an access to the attribute of an option class, or to all of them in a loop. These accesses
do not count, because they do not change the work of a command:

- checks, which can only refuse a call: ``model_post_init``, and functions named ``check…``;
- the machinery of options, such as ``replace`` and the words of a command line;
- functions that copy options into another class. The reads of the copy count instead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from fsdpo_data.core import command_line
from fsdpo_data.core import options as options_module
from fsdpo_data.core.command_line import CommandParameter
from fsdpo_data.core.options import Options

_MACHINERY = (options_module.__file__, command_line.__file__)
#: The functions that copy options, with the class of their copies.
_COPIES = {
    "scorer_options": "ScorerOptions",
    "_pair_spec": "PairSpec",
    "_grade_dataset": "GradeOptions",
}


class OptionReads:
    """The fields of options that a call has read, by class."""

    def __init__(self) -> None:
        self.fields: set[tuple[type[Options], str]] = set()

    @contextmanager
    def record(self) -> Iterator[None]:
        """Record the reads inside a ``with`` block."""
        read_attribute = Options.__getattribute__
        read_all = Options.__iter__

        def record_attribute(options: Options, name: str) -> Any:
            if name in type(options).__pydantic_fields__:
                self._add(type(options), [name], sys._getframe(1))
            return read_attribute(options, name)

        def record_all(options: Options) -> Any:
            self._add(type(options), [*type(options).model_fields], sys._getframe(1))
            return read_all(options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Options, "__getattribute__", record_attribute)
            patch.setattr(Options, "__iter__", record_all)
            yield

    def _add(self, options_class: type[Options], names: list[str], frame: FrameType) -> None:
        fields = {(options_class, name) for name in names}
        if not fields <= self.fields and _has_effect(frame):
            self.fields |= fields

    def has_read(self, options_class: type[Options], parameter: CommandParameter) -> bool:
        """Return whether the field of a parameter was read, or the same field of a copy."""
        for group in parameter.path[:-1]:
            options_class = options_class.model_fields[group].annotation  # type: ignore[assignment]
        return any(
            name == parameter.path[-1]
            and (reader is options_class or reader.__name__ in _COPIES.values())
            for reader, name in self.fields
        )


def _has_effect(reader: FrameType) -> bool:
    """Return whether a read in a frame can change the work of a command."""
    frame: FrameType | None = reader
    while frame is not None and frame.f_code.co_name.startswith("<"):  # a comprehension
        frame = frame.f_back
    if frame is None or frame.f_code.co_name in _COPIES:
        return False
    while frame is not None:
        name = frame.f_code.co_name.lstrip("_")
        is_check = name == "model_post_init" or name.startswith("check")
        if is_check or frame.f_code.co_filename in _MACHINERY:
            return False
        frame = frame.f_back
    return True
