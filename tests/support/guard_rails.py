"""Record what a rebuilding of the benchmark must not change, and compare a later tree with it.

    python tests/support/guard_rails.py record FOLDER
    python tests/support/guard_rails.py compare FOLDER --only verdicts --only errors

`record` writes one JSON file per part: results of benchmark runs, verdicts, columns of datasets,
command lines, signatures, and messages of wrong options. Seconds and paths are left out, so two
recordings of one tree are equal on one machine. `compare` records the tree again, prints each
difference with both values, and exits with 1 if there are any. PYTHONPATH decides which tree is
recorded.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from guard_parts import SHARED_DATA, Part, Record, list_parts
from typer import Argument, Option

import fsdpo_data

TOLERANCE = 1e-6  #: Largest difference of equal numbers.
MAX_SHOWN_CHARS = 1000  #: Characters of a value that are printed.
SKIPPED = "skipped"  #: Key of the reason in the record of a part that was not recorded.
ABSENT = object()  #: Value of a key that only the other record has.

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)


class Difference(NamedTuple):
    """A value that differs between two records."""

    path: tuple[str, ...]  #: Keys that lead to the value.
    old: Any  #: The value of the first record, or ``ABSENT``.
    new: Any  #: The value of the second record, or ``ABSENT``.


def find_differences(old: Any, new: Any, path: tuple[str, ...] = ()) -> Iterator[Difference]:
    """Yield the values that differ; a key that one side lacks is one difference."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            values = old.get(key, ABSENT), new.get(key, ABSENT)
            yield from find_differences(*values, (*path, key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, values in enumerate(zip(old, new, strict=True)):
            yield from find_differences(*values, (*path, str(index)))
    elif not are_equal(old, new):
        yield Difference(path, old, new)


def are_equal(old: Any, new: Any) -> bool:
    """Whether two values are equal; of two numbers, one of which is not whole, nearly equal."""
    types = {type(old), type(new)}
    if float in types and types <= {float, int}:
        # The inner rounding removes the error of the subtraction.
        return round(abs(old - new), 12) <= TOLERANCE
    return len(types) == 1 and bool(old == new)


def print_differences(name: str, differences: Sequence[Difference], limit: int) -> None:
    """Print the number of differences of a part, and the first of them."""
    noun = "difference" if len(differences) == 1 else "differences"
    print(f"{name}: {len(differences):,} {noun}")
    for difference in differences[:limit]:
        print(f"  {' > '.join(difference.path)}")
        print(f"    before: {format_value(difference.old)}")
        print(f"    after:  {format_value(difference.new)}")
    if len(differences) > limit:
        print(f"  and {len(differences) - limit:,} more; `--show N` prints N of them")


def format_value(value: Any) -> str:
    """Return a value as short JSON."""
    if value is ABSENT:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


def record_part(name: str, part: Part) -> Record:
    """Record a part of the imported tree, in a directory of its own."""
    if part.needs_shared and not SHARED_DATA.exists():
        return {SKIPPED: "needs ../shared/data (public data next to the checkout)"}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as work, contextlib.chdir(work):
        result = part.record()
    seconds = time.monotonic() - start
    tree = Path(fsdpo_data.__file__).parents[1]
    print(f"recorded {name} of {tree} in {seconds:.0f} s", file=sys.stderr)
    # As after reading: tuples are lists, and keys are texts.
    copy: Record = json.loads(json.dumps(result))
    return copy


def read_part(folder: Path, name: str) -> Record:
    """Return the record of a part from its file."""
    file = folder / f"{name}.json"
    if not file.exists():
        raise typer.BadParameter(f"{folder} has no {file.name}. Record the part, or use --only.")
    part: Record = json.loads(file.read_text("utf-8"))
    return part


def select_parts(only: Sequence[str] | None, stride: int = 1) -> dict[str, Part]:
    """Return the parts with these names, or all parts if there are no names."""
    parts = list_parts(stride)
    if unknown_names := set(only or ()) - set(parts):
        raise typer.BadParameter(f"{sorted(unknown_names)}: expected names of {[*parts]}.")
    return {name: part for name, part in parts.items() if not only or name in only}


Only = Annotated[list[str] | None, Option(help="Name of a part; may be repeated. [default: all]")]


@app.command()
def record(
    folder: Annotated[Path, Argument(help="Folder of the recording.")],
    only: Only = None,
    stride: Annotated[
        int, Option("--every", help="Grade every n-th recorded response.", min=1)
    ] = 1,
) -> None:
    """Record the imported tree."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in select_parts(only, stride).items():
        result = record_part(name, part)
        if SKIPPED in result:
            print(f"{name}: skipped, {result[SKIPPED]}")
        text = json.dumps(result, indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", "utf-8")


@app.command()
def compare(
    folder: Annotated[Path, Argument(help="Folder of the earlier recording.")],
    new_folder: Annotated[
        Path | None, Argument(help="Folder of the later recording. [default: record this tree]")
    ] = None,
    only: Only = None,
    show: Annotated[int, Option(help="Differences to print per part.")] = 40,
) -> None:
    """Print what differs from an earlier recording; exit with 1 if anything does."""
    n_differences = 0
    for name in select_parts(only):
        old = read_part(folder, name)
        part = list_parts(old.get("every", 1))[name]
        new = record_part(name, part) if new_folder is None else read_part(new_folder, name)
        if reason := old.get(SKIPPED) or new.get(SKIPPED):
            print(f"{name}: not compared, {reason}")
            continue
        differences = list(find_differences(old, new))
        print_differences(name, differences, show)
        n_differences += len(differences)
    raise typer.Exit(1 if n_differences else 0)


if __name__ == "__main__":
    app()
