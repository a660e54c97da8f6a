"""Bounded readers of JSON and TOML that other programs wrote, and of the files that hold them.

Input may be damaged or hostile. Every value that these readers return has a bounded depth, so that
later code can walk through the value. Pipes and devices are refused, because they may never end.
"""

import json
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import InputError

MAX_NESTING = 100  #: Maximum depth of nested lists and objects.
MAX_FILE_BYTES = 2**30  #: Maximum size of a JSON or TOML file that is read completely.
_MAX_INTEGER = 2**63  #: Upper bound of the integers of TOML; the lower bound is its negative.


def check_regular_file(file: Path) -> None:
    """Refuse a file that is a pipe, a device or a folder; follow symbolic links.

    Raises:
        InputError: if the file is not a regular file.
        OSError: if the file is missing or inaccessible.
    """
    if not stat.S_ISREG(file.stat().st_mode):
        kind = "a folder" if file.is_dir() else "a pipe or a device"
        raise InputError(
            f"{file} is {kind}; expected a regular file. Save the content to a file first."
        )


def read_file(file: Path) -> bytes:
    """Return the content of a regular file of at most ``MAX_FILE_BYTES``.

    Raises:
        InputError: if the file is not a regular file, or is too large.
        OSError: if the file cannot be read.
    """
    check_regular_file(file)
    if file.stat().st_size > MAX_FILE_BYTES:
        raise InputError(
            f"{file} is too large: expected at most {MAX_FILE_BYTES:,} bytes. Split the file, or "
            "convert it to JSON lines."
        )
    return file.read_bytes()  # a read with a limit would allocate the limit


def parse_json(text: str | bytes, decode: Callable[[str | bytes], Any] = json.loads) -> Any:
    """Parse JSON whose lists and objects are nested at most ``MAX_NESTING`` levels deep.

    Args:
        text: The JSON. Bytes must be UTF-8.
        decode: The decoder; ``orjson.loads`` is faster, but loses digits of long integers.

    Raises:
        ValueError: if the text is not JSON, or is nested too deep.
    """
    try:
        value = decode(text)
    except RecursionError:
        raise ValueError(f"nested more than {MAX_NESTING} levels deep") from None
    brackets: Iterable[Any] = (b"[", b"{") if isinstance(text, bytes) else ("[", "{")
    # Few values can be nested deep enough, so most are not walked through.
    if sum(map(text.count, brackets)) > MAX_NESTING:
        for _ in _iterate_levels(value):  # raises if there are too many levels
            pass
    return value


def read_json(file: Path) -> Any:
    """Return the value in a JSON file.

    Raises:
        InputError: if the file does not contain JSON.
        OSError: if the file cannot be read.
    """
    try:
        return parse_json(read_file(file))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(
            f"{file} is not readable JSON ({error}). Restore the file, or choose another one."
        ) from None


def read_toml_file(file: Path) -> dict[str, Any]:
    """Return the table in a TOML file.

    Raises:
        InputError: if the file does not contain TOML in UTF-8.
        OSError: if the file cannot be read.
    """
    data = read_file(file)
    try:
        table = tomllib.loads(data.decode("utf-8"))
        _check_integers(table)
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 at byte {error.start + 1}"
    except RecursionError:
        reason = f"nested more than {MAX_NESTING} levels deep"
    except ValueError as error:  # also for integers with thousands of digits
        reason = str(error)
    else:
        return table
    raise InputError(f"{file} is not readable TOML ({reason}). Correct the file.")


def _iterate_levels(value: Any) -> Iterator[list[Any]]:
    """Yield the items of each level of a nested value, from the value itself downwards.

    Raises:
        ValueError: if there are more levels than ``MAX_NESTING``.
    """
    level = [value]
    for depth in range(MAX_NESTING + 1):
        yield level
        items: list[Any] = []
        for container in (item for item in level if isinstance(item, dict | list)):
            if depth == MAX_NESTING:
                raise ValueError(f"nested more than {MAX_NESTING} levels deep")
            items += container.values() if isinstance(container, dict) else container
        if not items:
            return
        level = items


def _check_integers(table: Mapping[str, Any]) -> None:
    """Raise a ValueError if a table contains an integer beyond 64 bits, which TOML excludes."""
    for level in _iterate_levels(table):
        for item in level:
            if isinstance(item, int) and not -_MAX_INTEGER <= item < _MAX_INTEGER:
                raise ValueError("an integer has more than 64 bits")
