"""The commands of ``fsdpo-data`` about versions: of a dataset, and of the schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

Sealed = Annotated[Path, typer.Argument(help="A sealed dataset.")]


def diff(
    first: Sealed,
    second: Sealed,
    as_json: Annotated[bool, typer.Option("--json", help="Print counts for machines.")] = False,
) -> None:
    """Compare two datasets: rows added, removed, regraded, relabelled, rescored."""
    from dataclasses import asdict

    from fsdpo_data.dataset.diff import changed_specs
    from fsdpo_data.dataset.diff import diff as compare

    found, specs = compare(first, second), changed_specs(first, second)
    if as_json:
        counts = {config: asdict(difference) for config, difference in found.items()}
        typer.echo(json.dumps({"specs": specs, **counts}, indent=2, ensure_ascii=False))
        return
    for key, old, new in specs:
        typer.echo(f"spec {key}: {json.dumps(old)} → {json.dumps(new)}")
    for config, difference in found.items():
        changed = [f"{count:,} {what}" for what, count in difference.changed.items() if count]
        said = [f"{difference.added:,} added", f"{difference.removed:,} removed", *changed]
        kept = f"{difference.kept:,} in both"
        typer.echo(f"{config}: {', '.join(said)}  ({kept})" if difference else f"{config}: {kept}")


def migrate(
    directory: Annotated[Path, typer.Argument(help="A sealed dataset of an older schema.")],
    out: Annotated[Path, typer.Option(help="A new directory.")],
) -> None:
    """Bring a dataset to the schema of this release; the old one stays as it is."""
    from fsdpo_data.dataset.migrate import migrate as bring
    from fsdpo_data.dataset.schema import SCHEMA_VERSION

    old = bring(directory, out)
    typer.echo(f"{out}: migrated from schema {old} to {SCHEMA_VERSION}, and valid")


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(epilog="**Example** `fsdpo-data diff runs/a runs/a-regraded`")(diff)
    app.command(epilog="**Example** `fsdpo-data migrate runs/old --out runs/new`")(migrate)
