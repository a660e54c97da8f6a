"""Accuracies of policies on the same problems, intervals of what separates them, and the tables."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import polars as pl
from plan import METHODS, Policy

from fsdpo_data.core.rows import scan
from fsdpo_data.dataset.manifest import read_manifest

RESAMPLES = 10_000


@dataclass(frozen=True)
class Measured:
    """One policy on one split, a value for each problem, in the order of their ids."""

    sampled: np.ndarray  #: Share of the samples that are correct.
    greedy: np.ndarray | None = None  #: Whether the greedy solution is; None if not asked.

    @classmethod
    def read(cls, sampled: Path, greedy: Path | None = None) -> Self:
        """Read the datasets that a policy's samples and greedy solutions were sealed in."""
        return cls(_shares(sampled), None if greedy is None else _shares(greedy))


def _shares(dataset: Path) -> np.ndarray:
    solutions = scan(read_manifest(dataset).paths(dataset, "solutions"))
    correct = (pl.col("outcome") == "correct").mean()
    by_problem = solutions.group_by("problem_id").agg(correct=correct).sort("problem_id")
    return by_problem.collect()["correct"].to_numpy()


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float


def estimate(value_SP: np.ndarray, seed: int = 0) -> Estimate:
    """Return the mean over training seeds and problems, in points, with a bootstrap interval.

    Seeds and problems are drawn anew independently of each other (Owen 2007, *The pigeonhole
    bootstrap*), since every seed met the same problems; that is on the wide side. One seed says
    nothing about others: the interval is then over problems alone.

    ``value_SP`` has a value for each seed and problem; ``seed`` is that of the draws.
    """
    rng = np.random.default_rng(seed)
    seeds, problems = value_SP.shape
    drawn_RP = rng.multinomial(problems, np.full(problems, 1 / problems), size=RESAMPLES) / problems
    drawn_RS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES) / seeds
    means_R = ((drawn_RP @ value_SP.T) * drawn_RS).sum(-1)
    low, high = np.quantile(means_R, (0.025, 0.975))
    return Estimate(100 * float(value_SP.mean()), 100 * float(low), 100 * float(high))


def stacked(runs: Sequence[Measured], what: str) -> np.ndarray:
    """Return a value for each run and problem; ``what`` is ``sampled`` or ``greedy``."""
    return np.stack([getattr(run, what) for run in runs])


def against(runs: Sequence[Measured], base: Measured, what: str) -> Estimate:
    """Return by how many points runs are ahead of ``base``, problem by problem."""
    return estimate(stacked(runs, what) - getattr(base, what))


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
