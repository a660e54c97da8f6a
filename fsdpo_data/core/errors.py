"""The errors a user can cause, each with a way out in its message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FsdpoError(Exception):
    """A mistake or a missing thing outside the program; printed without a traceback.

    Every message names the value, what was expected and the next move.
    """


class InputError(FsdpoError, ValueError):
    """An option or an input file holds something that cannot be used."""


class RunMismatch(FsdpoError):
    """A run directory was started under another config."""


class StoreError(FsdpoError, OSError):
    """A run directory cannot be read or written."""


class SchemaError(FsdpoError, ValueError):
    """A dataset breaks an invariant of the schema, or is of an unknown version."""


class Unavailable(FsdpoError):
    """Something needed is not here: a package, a GPU, the Hub, a file."""


def nearest(
    name: str,
    known: Iterable[str],
    said: str = "Nearest",
    *,
    most: int = 3,
    cutoff: float = 0.4,
) -> str:
    """Return a sentence with the known names that are most like one; empty if none is.

    Args:
        name: What was asked for.
        known: What there is.
        said: How the sentence begins.
        most: Names at most.
        cutoff: How alike they have to be, from 0 to 1.
    """
    near = difflib.get_close_matches(name, list(known), n=most, cutoff=cutoff)
    return f" {said}: {', '.join(near)}." if near else ""
