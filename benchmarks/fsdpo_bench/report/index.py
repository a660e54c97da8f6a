"""All runs under a directory as a page, those that still go on among them."""

import os
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fsdpo_cards.pages.page import render_page

from fsdpo_bench.report.plots import points
from fsdpo_bench.report.render import TEMPLATES, date_of
from fsdpo_bench.results.intervals import macro_average
from fsdpo_bench.results.outcomes import read_problem_results
from fsdpo_bench.results.summary import as_dict, decoder_share
from fsdpo_bench.runs.records import RECORDS, read_config, read_records
from fsdpo_data.core.errors import InputError
from fsdpo_data.dataset.run import CONFIG_FILE

_POINTS = 60  #: Of the line that shows how accuracy settled.


def render_index(root: Path, out: Path, seconds: int | None = None) -> tuple[str, bool]:
    """Render the page that is to be written to ``out``, and tell whether all runs are whole.

    Until they are, the page loads itself again every so many ``seconds``, if any.

    Raises:
        InputError: if there is no run, or a record of one was changed.
    """
    runs = []
    for folder in sorted(file.parent for file in root.rglob(CONFIG_FILE)):
        sizes = tuple(file.stat().st_size for file in sorted((folder / RECORDS).glob("*")))
        if told := _run_entry(folder, sizes):
            report = folder / "report.html"
            link = quote(os.path.relpath(report, out.parent)) if report.is_file() else ""
            runs.append({**told, "path": str(folder.relative_to(root)), "link": link})
    if not runs:
        raise InputError("it holds no run of `fsdpo-bench run`.", field="data", value=str(root))
    whole = all(run["done"] == run["of"] for run in runs)
    again = None if whole else seconds
    told = {"title": f"{len(runs)} runs · {root.resolve().name}", "runs": runs, "again": again}
    page = render_page(TEMPLATES / "index.html", {"again": again}, {"points": points}, **told)
    return page, whole


@cache
def _run_entry(run: Path, sizes: tuple[int, ...]) -> dict[str, Any] | None:
    """Return what the page says of a run whose records are so long; None if it is no run."""
    try:
        config = read_config(run)
    except InputError:
        return None
    facts, first = read_problem_results(read_records(run)), config["decoders"][0]
    answers = (each.decoded.get(first) for part in facts.values() for each in part)
    right = list(accumulate(bool(each.correct) for each in answers if each))
    every = max(1, len(right) // _POINTS)
    tasks = config["tasks"].values()
    return {
        "model": config["model"]["name"],
        "tasks": [task["title"] for task in tasks],
        "date": date_of(run),
        "done": sum(map(len, facts.values())),
        "of": sum(task["problems"] for task in tasks),
        "decoders": {
            name: as_dict(macro_average([decoder_share(part, name) for part in facts.values()]))
            for name in config["decoders"]
        },
        "curve": [right[at] / (at + 1) for at in range(0, len(right), every)],
    }
