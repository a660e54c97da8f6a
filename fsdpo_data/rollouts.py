"""Monte-Carlo labels: how often the model gets the answer right, continuing from each step.

The unit that survives a stop is the beginning of a solution with its N continuations. Beginnings
that several samples share are continued once. A finished solution needs no continuation: its
outcome is its label, so the last step has counts of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from fsdpo_data.annotate import get_grader
from fsdpo_data.answers import Grader
from fsdpo_data.build import Progress
from fsdpo_data.derive import Draft
from fsdpo_data.errors import InputError
from fsdpo_data.grader_pool import WORTH_A_POOL, GraderPool
from fsdpo_data.identity import ID_VERSION, ModelRef, digest
from fsdpo_data.manifest import Manifest
from fsdpo_data.regrade import gold_answers
from fsdpo_data.samplers import Sampler, SamplingSpec
from fsdpo_data.schema import arrow_schema
from fsdpo_data.store import RunDir

if TYPE_CHECKING:
    import pyarrow as pa

#: Folder of the continuations inside the new dataset's directory.
FOLDER = "rollouts"

#: Right and graded continuations.
Counts = tuple[int, int]


class LabelStage:
    """Writes ``rollouts``: counts (n, n_correct) for every step of every labelled solution.

    Args:
        model: The model that continues, as resolved.
        sampling: How; ``n`` is the number of continuations (the paper's N).
        engine: What runs it, and in which precision; part of the dataset's spec.
        make_sampler: Called only if continuations are owed: loading a model is slow.
        batch: Beginnings per durable batch.
        workers: Processes that grade; the cores at hand if None.
    """

    name = "label"

    def __init__(
        self,
        model: ModelRef,
        sampling: SamplingSpec,
        engine: Mapping[str, str],
        make_sampler: Callable[[], Sampler],
        *,
        batch: int = 256,
        workers: int | None = None,
    ) -> None:
        self._model = model
        self._sampling = sampling
        self._engine = engine
        self._make_sampler = make_sampler
        self._batch = batch
        self._workers = workers

    def spec(self) -> Mapping[str, Any]:
        """Return who continues, and how."""
        return {
            "model": asdict(self._model),
            "sampling": asdict(self._sampling),
            "engine": dict(self._engine),
        }

    def check(self, source: Path, manifest: Manifest) -> None:
        """Refuse a dataset without labelled solutions of two steps or more."""
        import polars as pl

        steps = pl.col("completions").list.len()
        solutions = pl.scan_parquet(source / "solutions" / "*.parquet")
        worth = solutions.filter(pl.col("labels").is_not_null() & (steps > 1))
        if not worth.select(pl.len()).collect().item():
            raise InputError(
                f"{source} has no labelled solution of two steps or more: nothing can be continued."
                " Outcome labels are all it can have."
            )

    def run(self, draft: Draft) -> None:
        """Continue every beginning that is owed, then count and write."""
        golds = gold_answers(draft.files("problems"))
        config = {"sampling": asdict(self._sampling), "model": asdict(self._model)}
        # The draft's directory is claimed: whatever is in the folder is of the same spec.
        with RunDir.open(draft.root / FOLDER, config, resume=True) as run:
            self._sample_owed(run, draft)
            grader = partial(get_grader, str(draft.manifest["spec"]["grader"]))
            pairs = len(run.spans) * self._sampling.n
            if pairs < WORTH_A_POOL or self._workers == 1:
                self._write(draft, run, golds, grader())
            else:
                with GraderPool(grader, self._workers) as pool:
                    self._write(draft, run, golds, pool)
            draft.manifest["rollouts"] = self._statistics(draft, run)
        cost, spent = draft.manifest["cost"], draft.manifest["rollouts"]
        cost["tokens"] += spent["tokens"]
        cost["seconds"] = round(cost["seconds"] + spent["seconds"], 3)

    def _sample_owed(self, run: RunDir, draft: Draft) -> None:
        files = draft.files("solutions")
        wanted = {key for file in files for key, _ in beginnings(file)}
        owed = len(wanted - run.spans.keys())
        if not owed:
            return
        draft.progress.phase("load", 1)
        sampler = self._make_sampler()
        draft.progress.phase("continue", len(wanted), done=len(wanted) - owed)
        chunk: dict[str, str] = {}
        for key, prompt in (each for file in files for each in beginnings(file)):
            if key not in run.spans:
                chunk[key] = prompt
            if len(chunk) == self._batch:
                self._sample(run, sampler, chunk, draft.progress)
                chunk = {}
        if chunk:
            self._sample(run, sampler, chunk, draft.progress)

    def _sample(
        self, run: RunDir, sampler: Sampler, chunk: Mapping[str, str], progress: Progress
    ) -> None:
        results = sampler.sample(list(chunk.values()), self._sampling)
        run.append(
            [
                (key, prompt, done)
                for (key, prompt), done in zip(chunk.items(), results, strict=True)
            ]
        )
        tokens = sum(each.n_tokens for completions in results for each in completions)
        progress.advance(len(chunk), tokens)

    def _write(self, draft: Draft, run: RunDir, golds: Mapping[str, str], grader: Grader) -> None:
        counted = partial(with_rollouts, run, golds, grader)
        draft.rewrite("solutions", "count", counted)

    def _statistics(self, draft: Draft, run: RunDir) -> dict[str, Any]:
        """Say what the labels are like and what they cost beside the free ones of N = 1."""
        tokens, seconds = 0, 0.0
        with run.completions.open("rb") as file:
            for line in file:
                for each in orjson.loads(line)["completions"]:
                    tokens += each["n_tokens"]
                    seconds += each["seconds"]
        return {
            "n": self._sampling.n,
            **_agreement(draft.files("solutions")),
            "beginnings": len(run.spans),
            "continuations": len(run.spans) * self._sampling.n,
            "tokens": tokens,
            "seconds": round(seconds, 3),
            "tokens_of_outcomes": draft.manifest["cost"]["tokens"],
        }


def _agreement(files: list[Path]) -> dict[str, Any]:
    """Return the steps counted, and on how many the rounded estimate is not the outcome label."""
    import polars as pl

    solutions = pl.scan_parquet(files).filter(pl.col("rollouts").is_not_null())
    steps = solutions.select("labels", "rollouts").explode("labels", "rollouts").drop_nulls()
    counts = pl.col("rollouts").struct
    share = counts.field("n_correct") / counts.field("n")
    found = steps.select(
        steps=pl.len(),
        mean=share.mean(),
        disagree=((share >= 0.5) != pl.col("labels")).sum(),
    ).collect()
    row = found.row(0, named=True)
    return {**row, "mean": None if row["mean"] is None else round(row["mean"], 4)}


def beginnings(file: Path) -> Iterator[tuple[str, str]]:
    """Yield (id, text to continue) for every step of a file's solutions that is not the last."""
    import pyarrow.parquet as pq

    columns = ["prompt", "completions", "labels"]
    for batch in pq.ParquetFile(file).iter_batches(2048, columns=columns):
        for row in batch.to_pylist():
            if row["labels"] is not None:
                yield from _beginnings(row)


def _beginnings(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    text = row["prompt"]
    for step in row["completions"][:-1]:
        text += step
        yield digest("beginning", ID_VERSION, text), text


def with_rollouts(
    run: RunDir, golds: Mapping[str, str], grader: Grader, table: pa.Table
) -> pa.Table:
    """Return a file's solutions with the counts of their steps.

    Args:
        run: Holds the continuations.
        golds: Gold answers by problem id.
        grader: Judges a beginning together with its continuation.
        table: The rows of ``solutions``.
    """
    import pyarrow as pa

    rows = table.to_pylist()
    asked = {key: row for row in rows if row["labels"] is not None for key, _ in _beginnings(row)}
    counts = dict(_counts(run, golds, grader, asked))
    for row in rows:
        if row["labels"] is None:
            continue
        steps = [counts[key] for key, _ in _beginnings(row)]
        last = (int(row["outcome"] == "correct"), 1)
        # Where no continuation of some step could be judged, those of the others would mislead.
        if all(n for _, n in steps):
            every = [*steps, last] if row["completions"] else []
            row["rollouts"] = [{"n": n, "n_correct": correct} for correct, n in every]
    return pa.Table.from_pylist(rows, schema=arrow_schema("solutions"))


def _counts(
    run: RunDir, golds: Mapping[str, str], grader: Grader, asked: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, Counts]]:
    """Grade the continuations of each beginning; count the right ones and those judged."""
    keys = list(asked)
    pairs: list[tuple[str, str]] = []
    sizes = []
    with run.completions.open("rb") as file:
        for key in keys:
            start, length = run.spans[key]
            file.seek(start)
            record = orjson.loads(file.read(length))
            gold, prompt = golds[asked[key]["problem_id"]], asked[key]["prompt"]
            beginning = record["prompt"][len(prompt) :]
            pairs += [(gold, beginning + each["text"]) for each in record["completions"]]
            sizes.append(len(record["completions"]))
    verdicts = iter(grader.grade(pairs))
    for key, size in zip(keys, sizes, strict=True):
        outcomes = [next(verdicts).status for _ in range(size)]
        judged = [each for each in outcomes if each not in ("gold_unparsed", "timed_out")]
        yield key, (judged.count("correct"), len(judged))


def rollout_sampling(manifest: Manifest, n: int, **changes: Any) -> SamplingSpec:
    """Return how continuations are sampled: as the solutions were, but for what is changed.

    Args:
        manifest: Of the dataset to label.
        n: Continuations per beginning.
        changes: Fields of :class:`SamplingSpec`; those that are None are left as they were.
    """
    sampled = manifest["spec"]["sampling"]
    spec = SamplingSpec(**{**sampled, "stop": tuple(sampled["stop"]), "n": n})
    return replace(spec, **{key: value for key, value in changes.items() if value is not None})


def check_rollouts(n: int) -> int:
    """Return ``n``.

    Raises:
        InputError: if it is less than 2: one rollout is the outcome, which costs nothing.
    """
    if n < 2:
        raise InputError(
            f"--rollouts {n}: expected at least 2. With one, the label is the outcome, which "
            "`fsdpo-data build` has written already."
        )
    return n


def cost_line(rollouts: Mapping[str, Any]) -> str:
    """Return what the labels cost, for a person."""
    ratio = rollouts["tokens"] / max(1, rollouts["tokens_of_outcomes"])
    return (
        f"N={rollouts['n']}: {rollouts['continuations']:,} continuations of "
        f"{rollouts['beginnings']:,} beginnings, {rollouts['tokens']:,} tokens, {ratio:.1f} times "
        "what sampling the solutions took; the outcome labels of N=1 took no more"
    )
