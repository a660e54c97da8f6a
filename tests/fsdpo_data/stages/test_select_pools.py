"""Selections from the recorded pools: 32 samples of each of 500 problems."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

import fsdpo_data as fd
from fsdpo_data.core.progress import NO_PROGRESS
from fsdpo_data.exchange.import_options import ImportOutputsOptions
from fsdpo_data.exchange.importing import run_import

#: Problems with right and wrong samples by the grader and by the vendor, and the options of the
#: import. The vendor's extractor misreads answers, and 171 of its golds of MATH-500 are damaged.
POOLS = {
    "gsm8k": (116, 157, {}),
    "math500": (238, 221, {"problems": ("benchmarks/math500",), "split": "test"}),
}


@pytest.mark.proof
@pytest.mark.parametrize("name", POOLS)
def test_mixed_problems_and_a_split(shared: Path, tmp_path: Path, name: str) -> None:
    n_mixed, n_mixed_by_vendor, options = POOLS[name]
    with gzip.open(shared / f"data/pools/{name}/candidates.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    verdicts = {(row["problem_id"], bool(row["vendor_correct"])) for row in rows}
    assert len(verdicts) - len({row["problem_id"] for row in rows}) == n_mixed_by_vendor
    if "problems" in options:
        options = {**options, "problems": (str(shared / "data" / options["problems"][0]),)}
    import_options = ImportOutputsOptions(
        file=shared / f"data/pools/{name}/candidates.jsonl.gz",
        out=tmp_path / "pool",
        model_name="policy",
        **options,  # type: ignore[arg-type]
    )
    run_import(import_options, NO_PROGRESS)
    pool = fd.open_dataset(tmp_path / "pool")
    new = pool.select(out=tmp_path / "new", mixed=True, split=["validation=0.1"])
    parts = [new.validate(), fd.open_dataset(tmp_path / "new-validation").validate()]
    questions = [set(part.problems().collect()["question"]) for part in parts]
    assert not questions[0] & questions[1]
    assert sum(map(len, questions)) == n_mixed
    # The same problems, counted from the rows.
    counts = (
        pool.solutions()
        .group_by("problem_id")
        .agg(
            right=(pl.col("outcome") == "correct").sum(),
            wrong=pl.col("outcome").is_in(["incorrect", "no_answer"]).sum(),
        )
        .collect()
    )
    mixed = counts.filter((pl.col("right") > 0) & (pl.col("wrong") > 0))["problem_id"]
    ids = [problem_id for part in parts for problem_id in part.problems().collect()["problem_id"]]
    assert sorted(ids) == sorted(mixed)
