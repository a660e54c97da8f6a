"""A small dataset that has everything: problems, solutions with rewards, pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from helpers import fixed_sampler, problem_set, sample_settings, small_build

from fsdpo_data.core.identity import digest
from fsdpo_data.core.progress import LineProgress
from fsdpo_data.dataset.derive import derive_dataset
from fsdpo_data.dataset.manifest import AnyRecord, Manifest
from fsdpo_data.dataset.schema import arrow_schema
from fsdpo_data.dataset.stage import DatasetDraft, Stage
from fsdpo_data.pairs.best_worst import PairSpec
from fsdpo_data.stages.pair import PairStage

#: Two right and two wrong solutions.
SOLUTIONS = tuple(
    f"Step 1: Way {index}, 20 + 22 = {value}.\nStep 2: So it is {value}. The answer is: {value}"
    for index, value in enumerate((42, 42, 43, 44))
)


class MadeUpRewards(Stage):
    """A stage that rewards each step by a digest of the step: arbitrary, and always the same.

    Args:
        salt: Other salts give other rewards.
        command: Words of the command line that runs the stage.
    """

    name = "score"
    writes = ("step_rewards",)

    def __init__(self, salt: str = "", command: Sequence[str] = ()) -> None:
        self.salt = salt
        self._command = command

    @property
    def command(self) -> Sequence[str]:
        return self._command

    def options(self) -> dict[str, Any]:
        prm = {"name": "made-up-prm", "revision": f"sha256:{self.salt or 0}"}
        return {"prm": prm, "engine": {"name": "none", "dtype": "float32"}}

    def check(self, source: Path, manifest: Manifest) -> None:
        pass

    def run(self, draft: DatasetDraft) -> AnyRecord:
        draft.rewrite_config("solutions", "score", self._add_rewards)
        draft.update_pairs()
        return self.make_record()

    def _add_rewards(self, table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        for row in rows:
            row["step_rewards"] = [self._reward(step) for step in row["completions"]]
        return pa.Table.from_pylist(rows, schema=arrow_schema("solutions"))

    def _reward(self, step: str) -> float:
        return int(digest("reward", self.salt, step)[:4], 16) / 0xFFFF


def paired_dataset(
    folder: Path, problems: int = 3, salt: str = "", metadata: Mapping[str, Any] | None = None
) -> Path:
    """Build, score and pair under ``folder``; return the dataset's directory.

    Args:
        folder: Folder of the datasets.
        problems: Number of problems.
        salt: Other salts give other rewards.
        metadata: Metadata of all problems.
    """
    source = problem_set(problems)
    source.problems = [replace(problem, metadata=metadata or {}) for problem in source.problems]
    built, out = folder / "built", folder / "pairs"
    small_build(
        built,
        source,
        sampling=sample_settings(n=4),
        make_sampler=lambda: fixed_sampler(source, SOLUTIONS),
    )
    stages = [
        MadeUpRewards(salt),
        PairStage(pair_spec=PairSpec(top=2)),
    ]
    derive_dataset(built, out, stages, progress=LineProgress())
    return out
