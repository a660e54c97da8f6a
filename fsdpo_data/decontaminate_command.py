"""``fsdpo-data decontaminate``: training problems held against benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsdpo_data.overlap import RUN, SHARE

_EXAMPLES = """
**Examples**

- `fsdpo-data decontaminate gsm8k math --against bench/gsm8k.jsonl --against bench/math`
- `fsdpo-data decontaminate train.jsonl --against bench --report r.json --drop clean.jsonl`
"""


def decontaminate(
    problems: Annotated[
        list[str], typer.Argument(help="Training problems, as `build --problems` takes them.")
    ],
    against: Annotated[
        list[str], typer.Option(help="File or directory of a benchmark; several times.")
    ],
    split: Annotated[str, typer.Option(help="Split of the training problems.")] = "train",
    ngram: Annotated[int, typer.Option(help="Words of a run.")] = RUN,
    overlap: Annotated[float, typer.Option(help="Share of common runs that counts.")] = SHARE,
    report: Annotated[Path | None, typer.Option(help="Write every pair here, as JSON.")] = None,
    drop: Annotated[
        Path | None, typer.Option(help="Write the problems that are left here, as JSON lines.")
    ] = None,
) -> None:
    """Find training problems that occur in benchmarks, and leave them out.

    A question is the same if only white space or case differs; else it overlaps by its common
    runs of words. Whether the gold answers agree is told beside it.
    """
    from fsdpo_data.decontaminate import hold_against, write_outcome
    from fsdpo_data.sources import load_problems

    loaded = load_problems(problems, split=split)
    found = hold_against(loaded.problems, against, n=ngram, share=overlap)
    write_outcome(found, report, drop)
    for where, counts in found.counts().items():
        typer.echo(
            f"{where}: {counts['hit']:,} of {counts['questions']:,} questions overlap with "
            f"{counts['problems']:,} problems; {counts['same']:,} are the same, "
            f"{counts['same_answer']:,} with the same answer"
        )
    total, clean = len(found.problems), len(found.clean)
    typer.echo(f"{total - clean:,} of {total:,} problems are contaminated, {clean:,} are clean")
    if drop:
        typer.echo(f"next: fsdpo-data build --problems {drop}")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog=_EXAMPLES)(decontaminate)
