"""Detection of problems that overlap with benchmark questions.

Two texts are identical if they differ only in white space, case and Unicode compatibility forms
(NFKC), such as ``３`` and ``3``. Other texts are compared by their tokens: words, TeX commands and
signs. Chinese, Japanese and other scripts have no spaces between words, so each of their characters
is a token. Every number is the same token, so a problem with other numbers has the same tokens. The
code of a figure is one token.

The overlap is the larger one of two values. Both compare runs of ``ngram`` tokens, which have
weights:

- The similarity of the texts is 2 s / (a + b). The weights of their runs add up to a and b, and the
  weights of the common runs to s.
- The containment is (s / min(a, b))². A problem inside a longer one has the containment 1. It is
  used if the shorter text has at least :data:`MIN_CONTAINED_NGRAMS` runs, and
  :data:`MIN_CONTAINED_WORDS` words of prose.

If a run occurs f times in the N texts of both sides, its weight is ln(1 + N/f). Phrases of many
problems therefore count little. Neither value exceeds the same value of the words of prose alone.
Problems that share a long formula, and ask something else about it, therefore have a small overlap.
Texts with fewer than :data:`MIN_TOKENS` tokens overlap only if they are identical.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fsdpo_data.answers.comparison.equivalence import compare_answers
from fsdpo_data.answers.parsing.read import ParsedAnswer, read_answer
from fsdpo_data.core.lazy import pl
from fsdpo_data.core.row_files import replace_surrogates
from fsdpo_data.problems.question_key import question_key

#: Version of the definition of the overlap, which manifests name.
OVERLAP_METHOD = "template@2"
NGRAM_SIZE = 4  #: Tokens of a run.
#: Minimum overlap of a reported pair; ``docs/howto/select.md`` has precision and recall.
MIN_OVERLAP = 0.6
#: Tokens of the shortest text that is compared. "What is 1 + 1?" is a template of many problems.
MIN_TOKENS = 8
#: Runs of the shortest text that a longer text may contain.
MIN_CONTAINED_NGRAMS = 12
#: Words of prose in the shortest text that a longer text may contain.
MIN_CONTAINED_WORDS = 4
#: Base of the polynomial hash of n-grams, modulo 2^64; an odd number of 64 bits.
_BASE = 0x9E3779B97F4A7C15

#: The code of a figure.
_FIGURE = r"(?s)\[asy\].*?\[/asy\]"
#: TeX commands that do not change a formula.
_LAYOUT_COMMANDS = r"\\(?:left|right|displaystyle|text)\b"
#: Numbers in digits, such as ``1,000`` and ``99,\!999``, and short number words.
_NUMBER = (
    r"\d+(?:(?:[.,]|,\\!|\{,\})\d+)*"
    r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b"
)
#: Scripts without spaces between words; each character is a token.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_TOKEN = rf"\\?[\p{{L}}\p{{N}}--{_UNSPACED}]+|[{_UNSPACED}]|[-+*/^=<>!|]"
#: Shorter words are often names of variables.
_MIN_PROSE_CHARACTERS = 3


@dataclass(frozen=True, slots=True)
class LocatedQuestion:
    """A question with its gold answer and its location."""

    source: str  #: File or dataset of the question.
    row: int  #: Row in its file, from 1; 0 if unknown.
    question: str  #: Text of the question.
    answer: str  #: Gold answer; empty if the source has no answer.
    file: str = ""  #: Name of its file; empty if unknown.


def find_overlapping_pairs(
    training: Sequence[LocatedQuestion],
    benchmarks: Sequence[LocatedQuestion],
    *,
    ngram: int = NGRAM_SIZE,
    min_overlap: float = MIN_OVERLAP,
) -> pl.DataFrame:
    """Find the pairs of a training question and a benchmark question that overlap.

    Args:
        training: The training questions.
        benchmarks: The benchmark questions.
        ngram: Number of tokens of a run.
        min_overlap: Minimum overlap of a pair, from 0 to 1.

    Returns:
        One row per pair, sorted by the training question, then by the benchmark question.
        ``training`` and ``benchmark`` are positions in the arguments. ``identical`` is whether the
        questions are identical. ``overlap`` is 1 for identical questions. ``same_answer`` is
        whether the gold answers are equal and not empty.
    """
    texts = _text_frame([*training, *benchmarks], n_training=len(training))
    identical = _identical_pairs(texts)
    overlapping = _overlapping_pairs(texts, ngram, min_overlap)
    all_pairs = identical.join(overlapping, on=["id", "id_benchmark"], how="full", coalesce=True)
    is_identical = pl.col("identical").fill_null(value=False)
    pairs = all_pairs.select(
        identical=is_identical,
        overlap=pl.when(is_identical).then(1.0).otherwise(pl.col("overlap")),
        training="id",
        benchmark=pl.col("id_benchmark") - len(training),
    ).sort("training", "benchmark")
    golds = {index: read_answer(training[index].answer) for index in pairs["training"].unique()}
    has_same_answer = [
        _is_same_answer(golds[training_index], benchmarks[benchmark_index].answer)
        for training_index, benchmark_index in pairs.select("training", "benchmark").iter_rows()
    ]
    return pairs.with_columns(same_answer=pl.Series(has_same_answer, dtype=pl.Boolean))


def _is_same_answer(gold: ParsedAnswer, other: str) -> bool:
    """Return whether two gold answers are equal; ASDiv's ``9 (apples)`` equals 9."""
    return bool(gold.text and other) and compare_answers(gold, other).status == "correct"


