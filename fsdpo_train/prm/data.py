"""The data side of the PRM: labelled steps read, tokenised, split by problem and batched."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdpo_data.core.errors import InputError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.nouns import FAILED
from fsdpo_data.core.rows import read_records
from fsdpo_data.dataset.run import CONFIG, MANIFEST
from fsdpo_data.engines.step_tokens import StepTokenizer
from fsdpo_train.config import PrmConfig

if TYPE_CHECKING:
    import datasets
    import polars as pl

#: Label of a step that is not there.
NO_STEP = -100.0

_COLUMNS = ("prompt", "completions", "labels")


@dataclass(frozen=True, slots=True)
class StepRow:
    """A solution with one label per step.

    Attributes:
        problem: What it solves: solutions of one problem are held out together.
        prompt: The rendered prompt.
        steps: The steps; joined they are the text.
        labels: One number in [0, 1] per step.
    """

    problem: str
    prompt: str
    steps: Sequence[str]
    labels: Sequence[float]


@dataclass(slots=True)
class Prepared:
    """Rows ready to train on.

    Attributes:
        train: Columns ``input_ids``, ``readouts``, ``labels``, ``length``, ``problem``, ``right``,
            ``n_prompt``.
        held_out: The same columns, of other problems; its readouts are the steps' ends.
        counts: ``solutions``, ``problems``, ``steps``, ``positive`` (the sum of the labels),
            ``lost_labels`` and ``lost_solutions`` (cut off at the context length, in part and
            whole).
    """

    train: datasets.Dataset
    held_out: datasets.Dataset
    counts: Counter[str]


def source_digest(path: Path) -> str:
    """Return what identifies the data: a sealed dataset's digest, or a file's SHA-256.

    Raises:
        InputError: if there is nothing to read at ``path``.
        SchemaError: if the dataset is not sealed, or was changed since.
    """
    if (path / MANIFEST).exists() or (path / CONFIG).exists():
        from fsdpo_data.dataset.manifest import read_manifest
        from fsdpo_data.dataset.validate import check_files

        manifest = read_manifest(path)
        check_files(path, manifest)
        return str(manifest["digest"])
    if not path.is_file() or path.suffix not in (".jsonl", ".parquet"):
        raise InputError(
            f"--data {path}: expected a sealed dataset, or a .jsonl or .parquet file with the "
            f"columns {', '.join(_COLUMNS)}."
        )
    return "sha256:" + file_sha256(path)


def step_rows(config: PrmConfig) -> Iterator[StepRow]:
    """Read the labelled solutions that ``config`` asks for.

    Raises:
        InputError: if the file cannot be read, or labels and steps disagree.
    """
    if not config.data.is_dir():
        if config.samples or config.only_mixed:
            raise InputError(
                f"--samples and --only-mixed choose from a sealed dataset; {config.data} is a file "
                "of labelled rows. Leave them out, and choose the rows themselves."
            )
        yield from _plain_rows(config.data)
        return
    files = sorted((config.data / "solutions").glob("*.parquet"))
    mixed = _mixed_problems(files) if config.only_mixed else None
    for file in files:
        for number, row in enumerate(_solutions(file, config).iter_rows(named=True), 1):
            if mixed is None or row["problem"] in mixed:
                yield _step_row(f"{file}, row {number}", row)


def _solutions(file: Path, config: PrmConfig) -> pl.DataFrame:
    """Return the labelled solutions of a shard, labels as numbers."""
    import polars as pl

    counts = pl.element().struct
    shares = pl.col("rollouts").list.eval(counts.field("n_correct") / counts.field("n"))
    outcomes = pl.col("labels").cast(pl.List(pl.Float64))
    labels = {"outcome": outcomes, "rollouts": shares}.get(
        config.labels, pl.coalesce(shares, outcomes)
    )
    frame = pl.scan_parquet(file)
    if config.samples:
        frame = frame.filter(pl.col("sample_index") < config.samples)
    return (
        frame.select(pl.col("problem_id").alias("problem"), "prompt", "completions", labels=labels)
        .filter(pl.col("labels").is_not_null() & (pl.col("completions").list.len() > 0))
        .collect()
    )


def _mixed_problems(files: Sequence[Path]) -> set[str]:
    """Return the problems that have right and wrong solutions."""
    import polars as pl

    outcome = pl.col("outcome")
    by_problem = (
        pl.scan_parquet(list(files))
        .group_by("problem_id")
        .agg(
            right=(outcome == "correct").any(),
            wrong=outcome.is_in(FAILED).any(),
        )
    )
    return set(by_problem.filter("right", "wrong").collect()["problem_id"])


def _plain_rows(file: Path) -> Iterator[StepRow]:
    """Read a file of stepwise supervision; rows of one ``problem_id`` or prompt are a problem."""
    found = False
    for record in read_records(file):
        found, place, row = True, f"{file}, row {record.row}", record.fields
        if record.broken:
            raise InputError(f"--data {place}: {record.broken}. Mend the row, or leave it out.")
        missing = [name for name in _COLUMNS if row.get(name) is None]
        if missing:
            raise InputError(
                f"--data {place}: no {' and no '.join(missing)}; it has {', '.join(row)}."
            )
        yield _step_row(place, {**row, "problem": row.get("problem_id", row["prompt"])})
    if not found:
        raise InputError(
            f"--data {file}: no rows; expected rows of prompt, completions (a list of steps) and "
            "labels (a list of booleans or numbers)."
        )


def _step_row(place: str, row: Mapping[str, Any]) -> StepRow:
    steps, labels = row["completions"], row["labels"]
    if not (isinstance(steps, list) and isinstance(labels, list)):
        raise InputError(f"--data {place}: completions and labels: expected two lists.")
    if len(steps) != len(labels):
        raise InputError(
            f"--data {place}: {len(labels)} labels for {len(steps)} steps. Expected one label per "
            "step."
        )
    for label in labels:
        if not isinstance(label, (bool, int, float)) or not 0 <= label <= 1:
            raise InputError(
                f"--data {place}: label {label!r}. Expected true, false or a number in [0, 1]."
            )
    return StepRow(str(row["problem"]), str(row["prompt"]), steps, [float(x) for x in labels])


def prepare(
    rows: Iterable[StepRow], tokenizer: Any, max_length: int, config: PrmConfig
) -> Prepared:
    """Tokenise rows and split them by problem.

    Raises:
        InputError: if nothing is left to learn from.
    """
    columns, counts = _encode(rows, StepTokenizer(tokenizer), max_length)
    if not columns["problem"]:
        raise InputError(
            f"--data {config.data}: no labelled step is left; {counts['lost_solutions']} solutions "
            f"exceed {max_length} tokens in their first step. Check the labels, or raise "
            "--max-length."
        )
    if counts["positive"] in (0, counts["steps"]):
        kind = "wrong (0)" if not counts["positive"] else "right (1)"
        raise InputError(
            f"--data {config.data}: all {counts['steps']} step labels are {kind}, so there is "
            "nothing to tell apart. Sample problems nearer to what the model can do."
        )
    held = _held_out(columns["problem"], config.held_out, config.seed)
    import datasets

    every = datasets.Dataset.from_dict(columns)
    kept = [i for i, problem in enumerate(columns["problem"]) if problem not in held]
    out = [i for i, problem in enumerate(columns["problem"]) if problem in held]
    counts["problems"] = len(set(columns["problem"]))
    counts["held_out_problems"] = len(held)
    train = every.select(kept)
    if config.readouts == "token":
        train = datasets.Dataset.from_list([_every_token(row) for row in train])
    return Prepared(train, every.select(out), counts)


def _every_token(row: dict[str, Any]) -> dict[str, Any]:
    """Give every token of a solution the label of its step."""
    labels: list[float] = []
    start = row["n_prompt"]
    for readout, label in zip(row["readouts"], row["labels"], strict=True):
        labels += [label] * (readout + 1 - start)
        start = readout + 1
    return {**row, "readouts": list(range(row["n_prompt"], start)), "labels": labels}


def _encode(
    rows: Iterable[StepRow], encoder: StepTokenizer, max_length: int
) -> tuple[dict[str, list[Any]], Counter[str]]:
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("input_ids", "readouts", "labels", "length", "problem", "right", "n_prompt")
    }
    counts: Counter[str] = Counter()
    for row in rows:
        encoded = encoder.encode(row.prompt, row.steps, end=False, max_length=max_length)
        counts["lost_labels"] += encoded.lost
        if not encoded.readouts:
            counts["lost_solutions"] += 1
            continue
        labels = list(row.labels[: len(encoded.readouts)])
        columns["input_ids"].append(encoded.ids)
        columns["readouts"].append(encoded.readouts)
        columns["labels"].append(labels)
        columns["length"].append(len(encoded.ids))
        columns["problem"].append(row.problem)
        columns["right"].append(row.labels[-1] >= 0.5)
        columns["n_prompt"].append(encoded.n_prompt)
        counts["solutions"] += 1
        counts["steps"] += len(labels)
        counts["positive"] += math.fsum(labels)  # type: ignore[assignment]
    return columns, counts


def _held_out(problems: Sequence[str], share: float, seed: int) -> set[str]:
    """Draw problems by their content, at least one and never all."""
    different = sorted(
        set(problems), key=lambda problem: hashlib.sha256(f"{seed}/{problem}".encode()).digest()
    )
    if not share or len(different) < 2:
        return set()
    return set(different[: max(1, min(round(share * len(different)), len(different) - 1))])


def class_weights(rows: datasets.Dataset) -> tuple[float, float]:
    """Return weights of (wrong, right) steps that give both the same total, and a mean of 1."""
    labels = [label for row in rows["labels"] for label in row]
    right = math.fsum(labels)
    wrong = len(labels) - right
    return len(labels) / (2 * wrong), len(labels) / (2 * right)


def collate(rows: Sequence[dict[str, Any]], pad_id: int) -> dict[str, Any]:
    """Pad rows on the right: tokens to one width, steps to one number."""
    import torch

    def padded(name: str, fill: float) -> torch.Tensor:
        width = max(len(row[name]) for row in rows)
        return torch.tensor([list(row[name]) + [fill] * (width - len(row[name])) for row in rows])

    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    ids = padded("input_ids", pad_id)
    return {
        "input_ids": ids,
        "attention_mask": (torch.arange(ids.shape[1]) < lengths[:, None]).long(),
        "readouts": padded("readouts", 0),
        "labels": padded("labels", NO_STEP).float(),
    }
