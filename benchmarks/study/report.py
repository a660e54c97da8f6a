"""The results of all sizes: corrected p-values, verdicts and figures, from the tables of a study.

    python benchmarks/study/report.py benchmarks/study    # the published tables, without a run

`contrasts.csv` of each size receives two columns:

- `p (Holm)`: the p-value, corrected for the comparisons of all sizes.
- `verdict`: the conclusion from the p-value, the interval and the margin of equivalence.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
from figure import write_contrasts, write_rates
from measure import Rows
from plan import EQUIVALENCE_MARGIN, QUESTIONS, SIGNIFICANT_VERDICTS, SIZES

from fsdpo_data.core.statistics import holm

SIGNIFICANCE = 0.05


def write_report(folder: Path) -> list[Path]:
    """Correct the p-values of all sizes in a folder, and draw the figures.

    Args:
        folder: Folder with one folder of tables per size.

    Returns:
        The changed tables and the figures.
    """
    files = {size: folder / size / "contrasts.csv" for size in SIZES}
    tables = {size: _read_rows(file) for size, file in files.items() if file.exists()}
    add_verdicts([row for rows in tables.values() for row in rows])
    for size, rows in tables.items():
        pl.DataFrame(rows).write_csv(files[size])
    written = [files[size] for size in tables]
    first = next(iter(tables))
    return written + draw_size(folder / first, first)


def add_verdicts(contrasts: Rows) -> None:
    """Add the corrected p-value and the verdict to each comparison, as one family."""
    corrected = holm([float(str(row["p"])) for row in contrasts])
    for row, p in zip(contrasts, corrected, strict=True):
        value, low, high = (float(str(row[f"ahead{end}"])) for end in ("", " low", " high"))
        row["p (Holm)"] = f"{p:.4f}"
        row["verdict"] = decide_verdict(p, value, low, high)


def decide_verdict(p: float, value: float, low: float, high: float) -> str:
    """Return the conclusion about a difference.

    Args:
        p: The corrected p-value.
        value: The difference in points.
        low: Lower end of its 95 % interval.
        high: Upper end of its 95 % interval.

    Returns:
        A phrase: whether the difference is significant, before or after the correction. Otherwise
        what the interval excludes: a gain of the margin, a loss, both, or neither ("open").
    """
    margin = f"{EQUIVALENCE_MARGIN:g} points"
    ahead, behind = SIGNIFICANT_VERDICTS
    if p < SIGNIFICANCE:
        return ahead if value > 0 else behind
    has_no_gain = high < EQUIVALENCE_MARGIN
    has_no_loss = low > -EQUIVALENCE_MARGIN
    if has_no_gain and has_no_loss:
        return f"equal within {margin}"
    if low > 0 or high < 0:
        return f"{'ahead' if value > 0 else 'behind'}; not significant after correction"
    if has_no_gain:
        return f"no gain of {margin}"
    return f"no loss of {margin}" if has_no_loss else "open"


def draw_size(folder: Path, size: str) -> list[Path]:
    """Draw the figures of one size from its tables; return their files."""
    contrasts, final = (_read_rows(folder / f"{name}.csv") for name in ("contrasts", "final"))
    arms = list(dict.fromkeys(str(row["arm"]) for row in final))
    metric = name_metric(SIZES[size].test)
    files = []
    for question in QUESTIONS:
        rows = [row for row in contrasts if row["question"] == question.name]
        if rows:
            files.append(folder / f"{question.name}.svg")
            visible_arms = [arm for arm in question.arms if arm in arms]
            write_contrasts(
                files[-1],
                describe_verdicts(rows),
                arms=visible_arms,
                final=final,
                contrasts=rows,
                metric=metric,
            )
    sweep = folder / "sweep.csv"
    if sweep.exists():
        files.append(folder / "rates.svg")
        rows = _read_rows(sweep)
        metric = name_metric(SIZES[size].validation)
        write_rates(files[-1], describe_collapses(rows), arms[1:], rows, metric)
    return files


def describe_verdicts(contrasts: Rows) -> str:
    """Return the answer to a question in one sentence."""
    baseline = contrasts[0]["against"]
    statements = []
    for verdict in SIGNIFICANT_VERDICTS:
        arms = [str(row["arm"]) for row in contrasts if row["verdict"] == verdict]
        if arms:
            position = "ahead of" if verdict == SIGNIFICANT_VERDICTS[0] else "behind"
            statements.append(f"{position} {baseline}: {', '.join(arms)}")
    if not statements:
        return f"No arm differs significantly from {baseline}"
    return f"Significantly {' and '.join(statements)}"


def describe_collapses(swept: Rows) -> str:
    """Return which arms collapse at the largest learning rate, in one sentence."""
    policies = swept[1:]  # The first row is the SFT policy.
    largest_lr = max(float(str(row["lr"])) for row in policies)
    rows = [row for row in policies if float(str(row["lr"])) == largest_lr]
    stable_arms = [str(row["arm"]) for row in rows if not row["collapsed"]]
    exception = f" except {', '.join(stable_arms)}" if stable_arms else ""
    return f"At a learning rate of {largest_lr:g}, every arm{exception} collapses"


def name_metric(counts: Mapping[str, Sequence[int]]) -> str:
    """Return the name of the accuracy on problems of the kind ``solve``, such as "avg@2"."""
    return f"avg@{counts['solve'][1]}"


def _read_rows(file: Path) -> Rows:
    """Return the rows of a table; all cells are text."""
    return pl.read_csv(file, infer_schema=False).fill_null("").to_dicts()


def main(arguments: Sequence[str] | None = None) -> None:
    """Correct the p-values of published tables, and draw their figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with one folder of tables per size")
    for file in write_report(parser.parse_args(arguments).folder):
        print(file)


if __name__ == "__main__":
    main()
