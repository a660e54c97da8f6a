"""Datasets with benchmark problems, which training and publishing refuse."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.options import Option
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.problems.benchmark_places import BENCHMARKS_KEY, benchmark_places

#: The option of a command that otherwise refuses benchmark problems.
AllowBenchmark = Annotated[bool, Option(in_digest=False)]


def check_no_benchmark_problems(root: Path, manifest: Manifest) -> None:
    """Check that no problem of a dataset comes from a benchmark.

    Raises:
        InputError: if a problem does.
    """
    # A copy for a training may lack the problems.
    files = [file for file in manifest.config_paths(root, "problems") if file.exists()]
    if not files:
        return
    metadata = scan_rows("problems", files).select("metadata")
    has_key = pl.col("metadata").str.contains(f'"{BENCHMARKS_KEY}"', literal=True)
    count = 0
    names: dict[str, None] = {}
    for (text,) in collect_rows(metadata.filter(has_key)).iter_rows():
        with contextlib.suppress(ValueError):  # a source may have a field of this name
            problem_places = benchmark_places(json.loads(text))
            count += bool(problem_places)
            names |= dict.fromkeys(problem_place.name for problem_place in problem_places)
    if count:
        raise InputError(
            f"{root} has {count:,} problems of benchmarks ({', '.join(names)}). A model that was "
            "trained on them cannot be measured on them. Use other problems, or add "
            "`allow_benchmark`."
        )
