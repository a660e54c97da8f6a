"""The study's tables: every setting tried, and the final numbers."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from measure import Measured, against, estimate, stacked
from plan import METHODS, Policy

Swept = Mapping[Policy, Measured]
Final = Mapping[str, Sequence[Measured]]
Rows = list[dict[str, object]]


def sweep_rows(swept: Swept, base: Measured, chosen: Sequence[Policy]) -> Rows:
    """Return a row for each setting, in the order tried; the SFT policy comes first."""
    return [
        {"loss": "sft", "lr": "", "beta": "", "gamma": "", **_columns([base]), "chosen": ""},
        *(
            {
                "loss": policy.loss,
                "lr": f"{policy.lr:g}",
                "beta": f"{policy.beta:g}",
                "gamma": f"{policy.gamma:g}" if policy.loss == "full-step" else "",
                **_columns([found]),
                "chosen": "yes" if policy in chosen else "",
            }
            for policy, found in swept.items()
        ),
    ]


def final_rows(final: Final, base: Measured) -> Rows:
    """Return a row for each method, the SFT policy first, with its distance from it."""
    rows: Rows = [{"method": "SFT", "seeds": "", **_columns([base]), **_columns([base], base)}]
    for loss, runs in final.items():
        row = {"method": METHODS[loss], "seeds": len(runs)}
        rows.append({**row, **_columns(runs), **_columns(runs, base)})
    return rows


def _columns(runs: Sequence[Measured], base: Measured | None = None) -> dict[str, object]:
    """Return accuracies with their intervals; with ``base``, the distances from it."""
    found: dict[str, object] = {}
    for what, name in (("sampled", "avg@k"), ("greedy", "greedy")):
        if getattr(runs[0], what) is None:
            continue
        value = estimate(stacked(runs, what)) if base is None else against(runs, base, what)
        title = name if base is None else f"{name} gain"
        for end, number in (("", value.value), (" low", value.low), (" high", value.high)):
            found[f"{title}{end}"] = f"{number:.2f}"
    return found


def write_rows(file: Path, rows: Rows) -> None:
    """Write rows as CSV; accuracies and gains are in points, with 95 % intervals."""
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def print_rows(rows: Rows, title: str) -> None:
    """Print rows as a table, each number with its interval."""
    numbers = [name for name in rows[0] if f"{name} low" in rows[0]]
    plain = [name for name in rows[0] if not any(name.startswith(n) for n in numbers)]
    table = [[*plain, *numbers]]
    for row in rows:
        triples = ([float(str(row[n + end])) for end in ("", " low", " high")] for n in numbers)
        told = (f"{value:.1f} [{low:.1f}, {high:.1f}]" for value, low, high in triples)
        table.append([*(str(row[name]) for name in plain), *told])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print(f"\n{title}\n")
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
