"""What a run holds, for people: single problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fsdpo_bench.cli.options import InspectOptions
from fsdpo_bench.cli.tables import plain
from fsdpo_bench.runs.records import read_config, read_records
from fsdpo_data.core.errors import InputError, nearest

#: Before each line of a solution.
_INDENT = "    "


def matching(wanted: InspectOptions) -> Iterator[dict[str, Any]]:
    """Yield the records of a run that a filter lets pass.

    Raises:
        InputError: if there is no run, or it has no such benchmark or decoder.
    """
    out = wanted.data
    decoders = read_config(out)["decoders"]
    decoder = wanted.decoder or decoders[0]
    if decoder not in decoders:
        near = nearest(decoder, decoders)
        raise InputError(f"{out} has {', '.join(decoders)}.{near}", field="decoder", value=decoder)
    records = read_records(out, wanted.task)
    return (record for record in records if _passes(record, wanted, decoder))


def _passes(record: Mapping[str, Any], wanted: InspectOptions, decoder: str) -> bool:
    metadata = record["metadata"]
    pairs = (
        (wanted.outcome, record["decoded"][decoder]["status"]),
        (wanted.subject, metadata.get("subject")),
        (wanted.level, metadata.get("level")),
    )
    if wanted.problem and not record["problem_id"].startswith(wanted.problem):
        return False
    return all(want is None or want == found for want, found in pairs)


def print_records(records: Iterator[dict[str, Any]], count: int, samples: int) -> None:
    """Print the first problems step by step, and say how many there are."""
    from rich.console import Console

    console = Console(highlight=False)
    shown = 0
    for shown, record in enumerate(records, start=1):
        if shown <= count:
            _print_record(console, record, samples)
    more = f"; --count {shown} shows all" if shown > count else ""
    console.print(f"{shown:,} problems match{more}")


def _print_record(console: Any, record: Mapping[str, Any], samples: int) -> None:
    from rich.rule import Rule

    facets = ", ".join(f"{key} {value}" for key, value in record["metadata"].items())
    head = f"{record['task']} row {record['row']}  {record['problem_id']}"
    console.print(Rule(plain(f"{head}  {facets}"), align="left"))
    _plain(console, record["question"])
    _plain(console, f"gold: {record['gold']}\n", style="bold")
    for name, found in record["decoded"].items():
        which = "" if found["sample"] is None else f"  (sample {found['sample']})"
        said = f"{name}: {found['answer']}  {found['status']} ({found['rule']}){which}"
        _plain(console, said, style=_style(found["correct"]))
    for name, found in record["decoded"].items():
        if found["sample"] is None:
            _print_solution(console, name, found["solution"])
    for index, row in enumerate(record["samples"][:samples]):
        _print_solution(console, f"sample {index}", row)
    console.print()


def _print_solution(console: Any, name: str, row: Mapping[str, Any]) -> None:
    tokens = f"{row['n_tokens']} tokens, ended by {row['finish_reason']}"
    _plain(console, f"\n{name}: {row['answer']}  {row['status']} ({row['rule']}), {tokens}")
    rewards = row["rewards"] or [None] * len(row["steps"])
    for step, reward in zip(row["steps"], rewards, strict=True):
        mark = "     " if reward is None else f"{reward:.3f}"
        lines = step.rstrip().replace("\n", f"\n{_INDENT}      ")
        _plain(console, f"{_INDENT}{mark} {lines}")


def _plain(console: Any, text: str, style: str = "") -> None:
    console.print(plain(text, style))


def _style(correct: bool | None) -> str:
    return {True: "green", False: "red", None: "dim"}[correct]
