"""Tables of ``fsdpo-bench prm``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsdpo_bench.cli.tables import add_row, make_table, plain, print_table
from fsdpo_bench.prm.measure import Measured


def print_prm(measured: Measured) -> None:
    """Print what was measured of a process reward model."""
    from rich.console import Console

    console = Console(highlight=False)
    if measured.dataset is not None:
        for name, value in _dataset_rows(measured.dataset):
            console.print(plain(f"{name:<36}{value}"))
        _print_curve(measured.dataset["best_of"])
    for file, found in measured.first_errors.items():
        console.print(plain(f"\n{file}"))
        for name, value in found.rows():
            console.print(f"{name:<36}{value}", markup=False)


def _dataset_rows(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("solutions", f"{report['solutions']:,} of {report['problems']:,} problems")]
    for how, ranking in report["ranking_auc"].items():
        text = _interval(ranking["value"], ranking["ci95"])
        rows.append((f"ranking AUC, {how}", f"{text}  ({ranking['problems']:,} problems)"))
    steps = report["steps"]
    if steps is not None:
        rows += [
            ("right over wrong steps, AUC", _interval(steps["auc"], None)),
            (
                "reward before less after the error",
                f"{_interval(steps['margin'], steps['ci95'])}  ({steps['solutions']:,} solutions "
                f"of {steps['problems']:,} problems)",
            ),
        ]
    return rows


def _interval(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" + (f"  [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")


def _print_curve(curves: Mapping[str, Mapping[int, float]]) -> None:
    table = make_table("best-of-N by", *(f"N={size}>" for size in curves["pass"]))
    for how, curve in curves.items():
        name = "a perfect judge" if how == "pass" else how
        add_row(table, name, *(f"{100 * value:.1f}" for value in curve.values()))
    print_table(table)
