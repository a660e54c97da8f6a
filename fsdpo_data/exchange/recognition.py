"""Recognise the format of a row with step labels."""

from collections.abc import Mapping
from typing import Any

from fsdpo_data.exchange.step_label_readers import STEP_LABEL_READERS, InvalidStepRowError


def matching_formats(fields: Mapping[str, Any]) -> list[str]:
    """Return the names of the import formats that read a row, in the order of their table."""
    return [name for name in STEP_LABEL_READERS if _is_readable(name, fields)]


def _is_readable(name: str, fields: Mapping[str, Any]) -> bool:
    """Whether a format reads at least one solution of a row."""
    try:
        return any(STEP_LABEL_READERS[name].read(fields))
    except (InvalidStepRowError, LookupError, TypeError, AttributeError):
        return False
