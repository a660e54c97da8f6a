"""Seeded orders, samples and splits that depend on content, and never on positions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from fsdpo_data.core.lazy import pl

#: Name of the split that gets the problems of no other split.
REST = "train"
_STEP = 0x9E3779B97F4A7C15
_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_MASK = (1 << 64) - 1


def mix_keys(keys: pl.Series, seed: int, purpose: str) -> pl.Series:
    """Return pseudo-random 64-bit numbers for 64-bit keys.

    Equal keys get equal numbers. The function is SplitMix64 (Steele et al. 2014).

    Args:
        keys: The keys, such as hashes of questions.
        seed: Seed of the user.
        purpose: Name of the random choice, so that different choices are independent.
    """
    import numpy as np

    salt = hashlib.blake2b(f"{purpose}/{seed}".encode(), digest_size=8).digest()
    start = np.uint64((int.from_bytes(salt, "little") + _STEP) & _MASK)
    with np.errstate(over="ignore"):
        values = keys.to_numpy() + start
        for shift, factor in _FACTORS:
            values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
        values = values ^ (values >> np.uint64(31))
    return pl.Series(keys.name, values, dtype=pl.UInt64)


def assign_splits(
    keys: pl.Series, fractions: Mapping[str, float], seed: int, *, n_earlier: int = 0
) -> pl.Series:
    """Return the split of each problem.

    The split depends on the question, the seed and the number of earlier splits. A problem
    therefore stays in its split if filters change or problems are added, and the sizes of splits
    vary around their fractions.

    Args:
        keys: Keys of the questions, as :func:`~fsdpo_data.selection.row_index.question_keys`.
        fractions: Fraction of the problems of each split; the rest is in :data:`REST`.
        seed: Seed of the user.
        n_earlier: Number of splits that the problems have already gone through. With the same
            order, the second split of a training set would find only its rest.
    """
    import numpy as np

    purpose = f"split/{n_earlier}" if n_earlier else "split"
    positions = mix_keys(keys, seed, purpose).to_numpy() / 2.0**64
    splits = np.full(len(positions), REST, dtype=object)
    start = 0.0
    for name, fraction in fractions.items():
        splits[(positions >= start) & (positions < start + fraction)] = name
        start += fraction
    return pl.Series("split", splits, dtype=pl.String)
