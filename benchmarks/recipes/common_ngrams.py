"""Pairs of questions by the fraction of common n-grams of words.

The recipes split their problems with it. The overlap of two texts is the fraction of the n-grams of
one text that occur in the other, whichever fraction is larger. Identical texts overlap too, even if
they have no n-grams.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsdpo_data.core.lazy import pl
from fsdpo_data.core.row_files import replace_surrogates

#: Base of the polynomial hash of n-grams, modulo 2^64; an odd number of 64 bits.
_BASE = 0x9E3779B97F4A7C15


def find_common_ngrams(
    training: Sequence[str], benchmarks: Sequence[str], *, ngram: int = 8, min_overlap: float = 0.5
) -> list[tuple[int, int]]:
    """Return the positions of a training text and a benchmark text that overlap, sorted.

    Args:
        training: The training texts.
        benchmarks: The benchmark texts.
        ngram: Words of an n-gram.
        min_overlap: Minimum overlap of a pair, from 0 to 1.
    """
    training_frame = _text_frame(training)
    benchmark_frame = _text_frame(benchmarks)
    identical = training_frame.join(benchmark_frame, on="key", suffix="_benchmark")
    overlapping = _overlap_fractions(
        _ngrams(training_frame, ngram), _ngrams(benchmark_frame, ngram)
    ).filter(pl.col("overlap") >= min_overlap)
    pairs = [frame.select("id", "id_benchmark") for frame in (identical, overlapping)]
    return pl.concat(pairs).unique().sort("id", "id_benchmark").rows()


def _text_frame(texts: Sequence[str]) -> pl.DataFrame:
    """Return ``id``, ``words`` and ``key`` of each text; texts with equal keys are identical."""
    questions = [replace_surrogates(text) for text in texts]
    frame = pl.DataFrame({"question": questions}, {"question": pl.String}).with_row_index("id")
    lower = pl.col("question").str.to_lowercase()
    bare = pl.col("question").str.normalize("NFKC").str.to_lowercase().str.replace_all(r"\s", "")
    return frame.select("id", words=lower.str.extract_all(r"[\p{L}\p{N}]+"), key=bare)


def _ngrams(frame: pl.DataFrame, n: int) -> pl.DataFrame:
    """Return the distinct n-grams of each text, as columns ``id`` and ``ngram`` (a hash)."""
    words = frame.select("id", word="words").explode("word").drop_nulls()
    words = words.select("id", hash=pl.col("word").hash(seed=0))
    ngram = pl.col("hash")
    for k in range(1, n):
        ngram = ngram * pl.lit(_BASE, dtype=pl.UInt64) + pl.col("hash").shift(-k)
    is_in_one_text = pl.col("id") == pl.col("id").shift(-(n - 1))
    ngrams = words.select("id", ngram=ngram, is_in_one_text=is_in_one_text)
    return ngrams.filter("is_in_one_text").select("id", "ngram").unique()


def _overlap_fractions(training: pl.DataFrame, benchmarks: pl.DataFrame) -> pl.DataFrame:
    """Return the overlap of each training text and benchmark text with a common n-gram."""
    shared = (
        training.join(benchmarks, on="ngram", suffix="_benchmark")
        .group_by("id", "id_benchmark")
        .len("shared")
    )
    sizes = training.group_by("id").len("size")
    benchmark_sizes = benchmarks.group_by("id").len("size_benchmark").rename({"id": "id_benchmark"})
    pairs = shared.join(sizes, on="id").join(benchmark_sizes, on="id_benchmark")
    smaller = pl.min_horizontal("size", "size_benchmark")
    return pairs.select("id", "id_benchmark", overlap=pl.col("shared") / smaller)
