"""Delays between attempts at a request that a server has rejected."""

import math
import random
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: HTTP statuses of temporary failures: timeouts, rate limits and server errors.
RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
MAX_DELAY_SECONDS = 60.0  #: Longest delay, even if a server requests a longer one.


def retry_delay(retry_after: str, attempt: int) -> float:
    """Return the seconds to wait after a failed attempt.

    The ``Retry-After`` header has priority, in seconds or as a date (RFC 9110, 10.2.3). Without it,
    the delay doubles with every attempt. Random jitter removes up to half of the delay, so that
    clients do not all return at the same time.

    Args:
        retry_after: Value of the ``Retry-After`` header; empty if missing.
        attempt: Number of the failed attempt, from 0.
    """
    seconds = 2.0 ** min(attempt, 10) * random.uniform(0.5, 1)
    with suppress(ValueError):
        requested_seconds = float(retry_after)
        if not math.isnan(requested_seconds):
            seconds = requested_seconds
    with suppress(ValueError, TypeError):
        seconds = (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), MAX_DELAY_SECONDS)
