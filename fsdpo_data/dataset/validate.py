"""Check a dataset against the invariants of the schema, before every seal and on demand."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fsdpo_data.core.entities import (
    GRADED_OUTCOMES,
    MODEL_FAILURES,
    NO_VERDICT,
    OUTCOMES,
    UNGRADED,
)
from fsdpo_data.core.errors import FsdpoError, SchemaError
from fsdpo_data.core.identity import file_sha256
from fsdpo_data.core.lazy import pa, pl
from fsdpo_data.core.parquet_files import collect_rows, open_parquet, read_table_batches
from fsdpo_data.core.row_files import find_duplicates, summarize_list
from fsdpo_data.dataset import schema
from fsdpo_data.dataset.manifest import FileEntry, Manifest, read_manifest
from fsdpo_data.dataset.schema import CONFIGS, SCHEMA_VERSION, scan_rows
from fsdpo_data.dataset.stage_records import PAIR_STAGE, SAMPLE_STAGE, PairRecord, SampleRecord
from fsdpo_data.dataset.stage_registry import known_stages
from fsdpo_data.pairs.checks import find_violations, pair_violations


def validate(root: Path) -> Manifest:
    """Check every file, row and count of a sealed dataset; return its manifest.

    Raises:
        SchemaError: listing every violated invariant with examples, or naming an unreadable file.
    """
    manifest = read_manifest(root)
    for _ in known_stages(manifest):
        pass  # each record is validated when it is read
    check_files(root, manifest.files)
    _check_no_other_files(root, manifest.files)
    check_invariants(root, manifest)
    return manifest


@contextmanager
def explain_damage(root: Path) -> Iterator[None]:
    """If the block fails on a dataset whose rows break an invariant, name the invariant.

    Digests show damage on a disk, but not rows that were damaged before they were sealed. The
    complete check of the rows takes long, so it runs only after a failure.

    Args:
        root: The dataset that the block reads.

    Raises:
        SchemaError: instead of any other exception, if the dataset is not valid.
    """
    try:
        yield
    except (FsdpoError, OSError):
        raise
    except Exception:
        validate(root)
        raise


def check_files(root: Path, files: Iterable[FileEntry]) -> None:
    """Check that every file exists and has the SHA-256 in the manifest.

    Raises:
        SchemaError: naming every file that is missing or changed.
    """
    violations = []
    is_edited = False
    for entry in files:
        file = root / entry.path
        if not file.is_file():
            violations.append(f"{entry.path} is missing")
        elif file_sha256(file) != entry.sha256:
            violations.append(f"{entry.path} was changed since it was sealed (SHA-256 differs)")
            is_edited = True
    if violations:
        raise _invalid_dataset_error(root, violations, is_edited=is_edited)


def _check_no_other_files(root: Path, files: Iterable[FileEntry]) -> None:
    """Check that the folders of the configs have no file that the manifest does not list.

    ``datasets`` and patterns such as ``solutions/*.parquet`` would read its rows, too.

    Raises:
        SchemaError: naming every other file.
    """
    paths = {root / entry.path for entry in files}
    violations = [
        f"{file.relative_to(root)} is not in the manifest: move it out of the dataset"
        for config in CONFIGS
        for file in sorted((root / config).rglob("*.parquet"))
        if file not in paths
    ]
    if violations:
        raise _invalid_dataset_error(root, violations, is_edited=True)


def check_invariants(root: Path, manifest: Manifest) -> None:
    """Check the rows against the schema and the manifest's counts.

    Raises:
        SchemaError: listing every violated invariant.
    """
    violations = list(_find_file_violations(root, manifest))
    if not violations:  # the row checks need the right columns
        problems = scan_rows("problems", manifest.config_paths(root, "problems"))
        solutions = scan_rows("solutions", manifest.config_paths(root, "solutions"))
        violations += _find_id_violations(problems, solutions)
        violations += _find_scattered_problems(manifest.config_paths(root, "solutions"))
        violations += _find_metadata_violations(problems)
        violations += _find_row_violations(solutions, manifest)
    # The pairs of a plug-in have their own rules.
    record = manifest.find(PAIR_STAGE, PairRecord)
    if not violations and record is not None:
        violations += find_violations(
            manifest.config_paths(root, "pairs"),
            manifest.config_paths(root, "solutions"),
            record.options,
        )
    if violations:
        raise _invalid_dataset_error(root, violations)


def _invalid_dataset_error(
    root: Path, violations: Sequence[str], *, is_edited: bool = False
) -> SchemaError:
    """Return the error for violated invariants.

    Args:
        root: Directory of the dataset.
        violations: The violations.
        is_edited: Whether somebody may have edited the files.
    """
    edit_advice = ""
    if is_edited:
        edit_advice = f" If you edited it, seal the edit: `fsdpo-data seal {root} --out NEW`."
    return SchemaError(
        f"{root} is not a valid dataset:\n"
        + "".join(f"  {violation}\n" for violation in violations)
        + f"Build the dataset again, or download it again.{edit_advice}"
    )


def _find_file_violations(root: Path, manifest: Manifest) -> Iterator[str]:
    """Yield the files with another version, other columns or other texts than expected."""
    sparse_columns = ("rollouts",) if manifest.labels_are_searched else ()
    for config in CONFIGS:
        first_schema = None
        for entry in manifest.config_files(config):
            file = root / entry.path
            try:
                parquet_file = open_parquet(file)
                file_schema = parquet_file.schema_arrow
                metadata = file_schema.metadata or {}
                version = metadata.get(schema.VERSION_KEY.encode(), b"none").decode()
                if not schema.is_readable(version):
                    yield f"{entry.path} is of schema version {version}, not {SCHEMA_VERSION}"
                problems = schema.column_problems(config, file_schema)
                problems += _column_differences(file_schema, first_schema or file_schema)
                if problems:
                    yield f"{entry.path} has other columns: {'; '.join(problems)}"
                    continue
                first_schema = first_schema or file_schema
                n_rows = parquet_file.metadata.num_rows
                if n_rows != entry.rows:
                    yield f"{entry.path} has {n_rows} rows, the manifest says {entry.rows}"
                null_columns = _columns_with_nulls(config, file, sparse_columns)
                if null_columns:
                    yield f"{entry.path} has nulls in {', '.join(null_columns)}"
                elif config == "solutions" and schema.read_text_digest(file) != entry.text_sha256:
                    yield f"{entry.path}: the steps do not join to the sampled texts"
            except (FsdpoError, OSError) as error:
                yield str(error)


def _columns_with_nulls(config: str, file: Path, sparse_columns: Container[str]) -> list[str]:
    """Read a file completely; return the columns with nulls where none are allowed.

    The lists of ``sparse_columns`` may contain nulls.
    """
    filled_columns = set(schema.arrow_schema(config).names) - schema.nullable_columns(config)
    dense_columns = [
        name
        for name in schema.NON_NULL_LISTS
        if name in schema.arrow_schema(config).names and name not in sparse_columns
    ]
    names = set()
    for batch in read_table_batches(file):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            has_nulls = column.null_count and name in filled_columns
            if has_nulls or (name in dense_columns and column.flatten().null_count):
                names.add(name)
    return sorted(names)


def _column_differences(file_schema: pa.Schema, first_schema: pa.Schema) -> list[str]:
    """Return how the columns of a file differ from those of the first file of its config."""
    columns, first_columns = (
        {column.name: str(column.type) for column in item} for item in (file_schema, first_schema)
    )
    return [
        f"{name} is {columns.get(name, 'missing')}, and {first_columns.get(name, 'missing')} in "
        "the first file"
        for name in {**first_columns, **columns}
        if columns.get(name) != first_columns.get(name)
    ]


def _find_id_violations(problems: pl.LazyFrame, solutions: pl.LazyFrame) -> Iterator[str]:
    """Yield duplicate ids, and solutions that belong to no problem."""
    for rows, column in ((problems, "problem_id"), (solutions, "solution_id")):
        duplicate_ids = find_duplicates(rows, [column], column)
        if duplicate_ids:
            yield (
                f"{len(duplicate_ids)} {column}s occur more than once: "
                f"{summarize_list(duplicate_ids)}"
            )
    orphans = solutions.join(problems, on="problem_id", how="anti").select("solution_id")
    orphan_ids = collect_rows(orphans, streaming=True)["solution_id"].to_list()
    if orphan_ids:
        yield f"{len(orphan_ids)} solutions belong to no problem: {summarize_list(orphan_ids)}"


def _find_scattered_problems(files: Sequence[Path]) -> Iterator[str]:
    """Yield a line if the solutions of a problem are in two files, or not one after another.

    Grading, pairing and statistics take the solutions of a problem together, file by file.
    """
    problem_id = pl.col("problem_id")
    starts = problem_id.ne_missing(problem_id.shift()).sum()
    n_starts = sum(
        collect_rows(scan_rows("solutions", [file]).select(starts)).item() for file in files
    )
    n_problems = collect_rows(scan_rows("solutions", files).select(problem_id.n_unique())).item()
    if n_starts != n_problems:
        yield (
            "the solutions of a problem are not one after another in one file: sort all solutions "
            "by problem_id, and write them to one file"
        )


def _find_metadata_violations(problems: pl.LazyFrame) -> Iterator[str]:
    """Yield the first problem whose metadata is not a JSON object that grading can read."""
    rows = collect_rows(problems.select("problem_id", "metadata"))
    for problem_id, metadata in rows.iter_rows():
        try:
            schema.parse_metadata(problem_id, metadata)
        except SchemaError as error:
            yield str(error)
            return


def _find_row_violations(solutions: pl.LazyFrame, manifest: Manifest) -> Iterator[str]:
    """Yield the rules that rows of ``solutions`` violate, with examples."""
    is_searched = manifest.get(SAMPLE_STAGE, SampleRecord).options.search is not None
    rules = {
        **_text_rules(),
        **_label_rules(),
        **(_searched_label_rules() if manifest.labels_are_searched else _outcome_label_rules()),
        **_step_label_rules(),
        **_reward_rules(rewards_are_probabilities=manifest.rewards_are_probabilities),
        **_sampling_rules(is_searched=is_searched),
    }
    violation_counts = [violates.sum().alias(rule) for rule, violates in rules.items()]
    counts = collect_rows(solutions.select(violation_counts), streaming=True).row(0, named=True)
    for rule, count in counts.items():
        if count:
            rows = collect_rows(solutions.filter(rules[rule]).select("solution_id"), streaming=True)
            yield f"{count} solutions {rule}: {summarize_list(rows['solution_id'].to_list())}"


def list_invariants() -> dict[str, list[str]]:
    """Return what :func:`validate` checks in the rows of each config, as sentences."""
    solution_rules = {
        **_text_rules(),
        **_label_rules(),
        **_outcome_label_rules(),
        **_searched_label_rules(),
        **_step_label_rules(),
        **_reward_rules(rewards_are_probabilities=True),
        **_sampling_rules(is_searched=True),
    }
    return {
        "problems": [
            "No two problems have the same id.",
            "The metadata is a JSON object.",
        ],
        "solutions": [
            "No two solutions have the same id, and every solution belongs to a problem.",
            "The solutions of a problem stand one after another, in one file.",
            "The steps join to the text whose digest the manifest has.",
            *(f"No solutions {rule}." for rule in solution_rules),
        ],
        "pairs": [f"No pairs {rule}." for rule in pair_violations()],
    }


def _any_element(column: pl.Expr, predicate: pl.Expr) -> pl.Expr:
    """Return whether the predicate holds for any element of a list column."""
    return column.list.eval(predicate).list.any()


def _text_rules() -> dict[str, pl.Expr]:
    """Return the rules for outcomes and steps, as violation -> expression."""
    outcome = pl.col("outcome")
    steps = pl.col("completions")
    is_blank = pl.element().str.strip_chars().str.len_bytes() == 0
    return {
        f"have an outcome that is not one of {', '.join(OUTCOMES)}": ~outcome.is_in(OUTCOMES),
        f"are {UNGRADED}, but have a verdict, or the other way round": (
            (outcome == UNGRADED) != (pl.col("verdict_by") == NO_VERDICT)
        ),
        "have no steps": steps.is_null(),
        "hold a blank step": _any_element(steps, is_blank),
        "are correct without a tolerance, but not with it": (
            pl.col("exactly_correct") & (outcome != "correct")
        ),
    }


def _label_rules() -> dict[str, pl.Expr]:
    """Return the rules for step labels and rollout counts, as violation -> expression."""
    steps = pl.col("completions")
    labels = pl.col("labels")
    rollouts = pl.col("rollouts")
    n = pl.element().struct.field("n")
    n_correct = pl.element().struct.field("n_correct")
    return {
        "have a different number of labels than of steps": labels.list.len() != steps.list.len(),
        "have a different number of rollout counts than of steps": (
            rollouts.list.len() != steps.list.len()
        ),
        "have rollout counts without rollouts": _any_element(rollouts, n < 1),
        "have rollout counts with more correct rollouts than rollouts": (
            _any_element(rollouts, n_correct > n)
        ),
    }


def _outcome_label_rules() -> dict[str, pl.Expr]:
    """Return the rules for outcome labels, as violation -> expression."""
    outcome = pl.col("outcome")
    labels = pl.col("labels")
    has_outcome_labels = pl.col("rollouts").is_null()
    is_graded = outcome.is_in(GRADED_OUTCOMES)
    has_wrong_label = (
        pl.when(outcome == "correct").then(~labels.list.all()).otherwise(labels.list.any())
    )
    return {
        "have labels without a graded outcome, or a graded outcome without labels": (
            has_outcome_labels & (labels.is_null() != ~is_graded)
        ),
        "have outcome labels that contradict the outcome": (has_outcome_labels & has_wrong_label),
    }


def _searched_label_rules() -> dict[str, pl.Expr]:
    """Return the rules for labels of a search for the first error, as violation -> expression."""
    labels = pl.col("labels")
    is_wrong = pl.col("outcome").is_in(MODEL_FAILURES)
    ends_wrong = ~labels.list.last()
    is_right_after_wrong = pl.element().cast(pl.Int8).diff() > 0
    return {
        "have labels of a search without rollouts, or rollouts without labels": (
            labels.is_null() != pl.col("rollouts").is_null()
        ),
        "have labels of a search without a graded outcome": (
            labels.is_not_null() & ~pl.col("outcome").is_in(GRADED_OUTCOMES)
        ),
        "have a right step after a wrong one": _any_element(labels, is_right_after_wrong),
        "have labels of a search that contradict the outcome": ends_wrong != is_wrong,
    }


def _step_label_rules() -> dict[str, pl.Expr]:
    """Return the rules for imported labels, as violation -> expression."""
    n_steps = pl.col("completions").list.len()
    labels = pl.col("imported_labels")
    ratings = pl.col("imported_ratings")
    is_label = pl.element().is_finite() & pl.element().is_between(0, 1)
    return {
        "have a different number of imported labels than of steps": labels.list.len() != n_steps,
        "have an imported label that is not a number in [0, 1]": (
            _any_element(labels, ~is_label.fill_null(value=False))
        ),
        "have a different number of ratings than of steps": ratings.list.len() != n_steps,
        "have a rating that is not -1, 0 or 1": (
            _any_element(ratings, ~pl.element().is_in([-1, 0, 1]))
        ),
        f"have imported labels and an outcome that is not {UNGRADED}": (
            labels.is_not_null() & (pl.col("outcome") != UNGRADED)
        ),
    }


def _sampling_rules(*, is_searched: bool) -> dict[str, pl.Expr]:
    """Return the rules for the end and the cost of the sampling, as violation -> expression."""
    return {
        "have the cost of a search without a search, or the other way round": (
            pl.col("search_cost").is_not_null() != is_searched
        ),
        "have a finish_reason that is not stop or length": (
            ~pl.col("finish_reason").is_in(["stop", "length"])
        ),
    }


def _reward_rules(*, rewards_are_probabilities: bool) -> dict[str, pl.Expr]:
    """Return the rules for step rewards, as violation -> expression."""
    steps = pl.col("completions")
    rewards = pl.col("step_rewards")
    is_valid = pl.element().is_finite()
    expectation = "a number"
    if rewards_are_probabilities:
        is_valid &= pl.element().is_between(0, 1)
        expectation = "a number in [0, 1]"
    return {
        "have a different number of rewards than of steps": rewards.list.len() != steps.list.len(),
        f"have a reward that is not {expectation}": (
            _any_element(rewards, ~is_valid.fill_null(value=False))
        ),
    }
