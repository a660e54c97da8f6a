"""Memory that runs out, and the limits of the memory of this process."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fsdpo_data.core.errors import FsdpoError

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


def available_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process can still use.

    The limits of control groups, as containers and Slurm set them, count.

    Args:
        root: The root of the file system with ``proc`` and ``sys``.
    """
    import psutil

    free_bytes = [int(psutil.virtual_memory().available), *_free_in_control_groups(root)]
    return max(0, min(free_bytes))


def _free_in_control_groups(root: Path) -> Iterator[int]:
    """Yield the free bytes of each control group with a limit that contains this process."""
    lines: list[str] = []
    with suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        is_version_2 = not controllers
        mount = root / ("sys/fs/cgroup" if is_version_2 else "sys/fs/cgroup/memory")
        folder = mount / group.lstrip("/")
        # A container may see the path of its group on the host, which is then the mount itself.
        for parent in dict.fromkeys([folder, *folder.parents, mount]):
            if parent == mount or mount in parent.parents:
                with suppress(OSError, ValueError):
                    yield _free_in_control_group(parent, is_version_2=is_version_2)


def _free_in_control_group(folder: Path, *, is_version_2: bool) -> int:
    """Return the free bytes of a control group, with the file pages that the kernel can drop.

    Raises:
        OSError: if the group has no files of a memory limit.
        ValueError: if the group has no limit.
    """
    names = ("memory.max", "memory.current", "inactive_file ")
    if not is_version_2:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
    limit_file, usage_file, cache_key = names
    limit = int((folder / limit_file).read_text())  # ValueError for "max"
    used = int((folder / usage_file).read_text())
    cached = 0
    for line in (folder / "memory.stat").read_text().splitlines():
        if line.startswith(cache_key):
            cached = int(line.split()[1])
    return limit - used + cached
