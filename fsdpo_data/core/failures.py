"""Items that an engine refuses: the file that records them, and the number at which a job stops."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from fsdpo_data.core.errors import FailedItemsError, InputError, ItemError
from fsdpo_data.core.files import store_errors, write_atomic
from fsdpo_data.core.input_files import check_regular_file, parse_json
from fsdpo_data.core.jsonl_log import encode_line
from fsdpo_data.core.terminal import strip_control_characters

FAILURES_FILE = "failures.jsonl"  #: File of the failed items, in the directory of their run.
DEFAULT_MAX_FAILED = "1%"  #: Default of the option ``max_failed``.
MAX_REASON_CHARS = 500  #: Characters of a reason in the file.
_PERCENTAGE = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%")


def parse_max_failed(text: str) -> Fraction:
    """Return the fraction of the items that may fail, from a percentage or ``0``.

    Examples:
        >>> parse_max_failed("2.5%")
        Fraction(1, 40)
        >>> parse_max_failed("0")
        Fraction(0, 1)

    Raises:
        ValueError: if the text is neither ``0`` nor a percentage up to 100%.
    """
    match = _PERCENTAGE.fullmatch(text)
    if match is None and text != "0":
        raise ValueError("expected a percentage such as 1%, or 0")
    fraction = Fraction(match[1]) / 100 if match else Fraction(0)
    if fraction > 1:
        raise ValueError("expected at most 100%")
    return fraction


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """The number of failed items at which a job stops, and whether earlier failures are retried."""

    max_failed: str = "0"  #: Percentage of the items that may fail; ``0`` stops at the first.
    retries: bool = True  #: Whether items that failed in an earlier session are tried again.

    @property
    def stops_at_first(self) -> bool:
        """Whether the first failed item stops the job."""
        return not parse_max_failed(self.max_failed)


#: The policy of jobs without the option ``max_failed``.
STOP_AT_FIRST = FailurePolicy()


class FailureLog:
    """The failed items of a run, in ``failures.jsonl`` of its directory.

    The file has one JSON line per item: its ``id``, the ``reason``, and optional fields that locate
    the item. A run without failed items has no file.

    Args:
        folder: Directory of the run.
        policy: When the job stops.
        noun: Name of the items in messages, in the plural.
        finished_ids: Ids of finished items. Their old lines are ignored.
    """

    def __init__(
        self,
        folder: Path,
        policy: FailurePolicy,
        noun: str,
        finished_ids: Collection[str] = (),
    ) -> None:
        self.policy = policy
        self._path = folder / FAILURES_FILE
        self._noun = noun
        records = list(read_failures(folder))
        self._records = {
            record["id"]: record for record in records if record["id"] not in finished_ids
        }
        self._n_expected = 0
        self._n_failed = 0  # in this session, as the next count
        self._n_finished = 0
        # A stopped process may have written an item, but not the file.
        self._has_changed = len(self._records) < len(records)

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._records

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """The records of the failed items."""
        return list(self._records.values())

    def expect(self, n_items: int) -> None:
        """Add items to the total. A percentage of the total may fail."""
        self._n_expected += n_items

    def resolve(self, item_id: str) -> None:
        """Count an item that has succeeded, and remove its failure."""
        self._n_finished += 1
        if self._records.pop(item_id, None) is not None:
            self._has_changed = True

    def add(self, item_id: str, error: ItemError, **location: Any) -> None:
        """Record a failed item.

        Raises:
            ItemError: the ``error``, if the first failure stops the job.
            FailedItemsError: if more items have failed than the policy allows.
        """
        if self.policy.stops_at_first:
            raise error
        reason = strip_control_characters(" ".join(str(error).split()))[:MAX_REASON_CHARS]
        self._records[item_id] = {"id": item_id, "reason": reason, **location}
        self._has_changed = True
        self._n_failed += 1
        if self._n_failed > parse_max_failed(self.policy.max_failed) * self._n_expected:
            self.save()
            raise FailedItemsError(
                f"{self._n_failed:,} of {self._n_expected:,} {self._noun} failed, more than "
                f"`max_failed={self.policy.max_failed}` allows. {self._path} has the reasons; the "
                f"last one: {reason} Finished {self._noun} are saved. Correct the cause, or allow "
                "more failures, and continue with `resume=True`."
            )

    def check_engine(self, *, has_finished_items: bool) -> None:
        """Check after a batch that not all items have failed.

        Args:
            has_finished_items: Whether an earlier session has finished any items.

        Raises:
            FailedItemsError: if items failed in this session, and none has ever finished.
        """
        if self._n_failed and not self._n_finished and not has_finished_items:
            self.save()
            reason = self.records[-1]["reason"]
            raise FailedItemsError(
                f"all of the first {self._n_failed:,} {self._noun} failed, so the engine or its "
                f"options are wrong: {reason} Correct the cause, and continue with `resume=True`."
            )

    def save(self) -> None:
        """Write the file, or remove it if no item has failed.

        Raises:
            StoreError: if the file cannot be written.
        """
        if not self._has_changed:
            return
        with store_errors(self._path.parent):
            if self._records:
                write_atomic(self._path, b"".join(map(encode_line, self._records.values())))
            else:
                self._path.unlink(missing_ok=True)
        self._has_changed = False


def count_failures(root: Path) -> dict[str, int]:
    """Return the number of failed items in each file of a directory and its folders.

    Returns:
        The numbers by the path of the file, relative to ``root``.

    Raises:
        InputError: if a line of a file is damaged.
    """
    return {
        file.relative_to(root).as_posix(): sum(1 for _ in read_failures(file.parent))
        for file in sorted(root.rglob(FAILURES_FILE))
    }


def read_failures(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the failed items of a run, each with its ``id`` and its ``reason``.

    Raises:
        InputError: if a line of the file is damaged.
    """
    path = folder / FAILURES_FILE
    if not path.exists():
        return
    check_regular_file(path)
    with path.open("rb") as file:
        for line in file:
            record = parse_json(line)
            if not isinstance(record, dict) or not all(
                isinstance(record.get(name), str) for name in ("id", "reason")
            ):
                raise InputError(
                    f"{path} has a line that is not a failed item. Delete the file; "
                    "`resume=True` tries missing items again."
                )
            yield record
