"""Problems that occur in a benchmark: word for word but for white space, or in long runs of words.

Two texts are *the same* if their letters are, white space and case aside. They *overlap* by the
share of the runs of ``n`` words of one that occur in the other, the larger of the two shares: a
problem inside a longer one counts whole. Shorter texts than ``n`` words are compared whole only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.grader import ParsedGold, read_gold
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.row_files import replace_surrogates

#: Words of a run. Word problems are short: runs of 13, which are usual for web pages, miss two in
#: five of GSM-IC's base problems, into which a sentence is put.
NGRAM_SIZE = 8
MIN_OVERLAP = 0.5  #: Overlap from which a pair counts.
#: Odd, and of 64 bits: the runs of words are hashed to polynomials in it, modulo 2^64.
_BASE = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class LocatedQuestion:
    """A question and its gold answer, and where they stand."""

    source: str  #: The file or dataset.
    row: int  #: Its row there, from 1.
    question: str  #: The question.
    answer: str  #: The gold; empty if the source has none.


def find_overlapping_pairs(
    training: Sequence[LocatedQuestion],
    benchmarks: Sequence[LocatedQuestion],
    *,
    ngram: int = NGRAM_SIZE,
    min_overlap: float = MIN_OVERLAP,
) -> pl.DataFrame:
    """Find the pairs of a training text and a benchmark's text that are the same or overlap.

    Returns:
        ``training`` and ``benchmark`` (places in the arguments), ``same`` (the questions are the
        same), ``share`` (their overlap; 1 if they are), ``same_answer`` (the golds are one
        answer, and not empty), in the order of both.
    """
    old, new = _frame(training), _frame(benchmarks)
    exact = old.join(new, on="key", suffix="_new").select("id", "id_new", same=pl.lit(True))
    found = _shared_runs(_ngrams(old, ngram), _ngrams(new, ngram)).filter(
        pl.col("share") >= min_overlap
    )
    both = exact.join(found, on=["id", "id_new"], how="full", coalesce=True)
    same = pl.col("same").fill_null(False)
    pairs = both.select(
        same=same,
        share=pl.when(same).then(1.0).otherwise(pl.col("share")),
        training="id",
        benchmark="id_new",
    ).sort("training", "benchmark")
    golds = {place: read_gold(training[place].answer) for place in pairs["training"].unique()}
    places = pairs.select("training", "benchmark").iter_rows()
    agree = [_agree(golds[old], benchmarks[new].answer) for old, new in places]
    return pairs.with_columns(same_answer=pl.Series(agree, dtype=pl.Boolean))


def _agree(gold: ParsedGold, other: str) -> bool:
    """Whether two golds are one answer; ASDiv's ``9 (apples)`` is 9 elsewhere."""
    return bool(gold.text and other) and compare_answers(gold, other).status == "correct"


def _frame(texts: Sequence[LocatedQuestion]) -> pl.DataFrame:
    """Return ``id``, ``words``, and ``key`` without case and white space."""
    questions = [replace_surrogates(each.question) for each in texts]
    frame = pl.DataFrame({"question": questions}, {"question": pl.String}).with_row_index("id")
    lower = pl.col("question").str.to_lowercase()
    bare = pl.col("question").str.normalize("NFKC").str.to_lowercase().str.replace_all(r"\s", "")
    return frame.select("id", words=lower.str.extract_all(r"[\p{L}\p{N}]+"), key=bare)


def _ngrams(frame: pl.DataFrame, n: int) -> pl.DataFrame:
    """Return the different runs of ``n`` words of each text as (``id``, ``run``)."""
    words = frame.select("id", word="words").explode("word").drop_nulls()
    words = words.select("id", hash=pl.col("word").hash(seed=0))
    run = pl.col("hash")
    for k in range(1, n):
        run = run * pl.lit(_BASE, dtype=pl.UInt64) + pl.col("hash").shift(-k)
    whole = pl.col("id") == pl.col("id").shift(-(n - 1))  # all its words are of one text
    return words.select("id", run=run, whole=whole).filter("whole").select("id", "run").unique()


def _shared_runs(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Return (``id``, ``id_new``, ``share``) of the texts that have a run in common."""
    shared = old.join(new, on="run", suffix="_new").group_by("id", "id_new").len("shared")
    sizes = old.group_by("id").len("size")
    sizes_new = new.group_by("id").len("size_new").rename({"id": "id_new"})
    counted = shared.join(sizes, on="id").join(sizes_new, on="id_new")
    smaller = pl.min_horizontal("size", "size_new")
    return counted.select("id", "id_new", share=pl.col("shared") / smaller)
