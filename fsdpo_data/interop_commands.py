"""The commands of ``fsdpo-data`` that read and write other people's formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsdpo_data.formats import FORMATS

_FORMATS = "\n".join(
    f"- `{name}` — {form.reader}; loses {form.loses}" for name, form in FORMATS.items()
)


def export(
    directory: Annotated[Path, typer.Argument(help="A sealed dataset.")],
    to: Annotated[str, typer.Option("--to", help="Format; see below.")],
    out: Annotated[Path, typer.Option(help="A new folder.")],
) -> None:
    """Write a dataset in somebody else's format."""
    from fsdpo_data.export import export as write

    found = write(directory, to, out)
    typer.echo(f"wrote {found.rows:,} rows to {found.file}, for {FORMATS[to].reader}")
    typer.echo(f"lost: {FORMATS[to].loses}")
    for reason, count in sorted(found.left_out.items()):
        typer.echo(f"left out: {count:,} rows, because {reason}")


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    example = "**Example** `fsdpo-data export runs/pairs --to trl-preference --out runs/trl`"
    app.command(epilog=f"{example}\n\n**Formats**\n\n{_FORMATS}")(export)