def _text_frame(texts: Sequence[LocatedQuestion], n_training: int) -> pl.DataFrame:
    """Return ``id``, ``is_training`` and ``question`` of the texts of both sides."""
    questions = [replace_surrogates(text.question) for text in texts]
    frame = pl.DataFrame({"question": questions}, {"question": pl.String}).with_row_index("id")
    return frame.with_columns(is_training=pl.col("id") < n_training)


def _join_sides(frame: pl.DataFrame, on: str) -> pl.DataFrame:
    """Return the pairs of a row of a training text and a row of a benchmark text."""
    training = frame.filter("is_training")
    return training.join(frame.filter(~pl.col("is_training")), on=on, suffix="_benchmark")


def _identical_pairs(texts: pl.DataFrame) -> pl.DataFrame:
    """Return ``id`` and ``id_benchmark`` of identical texts."""
    keys = pl.Series([question_key(text) for text in texts["question"]], dtype=pl.String)
    frame = texts.select("id", "is_training", key=keys)
    return _join_sides(frame, "key").select("id", "id_benchmark", identical=pl.lit(True))


def _overlapping_pairs(texts: pl.DataFrame, ngram: int, min_overlap: float) -> pl.DataFrame:
    """Return ``id``, ``id_benchmark`` and ``overlap`` of the pairs that reach the minimum."""
    tokens = _tokens(texts, max(ngram, MIN_TOKENS))
    ngrams, sizes = _ngrams(tokens, ngram, texts)
    pairs = _shared_weights(_candidates(ngrams, min_overlap), ngrams, sizes)
    smaller = pl.min_horizontal("n_ngrams", "n_ngrams_benchmark")
    has_containment = smaller >= MIN_CONTAINED_NGRAMS
    pairs = pairs.filter(
        (_similarity() >= min_overlap) | (has_containment & (_containment() >= min_overlap))
    )
    ids = pl.concat([pairs["id"], pairs["id_benchmark"]]).unique()
    words, prose_sizes = _ngrams(tokens.filter("is_prose"), 1, texts, of_texts=ids)
    prose = _shared_weights(pairs.select("id", "id_benchmark"), words, prose_sizes)
    pairs = pairs.join(prose, on=["id", "id_benchmark"], suffix="_prose")
    similarity = pl.min_horizontal(_similarity(), _similarity("_prose"))
    containment = pl.min_horizontal(_containment(), _containment("_prose"))
    shorter_prose = pl.min_horizontal("n_ngrams_prose", "n_ngrams_benchmark_prose")
    has_containment &= shorter_prose >= MIN_CONTAINED_WORDS
    overlap = pl.max_horizontal(similarity, pl.when(has_containment).then(containment))
    return pairs.select("id", "id_benchmark", overlap=overlap).filter(
        pl.col("overlap") >= min_overlap
    )


