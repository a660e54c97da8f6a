"""Near-duplicates among the solutions of a problem, by their steps.

A token is a word, a number or a sign, without case. A solution is the set of the sequences of three
tokens inside its steps; at the end of a step, the sequences are shorter. The similarity of two
solutions is the Jaccard similarity of their sets: the size of the intersection over the size of the
union. A solution is a near-duplicate if an earlier solution that is kept is at least as similar as
the threshold.

The cost is quadratic in the solutions of a problem. Memory holds the tokens of
:data:`CHUNK_SOLUTIONS` solutions, or of one problem if it has more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fsdpo_data.core.lazy import pl
from fsdpo_data.core.parquet_files import collect_rows
from fsdpo_data.core.progress import Progress
from fsdpo_data.dataset.schema import scan_rows

if TYPE_CHECKING:
    import numpy as np
    from scipy.sparse import csr_matrix

TOKENS_PER_SEQUENCE = 3  #: Number of tokens of a sequence.
CHUNK_SOLUTIONS = 8192  #: Number of solutions whose tokens are in memory.
BLOCK_SOLUTIONS = 512  #: Number of solutions of a problem that are compared at once.
_TOKEN = r"\p{L}+|\p{N}+|[^\s\p{L}\p{N}]"
#: Base of the polynomial hash of sequences, modulo 2^64; an odd number of 64 bits.
_BASE = 0x9E3779B97F4A7C15


def near_duplicates(
    files: Sequence[Path], solutions: pl.DataFrame, threshold: float, progress: Progress
) -> pl.Series:
    """Return whether each solution is a near-duplicate of an earlier solution of its problem.

    Args:
        files: The files of solutions.
        solutions: Rows with ``file``, ``row`` and ``problem``, sorted by file and row. All
            solutions of a problem are in one file.
        threshold: Minimum similarity of near-duplicates, above 0 and at most 1.
        progress: Receives the progress.
    """
    progress.phase("compare", solutions.height)
    flags = []
    for (number,), rows in solutions.group_by("file", maintain_order=True):
        file_rows = scan_rows("solutions", [files[number]]).select("completions")
        texts = collect_rows(file_rows)["completions"].gather(rows["row"])
        for start, end in _chunks(rows["problem"]):
            problems = rows["problem"].slice(start, end - start)
            flags.append(_compare_chunk(texts.slice(start, end - start), problems, threshold))
            progress.advance(end - start)
    return pl.concat(flags) if flags else pl.Series(dtype=pl.Boolean)


def _chunks(problems: pl.Series) -> Iterator[tuple[int, int]]:
    """Yield the first and last row of chunks that contain complete problems."""
    ends = [*_problem_starts(problems)[1:], len(problems)]
    start = 0
    for end, next_end in zip(ends, [*ends[1:], None], strict=True):
        if next_end is None or next_end - start > CHUNK_SOLUTIONS:
            yield start, end
            start = end


def _problem_starts(problems: pl.Series) -> list[int]:
    """Return the first row of each run of equal problems."""
    is_start = (problems != problems.shift(1)).fill_null(value=True)
    return is_start.arg_true().to_list()


def _compare_chunk(texts: pl.Series, problems: pl.Series, threshold: float) -> pl.Series:
    """Return whether each solution of a chunk is a near-duplicate."""
    import numpy as np
    from scipy.sparse import csr_matrix

    sequences = _sequences(texts)
    codes = sequences["sequence"].rank("dense").to_numpy().astype(np.int64) - 1
    n_codes = int(codes.max()) + 1 if len(codes) else 1
    counts = np.bincount(sequences["id"].to_numpy(), minlength=len(texts))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ones = np.ones(len(codes), dtype=np.int32)
    sets = csr_matrix((ones, codes, offsets), shape=(len(texts), n_codes))
    flags = np.zeros(len(texts), dtype=bool)
    starts = _problem_starts(problems)
    for start, end in zip(starts, [*starts[1:], len(texts)], strict=True):
        flags[start:end] = _find_duplicates(sets[start:end], counts[start:end], threshold)
    return pl.Series(flags)


def _sequences(texts: pl.Series) -> pl.DataFrame:
    """Return the distinct sequences of each solution, sorted by the solution."""
    steps = pl.DataFrame({"step": texts}).with_row_index("id").explode("step").drop_nulls()
    steps = steps.with_row_index("step_number")
    tokens = steps.select(
        "id",
        "step_number",
        token=pl.col("step").str.to_lowercase().str.extract_all(_TOKEN),
    )
    hashes = tokens.explode("token").drop_nulls()
    hashes = hashes.select("id", "step_number", hash=pl.col("token").hash(seed=0))
    sequence = pl.col("hash")
    for distance in range(1, TOKENS_PER_SEQUENCE):
        is_in_step = pl.col("step_number").shift(-distance) == pl.col("step_number")
        following = pl.when(is_in_step).then(pl.col("hash").shift(-distance)).otherwise(0)
        sequence = sequence * pl.lit(_BASE, dtype=pl.UInt64) + following
    return hashes.select("id", sequence=sequence).unique().sort("id", "sequence")


def _find_duplicates(sets: csr_matrix, sizes: np.ndarray, threshold: float) -> np.ndarray:
    """Return whether each set is similar to an earlier set that is not a near-duplicate.

    Args:
        sets: Sparse matrix of 0 and 1, one row per solution and one column per sequence.
        sizes: Number of sequences of each solution.
        threshold: Minimum similarity.
    """
    import numpy as np

    n_solutions = len(sizes)
    is_duplicate = np.zeros(n_solutions, dtype=bool)
    for start in range(0, n_solutions, BLOCK_SOLUTIONS):
        end = min(start + BLOCK_SOLUTIONS, n_solutions)
        earlier = np.flatnonzero(~is_duplicate[:start])
        columns = np.concatenate([earlier, np.arange(start, end)])
        shared = (sets[start:end] @ sets[columns].T).toarray()
        unions = sizes[start:end, None] + sizes[columns][None, :] - shared
        # Two solutions without tokens are equal.
        is_similar = (shared >= threshold * unions) | (unions == 0)
        for index in range(end - start):
            is_original = np.concatenate(
                [np.ones(len(earlier), dtype=bool), ~is_duplicate[start : start + index]]
            )
            is_duplicate[start + index] = bool(
                (is_similar[index, : len(is_original)] & is_original).any()
            )
    return is_duplicate
