"""The commands of ``fsdpo-data`` that read and write other people's formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsdpo_data.exchange.formats import FORMATS
from fsdpo_data.exchange.stepwise import READERS

_FORMATS = "\n".join(
    f"- `{name}` — {form.reader}; loses {form.loses}" for name, form in FORMATS.items()
)

_READERS = "\n".join(f"- `{name}` — loses {reader.loses}" for name, reader in READERS.items())


def export(
    directory: Annotated[Path, typer.Argument(help="A sealed dataset.")],
    to: Annotated[str, typer.Option("--to", help="Format; see below.")],
    out: Annotated[Path, typer.Option(help="A new folder.")],
) -> None:
    """Write a dataset in somebody else's format."""
    from fsdpo_data.exchange.export import export as write

    found = write(directory, to, out)
    typer.echo(f"wrote {found.rows:,} rows to {found.file}, for {FORMATS[to].reader}")
    typer.echo(f"lost: {FORMATS[to].loses}")
    for reason, count in sorted(found.left_out.items()):
        typer.echo(f"left out: {count:,} rows, because {reason}")


def import_(
    source: Annotated[Path, typer.Argument(help="JSON lines, JSON, parquet or CSV.")],
    form: Annotated[str, typer.Option("--from", help="Format; see below.")],
    out: Annotated[Path, typer.Option(help="A new file ending in .jsonl.")],
    template: Annotated[str, typer.Option(help="Prompt template of the problems.")] = "problem",
) -> None:
    """Read somebody else's step labels, as rows for `fsdpo-train prm`.

    Rows that cannot be read go to a file beside --out, each with the reason.
    """
    from fsdpo_data.exchange.import_rows import import_rows, quarantine

    found = import_rows(source, form, out, template)
    typer.echo(
        f"wrote {found.rows:,} solutions of {found.read:,} rows to {out}: {found.steps[True]:,} "
        f"right steps, {found.steps[False]:,} wrong"
    )
    typer.echo(f"lost: {READERS[form].loses}")
    if found.set_aside:
        typer.echo(f"set aside: {len(found.set_aside):,} rows, in {quarantine(out)}")
    typer.echo(f"next: fsdpo-train prm {out} --out runs/prm")


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    example = "**Example** `fsdpo-data export runs/pairs --to trl-preference --out runs/trl`"
    app.command(epilog=f"{example}\n\n**Formats**\n\n{_FORMATS}")(export)
    example = (
        "**Example** `fsdpo-data import prm800k.jsonl --from prm800k --out runs/prm800k.jsonl`"
    )
    app.command("import", epilog=f"{example}\n\n**Formats**\n\n{_READERS}")(import_)
