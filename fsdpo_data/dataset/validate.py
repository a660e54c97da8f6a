"""Check a dataset against the invariants of the schema; done before every seal and on demand."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fsdpo_data.core.entities import GRADED_OUTCOMES, OUTCOMES
from fsdpo_data.core.errors import SchemaError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.lazy import pa, pl, pq
from fsdpo_data.core.row_files import find_duplicates, scan_parquet, summarize_list
from fsdpo_data.dataset import schema
from fsdpo_data.dataset.manifest import Manifest, read_manifest
from fsdpo_data.dataset.manifest_sections import FileEntry
from fsdpo_data.dataset.schema import CONFIGS, SCHEMA_VERSION
from fsdpo_data.pairs.checks import find_violations


def validate(root: Path) -> Manifest:
    """Check every file, row and count of a sealed dataset; return its manifest.

    Raises:
        SchemaError: listing every broken invariant with examples, or naming what cannot be read.
    """
    manifest = read_manifest(root)
    check_files(root, manifest.files)
    check_invariants(root, manifest)
    return manifest


def check_files(root: Path, files: Iterable[FileEntry]) -> None:
    """Check that every file is there as it was sealed.

    Raises:
        SchemaError: naming every file that is missing or changed.
    """
    broken = []
    for entry in files:
        file = root / entry.path
        if not file.is_file():
            broken.append(f"{entry.path} is missing")
        elif file_sha256(file) != entry.sha256:
            broken.append(f"{entry.path} was changed since it was sealed (SHA-256 differs)")
    if broken:
        raise _failure(root, broken)


def check_invariants(root: Path, manifest: Manifest) -> None:
    """Check the rows against the schema and the manifest's counts.

    Raises:
        SchemaError: listing every broken invariant.
    """
    broken = list(_files(root, manifest))
    if not broken:  # with other columns the row checks would only say so again
        solutions = scan_parquet(manifest.config_paths(root, "solutions"))
        broken = list(_ids(scan_parquet(manifest.config_paths(root, "problems")), solutions))
        broken += _rows(solutions, manifest.spec.rewards_are_probabilities)
        broken += _counts(root, manifest)
    if not broken and manifest.spec.pair and manifest.pairs:
        pairs, rows = (manifest.config_paths(root, config) for config in ("pairs", "solutions"))
        broken = list(
            find_violations(pairs, rows, manifest.spec.pair.to_dict(), manifest.pairs.to_dict())
        )
    if broken:
        raise _failure(root, broken)


def _failure(root: Path, broken: list[str]) -> SchemaError:
    return SchemaError(
        f"{root} is not a valid dataset:\n"
        + "".join(f"  {line}\n" for line in broken)
        + "Build it again, or fetch it again from where it came."
    )


def _files(root: Path, manifest: Manifest) -> Iterator[str]:
    """Columns, types and version of every file, from its footer; and its texts."""
    for config in CONFIGS:
        expected: pa.Schema | None = None
        for entry in manifest.config_files(config):
            try:
                found = pq.read_schema(root / entry.path)
                version = (found.metadata or {}).get(schema.VERSION_KEY.encode(), b"none").decode()
                if version != str(SCHEMA_VERSION):
                    yield f"{entry.path} is of schema version {version}, not {SCHEMA_VERSION}"
                expected = expected or _expected_schema(config, found)
                if not found.equals(expected):
                    yield f"{entry.path} has other columns: {_difference(found, expected)}"
                elif config == "solutions" and _text_sha256(root / entry.path) != entry.text_sha256:
                    yield f"{entry.path}: the steps do not join to the sampled texts"
            except (OSError, pa.ArrowException) as error:
                yield f"{entry.path} cannot be read as parquet: {error}"


def _expected_schema(config: str, found: pa.Schema) -> pa.Schema:
    """Return the columns of a config, which all its files have; an older one's lack the same."""
    lacks = () if set(schema.OPTIONAL_COLUMNS) & set(found.names) else schema.OPTIONAL_COLUMNS
    return pa.schema([each for each in schema.arrow_schema(config) if each.name not in lacks])


def _text_sha256(file: Path) -> str:
    """Hash the joined steps as the texts were hashed before segmentation."""
    texts = hashlib.sha256()
    for batch in pq.ParquetFile(file).iter_batches(2048, columns=["completions"]):
        for steps in batch.column(0).to_pylist():
            texts.update(schema.digest_bytes("".join(steps or ())))
    return texts.hexdigest()


