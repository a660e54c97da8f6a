"""Render a page that lists all runs in a directory, including unfinished runs."""

import os
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fsdpo_cards.page import render_page

from fsdpo_bench.intervals import macro_average
from fsdpo_bench.report.render import TEMPLATES_FOLDER, run_date
from fsdpo_bench.results.numbers import decoder_accuracy, format_points
from fsdpo_bench.results.outcomes import read_problem_results
from fsdpo_bench.results.summary import accuracy_result
from fsdpo_bench.runs.records import RECORDS_FOLDER, read_config, read_records
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.files import write_text
from fsdpo_data.core.row_files import summarize_list
from fsdpo_data.dataset.run import CONFIG_FILE

_CURVE_POINTS = 60  #: Points of the line that shows the accuracy so far.


def render_index(root: Path, out: Path, reload_seconds: int | None = None) -> tuple[str, bool]:
    """Render the page of the runs in ``root``.

    Args:
        root: Directory with runs.
        out: File of the page, for relative links to the reports.
        reload_seconds: Interval at which the page reloads while a run is unfinished.

    Returns:
        The page, and whether all runs are complete.

    Raises:
        InputError: if there are no runs, or a record is invalid.
    """
    runs = []
    for folder in sorted(file.parent for file in root.rglob(CONFIG_FILE)):
        sizes = tuple(file.stat().st_size for file in sorted((folder / RECORDS_FOLDER).glob("*")))
        entry = _run_entry(folder, sizes)
        if entry is not None:
            report = folder / "report.html"
            link = quote(os.path.relpath(report, out.parent)) if report.is_file() else ""
            runs.append({**entry, "path": str(folder.relative_to(root)), "link": link})
    if not runs:
        raise InputError(
            "the directory contains no run of `fsdpo-bench run`.", field="data", value=str(root)
        )
    models = list(dict.fromkeys(str(run["model"]) for run in runs))
    is_complete = all(run["done"] == run["total"] for run in runs)
    reload_after = None if is_complete else reload_seconds
    page = render_page(
        TEMPLATES_FOLDER / "index.html",
        {"reload_seconds": reload_after},
        {"points": format_points},
        tasks=list(dict.fromkeys(title for run in runs for title in run["tasks"])),
        folder=root.resolve().name,
        title=f"Benchmark runs of {summarize_list(models)}",
        runs=runs,
        reload_seconds=reload_after,
    )
    return page, is_complete


def write_index(root: Path, out: Path, reload_seconds: int | None = None) -> bool:
    """Write the page of the runs in ``root``, and return whether all runs are complete.

    The arguments and errors are the same as for :func:`render_index`.
    """
    page, is_complete = render_index(root, out, reload_seconds)
    write_text(out, page)
    return is_complete


@cache
def _run_entry(run: Path, sizes: tuple[int, ...]) -> dict[str, Any] | None:
    """Return the row of a run; None if the directory contains another kind of run.

    The ``sizes`` of the record files are part of the cache key: unchanged runs are not read again.
    """
    try:
        config = read_config(run)
    except InputError:
        return None
    results = read_problem_results(read_records(run))
    first_decoder = config.decoders[0]
    answers = (
        result.decoder_answers.get(first_decoder)
        for task_results in results.values()
        for result in task_results
    )
    correct_so_far = list(accumulate(bool(answer.correct) for answer in answers if answer))
    stride = max(1, len(correct_so_far) // _CURVE_POINTS)
    tasks = config.tasks.values()
    return {
        "model": config.model.name,
        "tasks": [task.title for task in tasks],
        "date": run_date(run),
        "done": sum(map(len, results.values())),
        "total": sum(task.problems for task in tasks),
        "decoders": {
            name: accuracy_result(
                macro_average([decoder_accuracy(part, name) for part in results.values()])
            )
            for name in config.decoders
        },
        "task_accuracies": {
            config.tasks[name].title: accuracy_result(decoder_accuracy(part, first_decoder))
            for name, part in results.items()
        },
        "curve": [
            correct_so_far[index] / (index + 1) for index in range(0, len(correct_so_far), stride)
        ],
    }
