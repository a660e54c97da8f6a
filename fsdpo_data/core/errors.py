"""Errors that a user can cause; each message names the next step."""

import copy
import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Self


class FsdpoError(Exception):
    """An error outside the program, such as a wrong option; printed without a traceback.

    Every message names the value, the expectation and the next step. If the next step sets a
    field, the message puts the field in backquotes, as in `` `resume=True` ``. The command line
    replaces such a field by its flag.

    Args:
        message: The expectation and the next step. Without ``field``, also the value.
        field: The field or parameter with the unusable value, e.g. ``SamplingSpec.n``.
        value: The unusable value.
    """

    def __init__(self, message: str, *, field: str = "", value: object = None) -> None:
        super().__init__(f"{field} = {value!r}: {message}" if field else message)
        self.message = message
        self.field = field
        self.value = value

    def for_field(self, field: str) -> Self:
        """Return a copy of the error for another field.

        The code that resolves a model does not know which option named the model.
        """
        error = copy.copy(self)
        error.field = field
        if self.field:
            error.args = (f"{field} = {self.value!r}: {self.message}",)
        return error

    def with_text(self, old: str, new: str) -> Self:
        """Return a copy of the error with a part of its texts replaced, such as a path."""
        error = copy.copy(self)
        error.message = self.message.replace(old, new)
        error.args = (str(self).replace(old, new),)
        if isinstance(self.value, str | Path):
            error.value = str(self.value).replace(old, new)
        return error


class InputError(FsdpoError, ValueError):
    """An option or an input file has an unusable value."""


class ItemError(InputError):
    """An engine refuses one item, such as a prompt that is too long for it; others may succeed."""


class FailedItemsError(FsdpoError):
    """More items of a job have failed than the option ``max_failed`` allows."""


class RunMismatchError(FsdpoError):
    """A run directory belongs to a run with other options."""


class StoreError(FsdpoError, OSError):
    """A run directory cannot be read or written."""


class SchemaError(FsdpoError, ValueError):
    """A dataset breaks an invariant of the schema, or has an unknown schema version."""


class UnavailableError(FsdpoError):
    """A required resource is missing: a package, a GPU, the Hub or a file."""


def suggest_names(
    name: str,
    known_names: Iterable[str],
    lead_in: str = "Nearest",
    *,
    limit: int = 3,
) -> str:
    """Return a sentence with the known names most similar to ``name``.

    The sentence starts with a space, to follow another one. It is empty without similar names.

    Args:
        name: The name that the user gave.
        known_names: The names to choose from.
        lead_in: The words before the colon.
        limit: Maximum number of names in the sentence.
    """
    similar_names = difflib.get_close_matches(name, list(known_names), n=limit)
    return f" {lead_in}: {', '.join(similar_names)}." if similar_names else ""


def unknown_name_error(field: str, value: object, known_names: Iterable[object]) -> InputError:
    """Return the error for a field whose value is not a known name; it lists similar names.

    The message ends with the attribute ``source_of_names`` of ``known_names``, if there is one.
    """
    names = list(map(str, known_names))
    message = f"expected one of {', '.join(names)}.{suggest_names(str(value), names)}"
    if source := getattr(known_names, "source_of_names", ""):
        message += f" {source}"
    return InputError(message, field=field, value=value)


def install_command(extra: str) -> str:
    """Return the command that installs an extra, from this checkout or from the package index."""
    checkout = Path(__file__).resolve().parents[2]
    is_checkout = (checkout / "pyproject.toml").is_file()
    if is_checkout:
        return f"pip install -e '{checkout}[{extra}]'"
    return f"pip install 'fsdpo[{extra}]'"