def _difference(found: Any, expected: Any) -> str:
    have = {field.name: str(field.type) for field in found}
    want = {field.name: str(field.type) for field in expected}
    return (
        "; ".join(
            f"{name} is {have.get(name, 'missing')}, expected {want.get(name, 'no such column')}"
            for name in dict.fromkeys([*want, *have])
            if have.get(name) != want.get(name)
        )
        or f"order {list(have)}, expected {list(want)}"
    )


def _ids(problem_rows: pl.LazyFrame, solution_rows: pl.LazyFrame) -> Iterator[str]:
    """No duplicate ids, and every solution belongs to a problem."""
    for rows, column in ((problem_rows, "problem_id"), (solution_rows, "solution_id")):
        ids = find_duplicates(rows, [column], column)
        if ids:
            yield f"{len(ids)} {column}s occur more than once: {summarize_list(ids)}"
    orphans = solution_rows.join(problem_rows, on="problem_id", how="anti").select("solution_id")
    ids = orphans.collect(engine="streaming")["solution_id"].to_list()
    if ids:
        yield f"{len(ids)} solutions belong to no problem: {summarize_list(ids)}"


def _rows(solutions: pl.LazyFrame, probabilities: bool) -> Iterator[str]:
    """What must hold in each row of ``solutions``, whose rewards may be ``probabilities``."""
    steps, labels, rewards = pl.col("completions"), pl.col("labels"), pl.col("step_rewards")
    outcome, rollouts, each = pl.col("outcome"), pl.col("rollouts"), pl.element()
    n, n_correct = (each.struct.field(name) for name in ("n", "n_correct"))
    number = each.is_finite() & (each.is_between(0, 1) | (not probabilities))

    def has(column: pl.Expr, wrong: pl.Expr) -> pl.Expr:
        return column.list.eval(wrong).list.any()

    unlabelled, contradicted = (
        ~outcome.is_in(GRADED_OUTCOMES),
        has(labels, each) != (outcome == "correct"),
    )
    rules = {
        "have an outcome that is not one of " + ", ".join(OUTCOMES): ~outcome.is_in(OUTCOMES),
        "have no steps column": steps.is_null(),
        "hold a blank step": has(steps, each.str.strip_chars().str.len_bytes() == 0),
        "have another number of labels than of steps": labels.list.len() != steps.list.len(),
        "are labelled though the failure was not the model's, or the other way round": (
            rollouts.is_null() & (labels.is_null() != unlabelled)
        ),
        "have outcome labels that contradict the outcome": (
            rollouts.is_null() & contradicted & (steps.list.len() > 0)
        ),
        "have another number of rollout counts than of steps": (
            rollouts.list.len() != steps.list.len()
        ),
        "have rollout counts of nothing": has(rollouts, n < 1),
        "have rollout counts with more correct than run": has(rollouts, n_correct > n),
        "have another number of rewards than of steps": rewards.list.len() != steps.list.len(),
        f"have a reward that is not a number{' in [0, 1]' if probabilities else ''}": (
            has(rewards, ~number.fill_null(False))
        ),
        "have a finish_reason that is not stop or length": (
            ~pl.col("finish_reason").is_in(["stop", "length"])
        ),
    }
    counts = solutions.select(**{rule: broken.sum() for rule, broken in rules.items()})
    for rule, count in counts.collect(engine="streaming").row(0, named=True).items():
        if count:
            ids = solutions.filter(rules[rule]).select("solution_id").collect(engine="streaming")
            yield f"{count} solutions {rule}: {summarize_list(ids['solution_id'].to_list())}"


def _counts(root: Path, manifest: Manifest) -> Iterator[str]:
    """The manifest's counts are those of the rows."""
    for config in CONFIGS:
        files, told = manifest.config_paths(root, config), getattr(manifest.rows, config)
        rows = scan_parquet(files).select(pl.len()).collect().item() if files else 0
        if rows != told:
            yield f"{config} has {rows} rows, the manifest says {told}"
    counted = (
        scan_parquet(manifest.config_paths(root, "solutions")).group_by("outcome").len().collect()
    )
    outcomes = dict(zip(counted["outcome"], counted["len"], strict=True))
    if outcomes != manifest.outcomes:
        yield f"outcomes are {outcomes}, the manifest says {manifest.outcomes}"
