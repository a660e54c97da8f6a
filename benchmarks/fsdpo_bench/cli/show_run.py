"""What a run holds, for people: single problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from fsdpo_bench.cli.options import InspectOptions
from fsdpo_bench.cli.tables import plain, say
from fsdpo_bench.runs.records import read_config, read_records
from fsdpo_data.core.errors import InputError, nearest

#: Before each line of a solution.
_INDENT = "    "
_say = partial(say, wrap=True)
_STYLES = {True: "green", False: "red", None: "dim"}


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
    named = record["problem_id"].startswith(wanted.problem or "")
    return named and all(want is None or want == found for want, found in pairs)


def print_records(records: Iterator[dict[str, Any]], count: int, samples: int) -> None:
    """Print the first problems step by step, and say how many there are."""
    shown = 0
    for shown, record in enumerate(records, start=1):
        if shown <= count:
            _print_record(record, samples)
    more = f"; --count {shown} shows all" if shown > count else ""
    _say(f"{shown:,} problems match{more}")


def _print_record(record: Mapping[str, Any], samples: int) -> None:
    from rich.console import Console
    from rich.rule import Rule

    facets = ", ".join(f"{key} {value}" for key, value in record["metadata"].items())
    head = f"{record['task']} row {record['row']}  {record['problem_id']}"
    Console().print(Rule(plain(f"{head}  {facets}"), align="left"))
    _say(record["question"])
    _say(f"gold: {record['gold']}\n", "bold")
    for name, found in record["decoded"].items():
        which = "" if found["sample"] is None else f"  (sample {found['sample']})"
        said = f"{name}: {found['answer']}  {found['status']} ({found['rule']}){which}"
        _say(said, _STYLES[found["correct"]])
    for name, found in record["decoded"].items():
        if found["sample"] is None:
            _print_solution(name, found["solution"])
    for index, row in enumerate(record["samples"][:samples]):
        _print_solution(f"sample {index}", row)
    _say("")


def _print_solution(name: str, row: Mapping[str, Any]) -> None:
    tokens = f"{row['n_tokens']} tokens, ended by {row['finish_reason']}"
    _say(f"\n{name}: {row['answer']}  {row['status']} ({row['rule']}), {tokens}")
    rewards = row["rewards"] or [None] * len(row["steps"])
    for step, reward in zip(row["steps"], rewards, strict=True):
        mark = "     " if reward is None else f"{reward:.3f}"
        lines = step.rstrip().replace("\n", f"\n{_INDENT}      ")
        _say(f"{_INDENT}{mark} {lines}")