def _tokens(texts: pl.DataFrame, min_tokens: int) -> pl.DataFrame:
    """Return ``id``, ``hash`` and ``is_prose`` of each token, in order.

    Texts with fewer than ``min_tokens`` tokens are left out.
    """
    template = (
        pl.col("question")
        .str.to_lowercase()
        .str.replace_all(_FIGURE, " asy ")
        .str.replace_all(_LAYOUT_COMMANDS, "")
        .str.replace_all(_NUMBER, "0")
    )
    token_lists = texts.select("id", token=template.str.extract_all(_TOKEN))
    token_lists = token_lists.filter(pl.col("token").list.len() >= min_tokens)
    is_word = pl.col("token").str.len_chars() >= _MIN_PROSE_CHARACTERS
    is_word |= pl.col("token").str.contains(f"[{_UNSPACED}]")
    return token_lists.explode("token").select(
        "id",
        hash=pl.col("token").hash(seed=0),
        is_prose=is_word & ~pl.col("token").str.starts_with("\\"),
    )


def _ngrams(
    tokens: pl.DataFrame, n: int, texts: pl.DataFrame, *, of_texts: pl.Series | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the distinct n-grams of each text that occur twice or more, and the sizes of texts.

    Args:
        tokens: The tokens of all texts, in order.
        n: Tokens of an n-gram.
        texts: All texts.
        of_texts: Ids of the texts whose n-grams are returned; all texts if None.

    Returns:
        The n-grams and the texts. N-grams have ``id``, ``ngram`` (a hash), ``count`` in the text,
        ``weight``, ``rank`` (by weight, the rarest first), and the columns of the text. Texts have
        ``id``, ``is_training``, ``n_ngrams`` and ``size`` (the number and the weight of all
        n-grams). ``unshared`` is the weight of the n-grams that are left out.
    """
    ngram = pl.col("hash")
    for k in range(1, n):
        ngram = ngram * pl.lit(_BASE, dtype=pl.UInt64) + pl.col("hash").shift(-k)
    is_in_one_text = pl.col("id") == pl.col("id").shift(-(n - 1))
    ngrams = tokens.select("id", ngram=ngram, is_in_one_text=is_in_one_text)
    ngrams = ngrams.filter("is_in_one_text").drop("is_in_one_text")
    n_ngrams = ngrams["id"].rle().struct.unnest().rename({"value": "id", "len": "n_ngrams"})
    repeated = ngrams.filter(pl.col("ngram").is_duplicated())
    frequencies = repeated.group_by("ngram").len("frequency").sort("frequency", "ngram")
    weights = frequencies.select(
        "ngram", weight=(1 + texts.height / pl.col("frequency")).log()
    ).with_row_index("rank")
    if of_texts is not None:
        repeated = repeated.filter(pl.col("id").is_in(of_texts.implode()))
        n_ngrams = n_ngrams.filter(pl.col("id").is_in(of_texts.implode()))
    counts = repeated.group_by("id", "ngram").len("count").join(weights, on="ngram")
    shared_size = (pl.col("count") * pl.col("weight")).sum()
    shared = counts.group_by("id").agg(shared_count=pl.col("count").sum(), shared_size=shared_size)
    unshared = (pl.col("n_ngrams") - pl.col("shared_count")) * math.log(1 + texts.height)
    sizes = (
        n_ngrams.join(shared, on="id", how="left")
        .with_columns(pl.col("shared_count", "shared_size").fill_null(0))
        .join(texts.select("id", "is_training"), on="id")
        .select(
            "id",
            "is_training",
            "n_ngrams",
            unshared=unshared,
            size=unshared + pl.col("shared_size"),
        )
    )
    return counts.join(sizes, on="id"), sizes


def _candidates(ngrams: pl.DataFrame, min_overlap: float) -> pl.DataFrame:
    """Return ``id`` and ``id_benchmark`` of all pairs whose overlap may reach the minimum.

    A pair with the similarity t shares at least the part t / (2 - t) of the weight of each text.
    The reason is that the similarity is 2 s / (a + b), and s is at most b. The rarest common n-gram
    is therefore among the rarest n-grams of each text, whose weights add up to the remaining part.

    A pair with the containment t shares at least the part √t of the shorter text. Its similarity is
    then t or more, unless a / b < √t / (2 - √t).
    """
    min_part = min_overlap / (2 - min_overlap)
    min_contained_part = math.sqrt(min_overlap)
    # Only the rarest common n-gram must be found, so ties need one order in all texts.
    order = pl.col("id").cast(pl.UInt64) * 2**32 + pl.col("rank")
    weight = pl.col("weight") * pl.col("count")
    missing_part = (pl.col("unshared") + weight.cum_sum().over("id") - weight) / pl.col("size")
    ordered = ngrams.filter(pl.col("unshared") <= (1 - min_part) * pl.col("size")).sort(order)
    ordered = ordered.with_columns(missing=missing_part)
    rare = ordered.filter(pl.col("missing") <= 1 - min_part)
    ratio = pl.col("size") / pl.col("size_benchmark")
    similar = _join_sides(rare, "ngram").filter(ratio.is_between(min_part, 1 / min_part))
    short = ordered.filter(
        (pl.col("missing") <= 1 - min_contained_part) & (pl.col("n_ngrams") >= MIN_CONTAINED_NGRAMS)
    )
    max_ratio = min_contained_part / (2 - min_contained_part)
    contained = short.join(ngrams, on="ngram", suffix="_long").filter(
        (pl.col("is_training") != pl.col("is_training_long"))
        & (pl.col("size") < pl.col("size_long") * max_ratio)
    )
    is_training = pl.col("is_training")
    contained = contained.select(
        id=pl.when(is_training).then("id").otherwise("id_long"),
        id_benchmark=pl.when(is_training).then("id_long").otherwise("id"),
    )
    return pl.concat([similar.select("id", "id_benchmark"), contained]).unique()


def _shared_weights(pairs: pl.DataFrame, ngrams: pl.DataFrame, sizes: pl.DataFrame) -> pl.DataFrame:
    """Add the weight of the common n-grams of each pair (``shared``), and of both texts.

    The columns are ``shared``, and ``size`` and ``n_ngrams`` of both texts. They are 0 for texts
    without n-grams.
    """
    training = ngrams.filter("is_training").drop("is_training")
    benchmark = ngrams.filter(~pl.col("is_training")).drop("is_training", "weight")
    benchmark = benchmark.rename({"id": "id_benchmark"})
    common = pairs.join(training, on="id").join(
        benchmark, on=["id_benchmark", "ngram"], suffix="_benchmark"
    )
    weight = pl.col("weight") * pl.min_horizontal("count", "count_benchmark")
    shared = common.group_by("id", "id_benchmark").agg(shared=weight.sum())
    sizes = sizes.select("id", "size", "n_ngrams")
    benchmark_sizes = sizes.select(
        id_benchmark="id", size_benchmark="size", n_ngrams_benchmark="n_ngrams"
    )
    return (
        pairs.join(shared, on=["id", "id_benchmark"], how="left")
        .join(sizes, on="id", how="left")
        .join(benchmark_sizes, on="id_benchmark", how="left")
        .with_columns(pl.exclude("id", "id_benchmark").fill_null(0))
    )


def _similarity(suffix: str = "") -> pl.Expr:
    """Return the similarity of two texts; 1 if neither has n-grams."""
    size = pl.col(f"size{suffix}") + pl.col(f"size_benchmark{suffix}")
    return pl.when(size > 0).then(2 * pl.col(f"shared{suffix}") / size).otherwise(1.0)


def _containment(suffix: str = "") -> pl.Expr:
    """Return the containment of the shorter text; 1 if it has no n-grams."""
    size = pl.min_horizontal(f"size{suffix}", f"size_benchmark{suffix}")
    part = pl.when(size > 0).then(pl.col(f"shared{suffix}") / size).otherwise(1.0)
    return part**2
