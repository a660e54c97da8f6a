"""The limit of the address space (``ulimit -v``), under which native libraries abort or hang."""

import resource

from fsdpo_data.core.errors import UnavailableError

#: Least address space of a command. polars and torch reserve it, also if they use little memory.
MIN_ADDRESS_SPACE_BYTES = 4 * 2**30


def check_address_space() -> None:
    """Refuse a limit that is too low for the native libraries.

    polars and torch end the process below such a limit, without an error that Python could catch.

    Raises:
        UnavailableError: if the limit is below ``MIN_ADDRESS_SPACE_BYTES``.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < MIN_ADDRESS_SPACE_BYTES:
        raise UnavailableError(
            f"the limit of the address space is {limit // 1024:,} KiB (`ulimit -v`). Expected at "
            f"least {MIN_ADDRESS_SPACE_BYTES // 1024:,} KiB, or no limit: `ulimit -v unlimited`."
        )
