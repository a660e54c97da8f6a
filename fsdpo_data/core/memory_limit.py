"""Memory that runs out, and the limit of the address space under which native libraries abort."""

import resource

from fsdpo_data.core.errors import FsdpoError, UnavailableError

#: Least address space of a command. polars and torch reserve it, also if they use little memory.
MIN_ADDRESS_SPACE_BYTES = 4 * 2**30
#: Parts of the messages with which torch and the system report that memory ran out. torch raises a
#: RuntimeError for it, and a thread cannot start if no memory is left for its stack.
_MEMORY_MESSAGES = ("allocate memory", "out of memory", "can't start new thread")


def is_memory_error(error: BaseException) -> bool:
    """Return whether an error of Python, torch or the system means that memory ran out."""
    if isinstance(error, MemoryError):
        return True
    is_foreign = isinstance(error, RuntimeError | OSError) and not isinstance(error, FsdpoError)
    return is_foreign and any(message in str(error) for message in _MEMORY_MESSAGES)


def reraise_memory_error(error: BaseException) -> None:
    """Raise an error again if memory ran out, so that no handler reports a damaged file."""
    if is_memory_error(error):
        raise error


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
