"""How long to wait before a server is asked again."""

import random
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: Answers that pass: too many requests, too early, and errors of the server's own.
RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
MAX_DELAY_SECONDS = 60.0  #: Seconds, whatever a server asks for.


def retry_delay(retry_after: str, attempt: int) -> float:
    """Return the seconds to wait after failure ``attempt``, from 0.

    As many as the server asks for, in seconds or with a date (RFC 9110, 10.2.3); else twice as many
    each time, up to a half of them left to chance, so that many clients do not come back at once.
    """
    seconds = 2.0 ** min(attempt, 10) * random.uniform(0.5, 1)
    with suppress(ValueError):
        seconds = float(retry_after)
    with suppress(ValueError, TypeError):
        seconds = (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), MAX_DELAY_SECONDS)
