"""Errors of single items: which errors concern one item, and how the other items go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from fsdpo_data.core.errors import FsdpoError, ItemError
from fsdpo_data.core.memory_limit import is_memory_error

#: If so many items fail alone, and none has succeeded, the engine has failed.
MAX_FIRST_FAILURES = 8

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
#: The index of an item in its batch, and its result or the error with which it fails.
ItemResult: TypeAlias = tuple[int, ResultT | ItemError]
#: Processes a batch, and yields the result of each item as the item finishes.
BatchProcessor: TypeAlias = Callable[[Sequence[ItemT]], Iterable[ItemResult[ResultT]]]


def is_item_error(error: Exception) -> bool:
    """Return whether an error may concern one item only.

    Errors of the system, memory that runs out, and errors of a device concern the engine. So do our
    own errors, such as a missing model, except :class:`~fsdpo_data.core.errors.ItemError`.
    """
    if isinstance(error, ItemError):
        return True
    if isinstance(error, FsdpoError | OSError | ImportError) or is_memory_error(error):
        return False
    message = str(error)
    is_device_error = isinstance(error, RuntimeError) and ("CUDA" in message or "HIP" in message)
    return not is_device_error


def as_item_error(error: Exception) -> ItemError:
    """Return the error of an item, with the class of a library's error in the message."""
    if isinstance(error, ItemError):
        return error
    return ItemError(f"{type(error).__name__}: {error}")


def process_by_bisection(
    process: BatchProcessor[ItemT, ResultT], items: Sequence[ItemT]
) -> Iterator[ItemResult[ResultT]]:
    """Yield the result of each item, or the error with which it fails.

    After an error that ``process`` raises, the unfinished items are processed again in halves. An
    item that fails alone has failed.

    Args:
        process: Processes a batch. It yields or raises an error if it refuses an item.
        items: The items.

    Raises:
        Exception: the error of ``process``, if the engine fails.
    """
    batches = [list(range(len(items)))] if items else []
    n_finished = 0
    n_failed = 0
    while batches:
        indices = batches.pop()
        finished = set()
        try:
            for batch_index, result in process([items[index] for index in indices]):
                finished.add(batch_index)
                n_finished += not isinstance(result, ItemError)
                yield indices[batch_index], result
            continue
        except Exception as error:
            missing = [index for row, index in enumerate(indices) if row not in finished]
            if not is_item_error(error) or not missing:
                raise
            if len(indices) > 1:
                middle = (len(missing) + 1) // 2
                batches += [half for half in (missing[middle:], missing[:middle]) if half]
                continue
            n_failed += 1
            if n_failed == MAX_FIRST_FAILURES and not n_finished:
                raise
            item_error = as_item_error(error)
        yield indices[0], item_error


def collect_results(results: Iterable[ItemResult[ResultT]]) -> list[ResultT]:
    """Return the results of a batch, in the order of its items.

    Raises:
        ItemError: if an item failed.
    """
    result_by_index = dict(results)
    ordered_results = []
    for index in range(len(result_by_index)):
        result = result_by_index[index]
        if isinstance(result, ItemError):
            raise result
        ordered_results.append(result)
    return ordered_results
