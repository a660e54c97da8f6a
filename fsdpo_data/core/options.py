"""Options declared once: frozen dataclasses whose docstrings are the help, and whose fields check.

A class of options is a plain frozen dataclass for who calls the library. What its annotations do
not say (bounds, the panel of ``--help``) stands in an :class:`Option` beside the type, as in
``top: Annotated[int, Option(min=1, panel="Pairs")] = 4``.
"""

import inspect
import math
import operator
import re
import typing
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from fsdpo_data.core.errors import InputError, unknown_name_error

_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8,}.*)*)", re.M)


@dataclass(frozen=True, slots=True)
class Option:
    """What the type of a field does not say."""

    panel: str = ""  #: Heading under which ``--help`` shows it; the everyday ones have none.
    min: float | None = None
    max: float | None = None
    exclusive_min: float | None = None  #: A bound that the value must exceed.
    exclusive_max: float | None = None  #: A bound that the value must stay under.
    allow_infinity: bool = False  #: Whether infinity has a meaning. NaN never has.
    positional: bool = False  #: Whether the command line takes it without a flag.
    flag: str = ""  #: Its flag, where that is not its name.
    spec_field: str = ""  #: The field of a spec that it becomes, for errors of the spec.
    default_text: str = (
        ""  #: What ``--help`` says of a default that is worked out, e.g. ``by engine``.
    )
    metavar: str = ""  #: What ``--help`` shows for the value, where its type says too little.
    choices: Collection[str] = ()  #: The words it may be, where a table has them (no ``Literal``).

    def describe_violation(self, value: float) -> str:
        """Return what is expected in place of a number; empty if it is within the bounds."""
        bounds = (
            ("at least", operator.ge, self.min),
            ("at most", operator.le, self.max),
            ("more than", operator.gt, self.exclusive_min),
            ("less than", operator.lt, self.exclusive_max),
        )
        known = [(word, within, bound) for word, within, bound in bounds if bound is not None]
        real = math.isfinite(value) or (self.allow_infinity and math.isinf(value))
        if real and all(within(value, bound) for _, within, bound in known):
            return ""
        words = " and ".join(f"{word} {bound}" for word, _, bound in known)
        return words if math.isfinite(value) else "a finite number"


class Options:
    """Base of classes of options: numbers within their bounds, words among their choices.

    Raises:
        InputError: naming class, field and value (``SamplingSpec.n = 0``).
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, (kind, option) in declared_fields(type(self)).items():
            value = given = getattr(self, name)
            if isinstance(given, str) and typing.get_origin(kind) in (tuple, Sequence):
                value = (given,)  # one word for a list of one
            elif isinstance(given, str) and Path in (kind, *typing.get_args(kind)):
                value = Path(given)
            object.__setattr__(self, name, value)
            for one in value if isinstance(value, tuple | list) else (value,):
                _check(f"{type(self).__name__}.{name}", kind, option, one)

    def field_error(self, field: str, message: str) -> InputError:
        """Return the error of a field that does not go with the others."""
        return InputError(
            message, field=f"{type(self).__name__}.{field}", value=getattr(self, field)
        )


def _check(field: str, kind: Any, option: Option, value: Any) -> None:
    choices = option.choices or literal_choices(kind)
    if choices and value is not None and value not in choices:
        raise unknown_name_error(field, value, choices)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and (expected := option.describe_violation(value)):
        raise InputError(f"expected {expected}.", field=field, value=value)


def literal_choices(kind: Any) -> tuple[Any, ...]:
    """Return the words of a ``Literal``, within a union or a sequence too."""
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    return tuple(each for part in typing.get_args(kind) for each in literal_choices(part))


def declared_fields(kind: type) -> dict[str, tuple[Any, Option]]:
    """Return type and :class:`Option` of each field of a dataclass."""
    hints = typing.get_type_hints(kind, include_extras=True)
    declared = {}
    for each in fields(kind):
        hint = hints[each.name]
        annotated = typing.get_origin(hint) is typing.Annotated
        plain, *more = typing.get_args(hint) if annotated else (hint,)
        declared[each.name] = (plain, next((m for m in more if isinstance(m, Option)), Option()))
    return declared


def class_summary(kind: type) -> str:
    """Return the docstring of a class of options without its attributes."""
    return inspect.cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")[0].strip()


def field_help(kind: type) -> dict[str, str]:
    """Return what docstrings say of each field, those of base classes included."""
    told: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        _, _, attributes = inspect.cleandoc(each.__doc__ or "").partition("\nAttributes:\n")
        section = re.split(r"\n(?=\w+:\n)", attributes)[0]
        told |= {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(section)}
    return told
