"""Fixed sample points, which give every symbol a pseudo-random value."""

from functools import lru_cache
from hashlib import blake2b

from fsdpo_data.answers.comparison.mpmath_functions import MpNumber, mpmath_context

#: Points at which symbols may be negative; at all other points they are positive.
_SIGNED_POINTS = frozenset((1, 3, 6))
#: The point at which symbols are positive, and single letters grow in alphabetic order.
ALPHABETIC_POINT = -1
#: Lower bound and width of the range of absolute symbol values, by point; the others use
#: ``_DEFAULT_RANGE``.
_RANGES = {2: (0.05, 0.9), 5: (0.05, 0.9), 3: (3, 40), 7: (3, 40)}
_DEFAULT_RANGE = (0.2, 2.3)


@lru_cache(maxsize=8_192)
def symbol_value(name: str, point: int) -> MpNumber:
    """Return the pseudo-random value of a symbol at a point, from a hash of its name."""
    if point == ALPHABETIC_POINT:
        return mpmath_context().mpf(sum(map(ord, name))) / 37
    digest = blake2b(f"{name} {point}".encode("utf-8", "replace"), digest_size=9).digest()
    mp = mpmath_context()
    value = mp.mpf(int.from_bytes(digest[:8])) / 2**64
    low, width = _RANGES.get(point, _DEFAULT_RANGE)
    value = value * width + low
    # A symbol that is positive at point 3 is negative at point 1, so that signs always show.
    is_negative = symbol_value(name, 3) > 0 if point == 1 else digest[8] % 2
    return -value if point in _SIGNED_POINTS and is_negative else value
