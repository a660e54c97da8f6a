"""A pool: the same samples of the same problems, scored by one or several reward models.

Array suffixes: ``P`` problems, ``M`` samples of a problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsdpo_bench.metrics.answer_classes import (
    agreeing_answers,
    answer_classes,
    voting_answers,
)
from fsdpo_data.core.errors import InputError
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.dataset.manifest import read_manifest
from fsdpo_data.dataset.schema import scan_rows
from fsdpo_data.dataset.validate import check_files, explain_damage
from fsdpo_data.stages.score import RewardRecord, ScoreRecord
from fsdpo_data.steps.rewards import aggregate_expr

_UNUSABLE_OUTCOMES = ("gold_unparsed", "ungraded")  #: Outcomes that say nothing about a sample.
_SAMPLE_COLUMNS = ("problem_id", "sample_index", "outcome", "answer")


@dataclass(frozen=True, slots=True)
class ScoredPool:
    """The rewards of one reward model for the samples of a pool."""

    name: str  #: Name of the reward model.
    root: Path  #: The dataset.
    #: Aggregated rewards by aggregate; NaN for samples without rewards.
    rewards_PM: Mapping[str, np.ndarray]
    are_probabilities: bool  #: Whether the step rewards are probabilities.


@dataclass(frozen=True, slots=True)
class Pool:
    """The samples of each problem, with their answers and outcomes."""

    problem_ids: Sequence[str]  #: Ids of the problems.
    #: Class of equivalent answers of each sample within its problem; ``NO_ANSWER`` for none.
    class_PM: np.ndarray
    correct_PM: np.ndarray  #: Whether each sample is correct.
    models: Sequence[ScoredPool]  #: The reward models.
    left_out: Mapping[str, int]  #: Number of problems that are left out, by reason.

    @property
    def n_samples(self) -> int:
        """Number of samples per problem."""
        return int(self.correct_PM.shape[1])


def load_pool(
    roots: Sequence[Path], aggregates: Sequence[str], questions: frozenset[str] | None = None
) -> Pool:
    """Read datasets that have the same samples and the step rewards of different models.

    A problem counts if it has the most frequent number of samples; of more samples, the first ones
    count. Undecided answers and timeouts count as wrong.

    Args:
        roots: The datasets.
        aggregates: Names of aggregates of step rewards.
        questions: The questions that count; None for all.

    Raises:
        InputError: if a dataset has no step rewards or other samples than the first one, or if no
            problem remains.
        SchemaError: if a dataset is not sealed, or its files were changed.
    """
    frames = [_read_samples(root, aggregates, questions) for root in roots]
    for root, frame in zip(roots, frames, strict=True):
        if not frame.select(_SAMPLE_COLUMNS).equals(frames[0].select(_SAMPLE_COLUMNS)):
            raise InputError(
                f"{root} has other samples or verdicts than {roots[0]}. Give datasets of one set "
                "of samples, graded by one grader.",
                field="data",
            )
    frames, left_out = _select_problems(frames)
    problem_ids = frames[0]["problem_id"].unique(maintain_order=True).to_list()
    if not problem_ids:
        raise InputError(
            f"{roots[0]} has no graded problem to measure. Give another dataset, or other "
            "problems.",
            field="data",
        )
    shape = (len(problem_ids), -1)
    answers = voting_answers(frames[0]["answer"].to_list(), frames[0]["response"].to_list())
    n_samples = len(answers) // len(problem_ids)
    parts = [answers[start : start + n_samples] for start in range(0, len(answers), n_samples)]
    class_PM = np.array([answer_classes(part, agreeing_answers(part)) for part in parts])
    correct_PM = (frames[0]["outcome"] == "correct").to_numpy().reshape(shape)
    names = _model_names(roots)
    models = [
        ScoredPool(
            name=name,
            root=root,
            rewards_PM={
                aggregate: frame[aggregate].fill_null(float("nan")).to_numpy().reshape(shape)
                for aggregate in aggregates
            },
            are_probabilities=read_manifest(root).rewards_are_probabilities,
        )
        for name, root, frame in zip(names, roots, frames, strict=True)
    ]
    return Pool(problem_ids, class_PM, correct_PM, models, left_out)


def _read_samples(
    root: Path, aggregates: Sequence[str], questions: frozenset[str] | None
) -> pl.DataFrame:
    """Read the samples of a dataset with their aggregated rewards, problem by problem."""
    manifest = read_manifest(root)
    check_files(root, [*manifest.config_files("problems"), *manifest.config_files("solutions")])
    scored = manifest.find_writer("step_rewards", RewardRecord)
    if scored is None or not scored.counts.scored:
        raise InputError(
            f"{root} has no step rewards. Score it with fsdpo-data score, or import the scores.",
            field="data",
        )
    with explain_damage(root):
        solutions = scan_rows("solutions", manifest.config_paths(root, "solutions"))
        if questions is not None:
            problems = scan_rows("problems", manifest.config_paths(root, "problems"))
            key = pl.col("question").str.replace_all(r"\s+", "")
            chosen = problems.filter(key.is_in(list(questions))).select("problem_id")
            solutions = solutions.join(chosen, on="problem_id", how="semi")
        rows = solutions.select(
            *_SAMPLE_COLUMNS,
            pl.col("completions").list.join("").alias("response"),
            *(aggregate_expr("step_rewards", name).alias(name) for name in aggregates),
        )
        return collect_rows(rows).sort("problem_id", "sample_index")


def _select_problems(frames: Sequence[pl.DataFrame]) -> tuple[list[pl.DataFrame], dict[str, int]]:
    """Keep the problems with enough graded samples, and as many samples of each."""
    sizes = (
        frames[0]
        .group_by("problem_id")
        .agg(
            n=pl.len(),
            is_unusable=pl.col("outcome").is_in(_UNUSABLE_OUTCOMES).any(),
        )
    )
    n_samples = Counter(sizes["n"].to_list()).most_common(1)[0][0] if len(sizes) else 0
    is_short = pl.col("n") < n_samples
    left_out = {
        "fewer samples": sizes.filter(is_short).height,
        "ungraded": sizes.filter(~is_short & pl.col("is_unusable")).height,
    }
    kept_ids = sizes.filter(~is_short & ~pl.col("is_unusable")).select("problem_id")
    is_first = pl.int_range(pl.len()).over("problem_id") < n_samples
    kept_frames = [
        frame.filter(is_first).join(kept_ids, on="problem_id", how="semi", maintain_order="left")
        for frame in frames
    ]
    return kept_frames, {reason: count for reason, count in left_out.items() if count}


def _model_names(roots: Sequence[Path]) -> list[str]:
    """Return the names of the reward models; the names of the datasets if they are not unique."""
    names: list[str] = []
    for root in roots:
        score = read_manifest(root).find("score", ScoreRecord)
        names.append(score.options.prm.name if score else root.name)
    return names if len(set(names)) == len(names) else [str(root) for root in roots]
