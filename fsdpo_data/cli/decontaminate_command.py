"""``fsdpo-data decontaminate``: training problems held against benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsdpo_data.core.progress import progress
from fsdpo_data.problems.overlap import RUN, SHARE

if TYPE_CHECKING:
    from fsdpo_data.stages.decontaminate import Contamination

_EXAMPLES = """
**Examples**

- `fsdpo-data decontaminate gsm8k math --against bench/gsm8k.jsonl --against bench/math`
- `fsdpo-data decontaminate train.jsonl --against bench --report r.json --drop clean.jsonl`
- `fsdpo-data decontaminate runs/pairs --against gsm8k=bench/gsm8k.jsonl --out runs/checked`
"""


def decontaminate(
    problems: Annotated[
        list[str],
        typer.Argument(help="Training problems, as `build --problems` takes them, or a dataset."),
    ],
    against: Annotated[
        list[str],
        typer.Option(
            metavar="[NAME=]FILE", help="File or directory of a benchmark; several times."
        ),
    ],
    split: Annotated[str, typer.Option(help="Split of the training problems.")] = "train",
    ngram: Annotated[int, typer.Option(help="Words of a run.")] = RUN,
    overlap: Annotated[float, typer.Option(help="Share of common runs that counts.")] = SHARE,
    report: Annotated[Path | None, typer.Option(help="Write every pair here, as JSON.")] = None,
    drop: Annotated[
        Path | None, typer.Option(help="Write the problems that are left here, as JSON lines.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the dataset here, with the result in its manifest and card."),
    ] = None,
) -> None:
    """Find training problems that occur in benchmarks, and leave them out.

    A question is the same if only white space or case differs; else it overlaps by its common
    runs of words. Whether the gold answers agree is told beside it.
    """
    from fsdpo_data.problems.load import load_problems
    from fsdpo_data.stages.decontaminate import hold_against, sealed_problems, write_outcome

    if out is None:
        training = load_problems(problems, split=split).problems
    else:
        training = sealed_problems(_only(problems))
    found = hold_against(training, against, n=ngram, share=overlap)
    write_outcome(found, report, drop)
    _show(found)
    if out is not None:
        _record(found, _only(problems), out)
    if drop:
        typer.echo(f"next: fsdpo-data build --problems {drop}")


def _only(names: list[str]) -> Path:
    """Return the one dataset that is to be written again."""
    from fsdpo_data.core.errors import InputError

    if len(names) != 1:
        raise InputError(f"--out wants one sealed dataset, got {len(names)} sources.")
    return Path(names[0])


def _show(found: Contamination) -> None:
    """Print a line for each benchmark, and the sum."""
    for counts in found.counts():
        typer.echo(
            f"{counts['name']}: {counts['hit']:,} of {counts['questions']:,} questions overlap "
            f"with {counts['problems']:,} problems; {counts['same']:,} are the same, "
            f"{counts['same_answer']:,} with the same answer"
        )
    total, clean = len(found.problems), len(found.clean)
    typer.echo(f"{total - clean:,} of {total:,} problems are contaminated, {clean:,} are clean")


def _record(found: Contamination, source: Path, out: Path) -> None:
    """Write the dataset with the result."""
    from fsdpo_data.dataset.derive import derive
    from fsdpo_data.stages.decontaminate import DecontaminateStage

    with progress() as shown:
        derive(source, out, [DecontaminateStage(found)], progress=shown)
    typer.echo(f"sealed {out}; next: fsdpo-data push ORG/NAME {out}")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog=_EXAMPLES)(decontaminate)
