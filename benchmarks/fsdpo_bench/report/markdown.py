"""``report.md``: the numbers of a run as tables that read well as plain text too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fsdpo_cards.render import code, text

from fsdpo_bench.report.html import published_rows, settings
from fsdpo_bench.report.plots import points

Results = Mapping[str, Any]


def render_markdown(results: Results) -> str:
    """Render the report."""
    run = results["run"]
    parts = [
        f"# {text(run['model']['name'])}",
        "Accuracy in percent with 95 % intervals: Wilson's, or clustered by base problem where "
        "problems share one. `gold_unparsed` is not counted; `timed_out` is wrong.",
        _accuracy(results["tasks"]),
        *(f"Mean of {name}, each benchmark counts the same:\n\n{_suite(found)}"
          for name, found in results["suites"].items()),
        *_samples(results["tasks"]),
        "## Cost\n\n" + _cost(results["cost"]),
        *_groups(results["tasks"]),
        *_rewards(results["rewards"]),
        *_published(results),
        "## Settings\n\n" + _table(("name", "value"), ((n, code(v)) for n, v in settings(run))),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """Write a table whose last ``numbers`` columns are flush right."""
    marks = ["---"] * (len(header) - numbers) + ["--:"] * numbers
    lines = [header, marks, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _accuracy(tasks: Results) -> str:
    rows = []
    for task in tasks.values():
        title = text(task["title"])
        if task["problems"] < task["of"]:
            title += f" ({task['problems']} of {task['of']} problems)"
        for decoder, share in task["decoders"].items():
            others = (
                f"{count} {status.replace('_', ' ')}"
                for status, count in share["outcomes"].items()
                if status != "correct"
            )
            note = f"{share['clusters']} base problems" if share["clusters"] else ""
            if "strict" in share:
                note = f"without tolerance {points(share['strict'])}"
            counts = (f"{share['correct']:g}", str(share["n"]))
            rows.append((title, decoder, ", ".join(others), note, points(share), *counts))
            title = ""
    header = ("benchmark", "decoder", "other outcomes", "note", "accuracy", "correct", "of")
    return "## Accuracy\n\n" + _table(header, rows, numbers=3)


def _suite(found: Results) -> str:
    rows = ((name, points(share), str(share["n"])) for name, share in found["decoders"].items())
    return _table(("decoder", "accuracy", "problems"), rows, numbers=2)


def _samples(tasks: Results) -> list[str]:
    rows = [
        (text(task["title"]), f"{kind}@{k}", points(share), str(share["n"]))
        for task in tasks.values()
        for kind in ("avg", "pass", "maj")
        for k, share in task[f"{kind}_at_k"].items()
    ]
    header = ("benchmark", "of k samples", "accuracy", "of")
    return ["## Samples\n\n" + _table(header, rows, numbers=2)] if rows else []


def _cost(cost: Results) -> str:
    rows = (
        (name, f"{each['tokens']:,.0f}", f"{each['prm_calls']:,.0f}", f"{each['seconds']:,.1f}")
        for name, each in cost.items()
    )
    return _table(("decoder", "tokens", "PRM calls", "seconds"), rows, numbers=3)


def _groups(tasks: Results) -> list[str]:
    parts = []
    for task in tasks.values():
        for group, members in task["groups"].items():
            header = (group, "of", *task["decoders"])
            rows = (
                (text(label), str(next(iter(shares.values()))["n"]), *map(points, shares.values()))
                for label, shares in members.items()
            )
            table = _table(header, rows, numbers=len(header) - 1)
            parts.append(f"## {text(task['title'])} by {group}\n\n{table}")
    return parts


def _rewards(rewards: Results | None) -> list[str]:
    if rewards is None:
        return []
    ranks = (
        f"{found['value']:.3f} by {how}"
        for how, found in rewards["ranking_auc"].items()
        if found["value"] is not None
    )
    rows = (
        (
            f"{each['from']:.1f}–{each['to']:.1f}",
            f"{each['steps']:,}",
            f"{each['reward']:.3f}",
            points({"accuracy": each["correct"], "ci95": each["ci95"]}),
        )
        for each in rewards["calibration"]["bins"]
    )
    header = ("reward of the step", "steps", "mean reward", "in correct solutions, %")
    told = (
        f"{rewards['solutions']:,} sampled solutions, {rewards['correct']:,} correct. Expected "
        f"calibration error {rewards['calibration']['expected_error']:.3f}. Correct above wrong "
        f"within a problem: {', '.join(ranks) or 'no problem has both'}."
    )
    return [f"## Step rewards\n\n{told}\n\n{_table(header, rows, numbers=3)}"]


def _published(results: Results) -> list[str]:
    rows = published_rows(results)
    if not rows:
        return []
    names = [name for name in results["tasks"] if any(name in row["values"] for row in rows)]
    cells = (
        (row["label"], *(f"{row['values'][n]:.1f}" if n in row["values"] else "–" for n in names))
        for row in rows
    )
    header = ("greedy, %", *(text(results["tasks"][name]["title"]) for name in names))
    return ["## The paper\n\n" + _table(header, cells, numbers=len(names))]
