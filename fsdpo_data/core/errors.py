"""The errors a user can cause, each with a way out in its message."""

import copy
import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Self


class FsdpoError(Exception):
    """A mistake or a missing thing outside the program; printed without a traceback.

    Every message names the value, what was expected and the next move. A field that the next move
    is to set stands in backquotes, with its value if there is one, as in `` `resume=True` ``: the
    command line writes its flag instead.

    Args:
        message: What was expected, and the next move; the value too, if there is no ``field``.
        field: The field or parameter that holds what cannot be used, e.g. ``SamplingSpec.n``.
        value: What it holds.
    """

    def __init__(self, message: str, *, field: str = "", value: object = None) -> None:
        super().__init__(f"{field} = {value!r}: {message}" if field else message)
        self.message, self.field, self.value = message, field, value

    def for_field(self, field: str) -> Self:
        """Return the same error of another field: who resolves a model knows not what for."""
        other = copy.copy(self)
        other.field = field
        other.args = (f"{field} = {self.value!r}: {self.message}",) if self.field else self.args
        return other


class InputError(FsdpoError, ValueError):
    """An option or an input file holds something that cannot be used."""


class RunMismatchError(FsdpoError):
    """A run directory was started under another config."""


class StoreError(FsdpoError, OSError):
    """A run directory cannot be read or written."""


class SchemaError(FsdpoError, ValueError):
    """A dataset breaks an invariant of the schema, or is of an unknown version."""


class UnavailableError(FsdpoError):
    """Something needed is not here: a package, a GPU, the Hub, a file."""


def suggest_names(
    name: str,
    known_names: Iterable[str],
    lead_in: str = "Nearest",
    *,
    limit: int = 3,
    cutoff: float = 0.4,
) -> str:
    """Return a sentence with the known names that are most like one; empty if none is.

    ``said`` begins it; ``cutoff``, from 0 to 1, is how alike they have to be.
    """
    near = difflib.get_close_matches(name, list(known_names), n=limit, cutoff=cutoff)
    return f" {lead_in}: {', '.join(near)}." if near else ""


def unknown_name_error(field: str, value: object, known_names: Iterable[object]) -> InputError:
    """Return the error of a field that holds none of the known names, with the nearest of them."""
    names = list(map(str, known_names))
    told = f"expected one of {', '.join(names)}.{suggest_names(str(value), names)}"
    return InputError(told, field=field, value=value)


def install_command(extra: str) -> str:
    """Return the command that installs an extra where this release came from: here, or an index."""
    checkout = Path(__file__).resolve().parents[2]
    here = (checkout / "pyproject.toml").is_file()
    return f"pip install -e '{checkout}[{extra}]'" if here else f"pip install 'fsdpo[{extra}]'"
