"""Preference pairs: the best correct solutions of a problem against its worst incorrect ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.dataset.derive import Draft
from fsdpo_data.dataset.manifest import Manifest
from fsdpo_data.dataset.schema import arrow_schema
from fsdpo_data.pairs.best_worst import PairSpec, choose
from fsdpo_data.pairs.statistics import pair_statistics, problem_counts
from fsdpo_data.stages.continuations import ContinueOptions

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


class PairStage:
    """Adds the ``pairs`` config to a dataset with step rewards."""

    name = "pair"

    def __init__(self, spec: PairSpec) -> None:
        self._spec = spec

    def spec(self) -> Mapping[str, Any]:
        """Return the :class:`PairSpec` as plain values, and that solutions must be finished."""
        return {**asdict(self._spec), "finished": True}

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset that has no rewards or gives no pair."""
        self._check(sorted((source / "solutions").glob("*.parquet")), source)

    def run(self, draft: Draft) -> None:
        """Write one file of pairs per file of solutions."""
        files = draft.files("solutions")
        self._check(files, draft.source)
        draft.progress.phase("pair", len(files))
        draft.add("pairs", [partial(pair_table, file, self._spec) for file in files])
        statistics = pair_statistics(draft.files("pairs"), files, self._spec.aggregate)
        draft.manifest["pairs"] = statistics
        draft.manifest["rows"]["pairs"] = statistics["pairs"]
        draft.dropped.discard("pairs")

    def _check(self, files: list[Path], name: Path) -> None:
        import polars as pl

        check_scored(files, name)
        pairs = sum(
            choose(pl.scan_parquet(file), self._spec).select(pl.len()).collect().item()
            for file in files
        )
        if not pairs:
            raise InputError(_why_none(pl.scan_parquet(files), name, self._spec))


def check_scored(files: list[Path], name: Path) -> None:
    """Refuse solutions without rewards.

    Args:
        files: The files of ``solutions``.
        name: The dataset, for the message.

    Raises:
        InputError: if there are none.
    """
    import polars as pl

    rewards = pl.scan_parquet(files).select(pl.col("step_rewards").is_not_null().any())
    if not rewards.collect().item():
        raise InputError(
            f"{name} has no step rewards. Score it first: fsdpo-data score {name} --prm PATH "
            "--out NEW, then pair NEW."
        )


def _why_none(solutions: pl.LazyFrame, name: Path, spec: PairSpec) -> str:
    counts = problem_counts(solutions)
    limit = f", or lower --min-margin {spec.min_margin}" if spec.min_margin is not None else ""
    other = "" if not spec.require_outcome else ", or rank by reward alone (--no-require-outcome)"
    return (
        f"{name}: none of {counts['problems']} problems gives a pair. {counts['too_easy']} have no "
        f"incorrect solution, {counts['too_hard']} have no correct one. Sample more solutions, or "
        f"problems nearer to what the model can do{limit}{other}."
    )


def pair_table(file: Path, spec: PairSpec) -> pa.Table:
    """Return the rows of ``pairs`` that one file of solutions gives."""
    import polars as pl

    solutions = pl.scan_parquet(file)
    content = solutions.with_row_index("row").with_columns(text=pl.col("completions").list.join(""))
    rows = choose(solutions, spec).with_row_index("order")
    for side in ("chosen", "rejected"):
        columns = {
            "solution_id": f"{side}_id",
            "text": f"{side}_text",
            "completions": f"{side}_steps",
            "step_rewards": f"{side}_rewards",
        }
        shared = ["problem_id", "prompt"] if side == "chosen" else []
        told = content.select("row", *shared, *columns).rename(columns)
        rows = rows.join(told, left_on=side, right_on="row")
    texts = {"chosen_text": "chosen", "rejected_text": "rejected"}
    frame = rows.sort("order").drop("chosen", "rejected").rename(texts).collect()
    schema = arrow_schema("pairs")
    return frame.select(schema.names).to_arrow().cast(schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions(ContinueOptions):
    """The options of ``fsdpo-data pair``: of both styles, then of either."""

    style: str = "full"
    max_pairs: int | None = None
    top: int = 4
    aggregate: str = "mean"
    require_outcome: bool = True
    min_margin: float | None = None
    threshold: float = 0.5
    resamples: int = 8
    seed: int = 2
